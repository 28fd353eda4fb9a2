"""`freeze` and `unfreeze`, and choices of parameters by patterns of names."""

import copy
import pickle
import warnings

import numpy as np
import pytest

import graphfw as gf
from graphfw import nn


class Model(nn.Module):
    def __init__(self):
        self.encoder = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm(3))
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.encoder(x))


ALL = ["encoder.0.weight", "encoder.0.bias", "encoder.1.weight", "encoder.1.bias"]
ALL += ["head.weight", "head.bias"]
DATA = np.arange(20, dtype=np.float32).reshape(5, 4) / 20


@pytest.fixture
def model():
    with gf.Graph():
        yield Model()


def names(model, *args, **kwargs):
    named = model.named_parameters(*args, **kwargs)
    assert [id(v) for _, v in named] == [id(v) for v in model.parameters(*args, **kwargs)]
    return [name for name, _ in named]


@pytest.mark.parametrize(
    ("only", "ignore", "chosen"),
    [
        (None, None, ALL),
        ("encoder", None, ALL[:4]),
        ("encoder.*", "*.bias", ["encoder.0.weight", "encoder.1.weight"]),
        (["head", "encoder.0.weight"], None, ["encoder.0.weight", "head.weight", "head.bias"]),
        (None, "encoder", ALL[4:]),
        ([], None, []),
        ("encoder.1.running_mean", None, []),
    ],
)
def test_parameters_are_chosen_by_patterns(model, only, ignore, chosen):
    assert names(model, only, ignore) == chosen
    # What is frozen is what is chosen, and what is unfrozen is, too.
    assert model.freeze(only, ignore) is model
    assert names(model) == [name for name in ALL if name not in chosen]
    model.freeze()
    assert names(model) == []
    assert model.unfreeze(only, ignore) is model
    assert names(model) == chosen


def test_buffers_are_neither_frozen_nor_trained(model):
    before = model.buffers()
    assert [v.name for v in before] == [
        "model.encoder.1.running_mean",
        "model.encoder.1.running_var",
    ]
    model.freeze()
    assert len(model.buffers()) == 2
    assert not any(v.is_frozen for v in before)
    model.unfreeze()
    assert names(model) == ALL
    assert repr(model.freeze().head.bias) == '<Variable "model.head.bias" float32[2], frozen>'


def test_only_what_trains_changes_and_has_optimiser_state(model):
    model.freeze("encoder")
    x = gf.placeholder(("batch", 4), name="x")
    optimizer = gf.optim.Adam(0.1)
    step = optimizer.minimize(gf.sum(model(x) ** 2))
    slots = [v.name for v in optimizer.variables]
    assert slots == [
        "adam.step",
        *(f"adam.{s}.model.head.{n}" for n in ("weight", "bias") for s in "mv"),
    ]
    with gf.Session(gf.current_graph()) as session:
        before = session.state_dict()
        session.run(step, {x: DATA})
        now = session.state_dict()
    changed = {n for n in now if n.startswith("model.") and not np.array_equal(now[n], before[n])}
    # A call for training moves the statistics of frozen layers, too.
    statistics = {f"model.encoder.1.running_{n}" for n in ("mean", "var")}
    assert changed == {"model.head.weight", "model.head.bias"} | statistics


def test_statistics_stay_in_a_call_that_is_not_for_training(model):
    model.freeze("encoder")
    x = gf.placeholder(("batch", 4), name="x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step = gf.optim.SGD(0.1).minimize(gf.sum(model.head(model.encoder(x, training=False)) ** 2))
    with gf.Session(gf.current_graph()) as session:
        session.run(step, {x: DATA})
        np.testing.assert_array_equal(session["model.encoder.1.running_mean"], np.zeros(3))


def test_steps_that_are_described_train_what_trained_then(model):
    loss = gf.sum(model(DATA) ** 2)
    both = gf.optim.SGD(0.1).minimize(loss)
    model.freeze("encoder")
    head = gf.optim.SGD(0.1, name="second").minimize(loss)
    model.unfreeze()
    trained = [{v.name for v, _ in step.pairs} for step in (both, head)]
    assert "model.encoder.0.weight" in trained[0] - trained[1]
    assert "model.head.weight" in trained[0] & trained[1]
    assert names(model) == ALL


def test_groups_by_patterns():
    """Layers nearer to the input learn more slowly, and biases do not decay."""
    with gf.Graph() as g:
        model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(3)))
        decay = {"lr": 0.5, "weight_decay": 0.1}
        groups = [
            *(
                {"parameters": model.parameters(f"{i}.weight"), **decay, "lr": 0.5**i}
                for i in range(3)
            ),
            {"parameters": model.parameters("*.bias"), "lr": 0.0},
        ]
        loss = sum(gf.sum(v) for v in model.parameters())
        step = gf.optim.SGD(1.0).minimize(loss, groups)
    with gf.Session(g) as session:
        before = session.state_dict()
        session.run(step)
        for i in range(3):
            name = f"sequential.{i}.weight"
            expected = before[name] - 0.5**i * (1 + 0.1 * before[name])
            np.testing.assert_allclose(session[name], expected, 1e-6, 1e-6)
            bias = f"sequential.{i}.bias"
            np.testing.assert_array_equal(session[bias], before[bias])


def test_shared_variables_have_their_first_name():
    with gf.Graph():
        model = nn.ModuleDict({"table": nn.Embedding(5, 3), "head": nn.Linear(3, 5)})
        model["again"] = model["table"]
        model.freeze("table")
        assert names(model) == ["head.weight", "head.bias"]
        with pytest.raises(gf.ArgumentError, match='only="again" fits no variable'):
            model.freeze("again")


def test_copies_are_frozen_as_well(model):
    model.freeze("head")
    assert names(copy.deepcopy(model)) == ALL[:4]
    assert names(pickle.loads(pickle.dumps(model))) == ALL[:4]


def test_summary_counts_what_trains(model):
    total = sum(v.size for v in model.parameters())
    model.freeze("encoder")
    summary = model.summary(("batch", 4))
    rows = str(summary).splitlines()
    assert rows[-1].split() == ["total", str(total + 6), str(3 * 2 + 2)]


# Mistakes.


def test_patterns_that_fit_nothing_change_nothing(model):
    for method in (model.freeze, model.unfreeze, model.parameters, model.named_parameters):
        for args, summary, fix in (
            (("encodr",), 'only="encodr" fits no variable of Model', 'did you mean "encoder"?'),
            ((["head", "bias"],), 'only="bias" fits no variable', 'write "*.bias", which fits'),
            (
                (None, "xyz"),
                'ignore="xyz" fits no variable',
                "give a name, a scope, or a name with *; names end in bias, ",
            ),
        ):
            with pytest.raises(gf.ArgumentError) as caught:
                method(*args)
            assert caught.value.summary.startswith(summary)
            assert caught.value.fix.startswith(fix)
            assert caught.value.at.function == "test_patterns_that_fit_nothing_change_nothing"
    assert names(model) == ALL


@pytest.mark.parametrize("wrong", [3, True, "", [3], lambda name: True])
def test_what_is_no_pattern(model, wrong):
    for option in ("only", "ignore"):
        with pytest.raises(gf.ArgumentError, match=rf"Model\.freeze: {option}=.* is no pattern"):
            model.freeze(**{option: wrong})


def test_frozen_parameters_are_refused(model):
    loss, weight = gf.sum(model(DATA) ** 2), model.head.weight
    model.freeze()
    for step, error, summary in (
        (lambda o: o.minimize(loss), gf.GradientError, "alone, frozen"),
        (lambda o: o.minimize(loss, [weight]), gf.ArgumentError, '"model.head.weight" is frozen'),
        (lambda o: o.minimize(loss, model.parameters()), gf.ArgumentError, "parameters is empty"),
        (lambda o: o.apply_gradients([(weight, weight)]), gf.ArgumentError, "is frozen"),
    ):
        with pytest.raises(error, match=summary) as caught:
            step(gf.optim.SGD(0.1))
        assert "frozen" in caught.value.fix or "unfreeze()" in caught.value.fix


def test_layers_without_variables_yet_can_not_be_frozen():
    with gf.Graph():
        model = nn.Sequential(nn.Linear(None, 3))
        with pytest.raises(gf.GraphError, match="makes its variables in its first call"):
            model.freeze()


def test_frozen_weights_are_weights_in_mixed_precision(rng):
    """A bias goes along with 16 bits, also when it is frozen."""
    with gf.Graph() as g:
        x = gf.placeholder(("batch", 4), name="x")
        model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
        y = model(x)
    data = rng.standard_normal((3, 4), np.float32)
    with gf.Session(g, seed=0, precision="mixed-bf16") as session:
        expected = session.run(y, {x: data})
    model.freeze()
    with gf.Session(g, seed=0, precision="mixed-bf16") as session:
        np.testing.assert_array_equal(session.run(y, {x: data}), expected)
