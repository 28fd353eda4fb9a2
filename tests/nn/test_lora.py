"""`gf.nn.lora`: updates of low rank beside frozen layers, in training and merged."""

import copy
import pickle

import numpy as np
import pytest

import graphfw as gf
from graphfw import nn
from tests.support.torch_layers import as_torch, torch


@pytest.fixture
def g():
    with gf.Graph() as g:
        yield g


class Net(nn.Module):
    """A layer of each kind that takes updates, and one whose layers are deeper in it."""

    def __init__(self):
        self.table = nn.Embedding(9, 8, padding_idx=0)
        self.conv = nn.Conv1d(8, 6, 3, padding=1)
        self.encoder = nn.TransformerEncoder(6, 2, 1, dropout=0.0)
        self.head = nn.Linear(6, 5)

    def forward(self, ids):
        x = gf.swapaxes(self.conv(gf.swapaxes(self.table(ids), 1, 2)), 1, 2)
        return self.head(self.encoder(x))


IDS = np.random.default_rng(1).integers(0, 9, (3, 4))
EVERY = ["table", "conv", "encoder.layers.0.self_attn.q_proj", "encoder.layers.0.self_attn.k_proj"]
EVERY += ["encoder.layers.0.self_attn.v_proj", "encoder.layers.0.self_attn.out_proj"]
EVERY += ["encoder.layers.0.linear1", "encoder.layers.0.linear2", "head"]


def scrambled(session, adapters, rng):
    """Give the updates contents that are not 0."""
    for variable in adapters.parameters():
        session[variable] = rng.standard_normal(variable.shape).astype(variable.dtype.dtype) / 4


@pytest.mark.parametrize(
    ("targets", "ignore", "paths"),
    [
        ("*", None, EVERY),
        ("encoder", None, EVERY[2:8]),
        (["*.q_proj", "*.v_proj"], None, [EVERY[2], EVERY[4]]),
        ("head", None, ["head"]),
        (["*.linear?", "table"], "*.linear2", ["table", EVERY[6]]),
    ],
)
def test_patterns_choose_layers(g, targets, ignore, paths):
    model = Net()
    weights = [v.name for v in model.variables()]
    adapters = nn.lora(model, targets, 2, ignore=ignore)
    assert list(adapters.layers) == paths
    assert adapters.layers == {p: m for p, m in model.named_modules() if p in paths}
    # The model has the variables that it had, with their names, and trains none of them.
    assert [v.name for v in model.variables()] == weights
    assert model.parameters() == []
    names = [f"adapters.{path}.lora_{x}.weight" for path in paths for x in "AB"]
    assert [v.name for v in adapters.parameters()] == names
    assert adapters.parameters(f"{paths[0]}.*") == adapters.parameters()[:2]


def test_the_model_computes_the_same_until_the_updates_train(g, rng):
    model = Net()
    x = gf.placeholder(("batch", "time"), gf.int64)
    before = model(x, training=False)
    adapters = nn.lora(model, "*", 2)
    after, again = model(x, training=False), model(x, training=False)
    with gf.Session(g) as session:
        values = session.run([before, after], {x: IDS})
        np.testing.assert_array_equal(*values)
        scrambled(session, adapters, rng)
        first, second, third = session.run([before, after, again], {x: IDS})
        np.testing.assert_array_equal(first, values[0])
        np.testing.assert_array_equal(second, third)
        assert np.abs(second - first).max() > 0.1


def test_only_the_updates_train_and_have_optimiser_state(g):
    model = Net()
    adapters = nn.lora(model, ["*.q_proj", "*.v_proj", "table"], 2)
    x = gf.placeholder(("batch", "time"), gf.int64)
    optimizer = gf.optim.Adam(0.1)
    step = optimizer.minimize(gf.mean(model(x) ** 2))
    slots = {v.name for v in optimizer.variables}
    assert slots == {"adam.step"} | {
        f"adam.{s}.{v.name}" for s in "mv" for v in adapters.parameters()
    }
    with gf.Session(g) as session:
        weights = model.state_dict(session)
        updates = adapters.module.state_dict(session)
        for _ in range(2):  # in the first step, one factor of each is 0
            session.run(step, {x: IDS})
        for name, array in model.state_dict(session).items():
            np.testing.assert_array_equal(array, weights[name], err_msg=name)
        for name, array in adapters.module.state_dict(session).items():
            assert not np.array_equal(array, updates[name]), name
        # The row of the padding has no update.
        np.testing.assert_array_equal(session[adapters.parameters()[0]][0], np.zeros(2))


def test_what_is_unfrozen_trains_along(g):
    model = Net()
    adapters = nn.lora(model, "encoder", 2)
    model.unfreeze("head")
    step = gf.optim.SGD(0.1).minimize(gf.mean(model(IDS) ** 2))
    trained = {v.name for v, _ in step.pairs} - {"sgd.step"}
    assert trained == {v.name for v in [*adapters.parameters(), *model.head.parameters()]}


def test_training_by_a_call_for_evaluation_is_a_warning(g):
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5))
    nn.lora(model, "*", 2)
    loss = gf.sum(model.eval()(gf.placeholder((2, 4))))
    with pytest.warns(UserWarning, match='trains "sequential" as it was called for evaluation'):
        gf.optim.SGD(0.1).minimize(loss)


class TheirLora(torch.nn.Module):
    """A layer with an update, written out."""

    def __init__(self, layer, rank, scale):
        super().__init__()
        self.layer, self.scale = layer.requires_grad_(False), scale
        self.a = torch.nn.Parameter(torch.zeros(rank, layer.in_features))
        self.b = torch.nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x):
        return self.layer(x) + (x @ self.a.T) @ self.b.T * self.scale


def test_adam_steps_as_in_pytorch(g, rng):
    theirs = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3))
    state = theirs.state_dict()
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    adapters = nn.lora(model, "*", 2, alpha=6)
    data, target = rng.standard_normal((6, 5), np.float32), rng.standard_normal((6, 3), np.float32)
    loss = gf.mean((model(data) - target) ** 2)
    step = gf.optim.Adam(0.02).minimize(loss, adapters.parameters())
    for i in (0, 2):
        theirs[i] = TheirLora(theirs[i], 2, 3.0)
    optimizer = torch.optim.Adam([p for p in theirs.parameters() if p.requires_grad], 0.02)
    with gf.Session(g) as session:
        assert model.load_pytorch(session, state) == gf.io.Mismatch()
        with torch.no_grad():
            for i in (0, 2):
                a, b = adapters.parameters(str(i))
                theirs[i].a.copy_(as_torch(session[a].T))
                assert not session[b].any()
        for _ in range(6):
            value, _ = session.run([loss, step])
            expected = torch.mean((theirs(as_torch(data)) - as_torch(target)) ** 2)
            np.testing.assert_allclose(value, expected.item(), 1e-5)
            optimizer.zero_grad()
            expected.backward()
            optimizer.step()
        for i in (0, 2):
            a, b = adapters.parameters(str(i))
            np.testing.assert_allclose(session[a].T, theirs[i].a.detach().numpy(), 1e-4, 1e-5)
            np.testing.assert_allclose(session[b].T, theirs[i].b.detach().numpy(), 1e-4, 1e-5)


def test_initial_updates(g):
    """A begins as PyTorch's layers do, and B with zeros; a table the other way round."""
    model = Net()
    adapters = nn.lora(model, ["table", "conv", "head"], 4)
    with gf.Session(g, seed=3) as session:
        state = adapters.module.state_dict(session)
    zero = {name for name, array in state.items() if not array.any()}
    assert zero == {"table.lora_A.weight", "conv.lora_B.weight", "head.lora_B.weight"}
    bound = np.abs(state["head.lora_A.weight"]).max()
    assert 0.6 * 6**-0.5 < bound <= 6**-0.5
    assert np.abs(state["conv.lora_A.weight"]).max() <= 24**-0.5


def test_dropout_of_updates_only_in_training(g, rng):
    layer = nn.Linear(50, 40)
    adapters = nn.lora(nn.Sequential(layer), "0", 3, dropout=0.5)
    data = rng.standard_normal((8, 50), np.float32)
    outputs = [layer(data), layer(data), layer(data, training=False), layer.eval()(data)]
    layer.train()
    adapters.module.eval()
    outputs.append(layer(data))
    with gf.Session(g) as session:
        scrambled(session, adapters, rng)
        a, b = (session[v] for v in adapters.parameters())
        found = session.run(outputs)
        base = data @ session[layer.weight] + session[layer.bias]
    assert np.abs(found[0] - found[1]).max() > 0.1
    for value in found[2:]:
        np.testing.assert_allclose(value, base + data @ a @ b / 3 * 3, 1e-4, 1e-4)


# Merging.


def test_a_merged_model_computes_the_same_and_loads_without_adapters(g, rng, tmp_path):
    model = Net()
    adapters = nn.lora(model, "*", 2, alpha=3)
    x = gf.placeholder(("batch", "time"), gf.int64)
    y = model(x, training=False)
    with gf.Graph() as other:
        plain = Net()
        z = plain(x := gf.placeholder(("batch", "time"), gf.int64, name="x"), training=False)
    with gf.Session(g, seed=1) as session, gf.Session(other) as inference:
        scrambled(session, adapters, rng)
        before = session.state_dict()
        (fed,) = g.placeholders
        expected = session.run(y, {fed: IDS})
        adapters.merge(session)
        np.testing.assert_allclose(session.run(y, {fed: IDS}), expected, 1e-5, 1e-5)
        model.save(session, tmp_path / "merged.safetensors")
        adapters.unmerge(session)
        after = session.state_dict()
        for name, array in before.items():
            np.testing.assert_array_equal(after[name], array, err_msg=name)
        assert plain.load(inference, tmp_path / "merged.safetensors") == gf.io.Mismatch()
        np.testing.assert_allclose(inference.run(z, {x: IDS}), expected, 1e-5, 1e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float16", 4e-3)])
def test_merging_in_other_dtypes(g, rng, dtype, tolerance):
    model = nn.Sequential(nn.Linear(6, 5, dtype=dtype))
    adapters = nn.lora(model, "*", 2)
    assert {v.dtype.name for v in adapters.parameters()} == {dtype}
    y = model(gf.asarray(rng.standard_normal((4, 6)).astype(dtype)))
    with gf.Session(g) as session:
        scrambled(session, adapters, rng)
        before, expected = session.state_dict(), session.run(y)
        adapters.merge(session)
        np.testing.assert_allclose(session.run(y), expected, tolerance, tolerance)
        adapters.unmerge(session)
        for name, array in session.state_dict().items():
            np.testing.assert_array_equal(array, before[name])


def test_merging_in_the_wrong_order(g, rng, tmp_path):
    model = nn.Sequential(nn.Linear(4, 3))
    adapters = nn.lora(model, "*", 2)
    with gf.Session(g) as session, gf.Session(g) as second:
        with pytest.raises(gf.SessionError, match="unmerge: the updates are not merged"):
            adapters.unmerge(session)
        adapters.merge(session)
        for call in (
            lambda: adapters.merge(session),
            lambda: adapters.save(session, tmp_path / "x"),
            lambda: adapters.load(session, tmp_path / "x"),
            lambda: adapters.save_peft(session, tmp_path),
            lambda: adapters.load_peft(session, tmp_path),
        ):
            with pytest.raises(gf.SessionError, match="the updates are merged") as caught:
                call()
            assert caught.value.fix == "unmerge(session) comes before"
        adapters.save(second, tmp_path / "x")  # which has contents of its own
        session[model[0].weight] = session[model[0].weight] + 1
        with pytest.raises(gf.SessionError, match=r'"sequential\.0\.weight" has changed since'):
            adapters.unmerge(session)
        scrambled(session, adapters, rng)  # as by a checkpoint from before
        adapters.save(session, tmp_path / "x")
        with pytest.raises(gf.SessionError, match="are not merged"):
            adapters.unmerge(session)


def test_removed_updates_are_left_out_of_further_calls(g, rng):
    model = nn.Sequential(nn.Linear(4, 3))
    data = rng.standard_normal((2, 4), np.float32)
    adapters = nn.lora(model, "*", 2)
    adapted = model(data)
    adapters.remove()
    adapters.remove()
    plain = model(data)
    second = nn.lora(model, "*", 1)
    with gf.Session(g) as session:
        scrambled(session, adapters, rng)
        first, other = session.run([adapted, plain])
        assert np.abs(first - other).max() > 0.01
        adapters.merge(session)
        np.testing.assert_allclose(session.run(plain), first, 1e-5, 1e-6)
    assert second.parameters()[0].name == "adapters_1.0.lora_A.weight"


# Models and their copies.


def test_a_model_that_is_one_layer(g, rng):
    layer = nn.Linear(4, 3)
    adapters = nn.lora(layer, "*", 2)
    assert list(adapters.layers) == ["linear"]
    with gf.Session(g) as session:
        scrambled(session, adapters, rng)
        adapters.merge(session)


def test_hooks_of_users_see_the_updated_output(g, rng):
    layer = nn.Linear(4, 3)
    seen = []
    layer.register_forward_hook(lambda module, args, output: seen.append(output))
    nn.lora(layer, "*", 2)
    layer.register_forward_hook(lambda module, args, output: gf.relu(output))
    assert layer(x=gf.placeholder((2, 4))).node.op.name == "relu"
    assert seen[0].node.op.name == "add"
    assert seen[0].node.inputs[1].node.loc.layer == "adapters.linear.lora_B"


def test_summary_and_text(g):
    model = Net()
    adapters = nn.lora(model, "head", 2)
    rows = str(model.summary(gf.TensorType(gf.int64, ("batch", "time")))).splitlines()
    assert rows[-1].split()[-1] == "0"
    assert len(rows) == 2 + len(model.modules())
    assert repr(adapters) == (
        "LowRankAdapters(1 layer, rank=2, alpha=2, dropout=0)  # 22 parameters"
    )
    assert "(lora_A): Linear(6 -> 2, bias=False)" in repr(adapters.module)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
@pytest.mark.parametrize("within", [True, False])
def test_copies_have_updates_of_their_own(rng, copied, within):
    with gf.Graph() as g:
        model = nn.Sequential(nn.Linear(4, 3))
        adapters = nn.lora(model, "*", 2, alpha=4)
    if within:
        with g:
            other, others = copied((model, adapters))
    else:
        other, others = copied((model, adapters))
    assert others.layers == {"0": other[0]}
    assert (others.rank, others.alpha, others.targets) == (2, 4.0, ("*",))
    assert not {id(v) for v in others.parameters()} & {id(v) for v in adapters.parameters()}
    assert other.parameters() == []
    graph = other[0].weight.graph
    with graph:
        y = other(rng.standard_normal((2, 4), np.float32))
    with gf.Session(graph) as session:
        before = session.run(y)
        scrambled(session, others, rng)
        value = session.run(y)
        assert np.abs(value - before).max() > 0.01
        others.merge(session)
        np.testing.assert_allclose(session.run(y), value, 1e-5, 1e-6)


def test_a_copy_of_only_the_model_trains(g):
    model = nn.Sequential(nn.Linear(4, 3))
    nn.lora(model, "*", 2)
    other = copy.deepcopy(model)
    step = gf.optim.SGD(0.1).minimize(gf.sum(other(np.ones((2, 4), np.float32))))
    assert [v.name for v, _ in step.pairs if v.trainable] == [
        "low_rank_update.lora_A.weight",
        "low_rank_update.lora_B.weight",
    ]
