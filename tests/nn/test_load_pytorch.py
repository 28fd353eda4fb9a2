"""`load_pytorch`: other people's weights in a model's variables."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import graphfw as gf
from graphfw import nn


class Block(nn.Module):
    def __init__(self, width):
        self.attn = nn.MultiHeadAttention(width, 2)
        self.mlp = nn.Linear(width, width)


class Net(nn.Module):
    """A model with layers whose layouts differ from PyTorch's."""

    def __init__(self):
        self.embed = nn.Embedding(5, 4)
        self.layers = nn.ModuleList([Block(4), Block(4)])
        self.norm = nn.BatchNorm1d(4)
        self.rnn = nn.LSTM(4, 4)


def made(make):
    with gf.Graph() as g:
        model = make()
    return model, gf.Session(g)


def weights(**shapes):
    rng = np.random.default_rng(3)
    return {
        name.replace("__", "."): rng.standard_normal(shape, np.float32)
        for name, shape in shapes.items()
    }


LINEAR = {"weight": (2, 3), "bias": (2,)}
FLAT = {"weight": "0.weight", "bias": "0.bias"}


def linear():
    return made(lambda: nn.Sequential(nn.Linear(3, 2)))


def test_a_file_is_converted_by_each_layer(tmp_path):
    state = weights(**{"0__weight": (2, 3), "0__bias": (2,)})
    save_file(state, tmp_path / "model.safetensors", {"format": "pt"})
    for source in (tmp_path / "model.safetensors", str(tmp_path), state):
        model, session = linear()
        assert model.load_pytorch(session, source) == gf.io.Mismatch()
        np.testing.assert_array_equal(session[model[0].weight], state["0.weight"].T)
        np.testing.assert_array_equal(session[model[0].bias], state["0.bias"])


@pytest.mark.parametrize(
    ("stored", "kept", "fits"),
    [
        ("float16", "float32", True),
        ("bfloat16", "float32", True),
        ("float32", "float64", True),
        ("float64", "float32", False),
        ("float32", "bfloat16", False),
        ("float16", "bfloat16", False),
        ("bfloat16", "float16", False),
        ("int32", "float64", False),
        ("bfloat16", "bfloat16", True),
    ],
)
def test_floats_become_wider_and_never_narrower(stored, kept, fits):
    model, session = made(lambda: nn.Linear(3, 2, bias=False, dtype=kept))
    array = np.arange(6).reshape(2, 3).astype(getattr(ml_dtypes, stored, stored))
    if fits:
        model.load_pytorch(session, {"weight": array})
        np.testing.assert_array_equal(session[model.weight].astype("f8"), array.T.astype("f8"))
        assert session[model.weight].dtype == model.weight.dtype.dtype
        return
    with pytest.raises(gf.CheckpointError) as caught:
        model.load_pytorch(session, {"weight": array})
    assert f"expected {kept}[3, 2], found {stored}[3, 2]" in caught.value.summary
    assert caught.value.fix == (
        f'build the model in {stored}, or round "weight" and pass a dict: array.astype("{kept}")'
    )


def test_matrices_that_are_not_transposed_as_pytorch_s():
    """GPT-2's Conv1D has the layout of graphfw's Linear."""
    model, session = linear()
    state = weights(**{"0__weight": (3, 2), "0__bias": (2,)})
    with pytest.raises(gf.CheckpointError) as caught:
        model.load_pytorch(session, state)
    assert caught.value.fix == (
        '"0.weight" is not transposed there, as it would be in PyTorch: pass array.T'
    )
    model.load_pytorch(session, {name: array.T for name, array in state.items()})


def test_everything_that_does_not_match_is_listed_with_near_names():
    model, session = made(lambda: nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)))
    before = model.state_dict(session)
    state = weights(**{"0__wieght": (2, 3), "0__bias": (4,), "1__bias": (2,), "head": (7,)})
    with pytest.raises(gf.CheckpointError) as caught:
        model.load_pytorch(session, state)
    assert caught.value.summary.splitlines() == [
        "the entries of 'the state' are not the expected ones: 2 missing, 2 extra, 1 mismatched",
        "  missing     '0.weight'  float32[3, 2]  did you mean \"0.wieght\"?",
        "  missing     '1.weight'  float32[2, 2]  did you mean \"0.wieght\"?",
        "  extra       '0.wieght'  float32[2, 3]",
        "  extra       'head'  float32[7]",
        "  mismatched  '0.bias'  expected float32[2], found float32[4]",
    ]
    for name, array in model.state_dict(session).items():
        np.testing.assert_array_equal(array, before[name])
    del state["0.bias"]
    mismatch = model.load_pytorch(session, state, strict=False)
    assert mismatch.missing == ("0.bias", "0.weight", "1.weight")
    assert mismatch.extra == ("0.wieght", "head")
    np.testing.assert_array_equal(session[model[1].bias], state["1.bias"])


def test_extra_entries_may_be_left_out():
    model, session = linear()
    state = weights(**{"0__weight": (2, 3), "0__bias": (2,), "head": (1,)})
    with pytest.raises(gf.CheckpointError, match="1 extra") as caught:
        model.load_pytorch(session, state)
    assert "ignore_extra=True" in caught.value.fix
    assert model.load_pytorch(session, state, ignore_extra=True).extra == ("head",)
    del state["0.bias"]
    with pytest.raises(gf.CheckpointError, match="1 missing"):
        model.load_pytorch(session, state, ignore_extra=True)


@pytest.mark.parametrize(
    ("begin", "names"),
    [("model.net.", '{"model.net": ""}'), ("", '{"": "0"}')],
)
def test_a_scope_too_many_is_found(begin, names):
    state = {begin + name: array for name, array in weights(**LINEAR).items()}
    model, session = linear() if not begin else made(lambda: nn.Linear(3, 2))
    with pytest.raises(gf.CheckpointError) as caught:
        model.load_pytorch(session, state)
    assert caught.value.fix.startswith(f"pass names={names}, or pass strict=False")
    model.load_pytorch(session, state, names=eval(names))


LAYER = "bert.encoder.layer.{i}"
BERT = {
    f"{LAYER}.attention.self.query": "layers.{i}.attn.q_proj",
    f"{LAYER}.attention.self.key": "layers.{i}.attn.k_proj",
    f"{LAYER}.attention.self.value": "layers.{i}.attn.v_proj",
    f"{LAYER}.attention.output.dense": "layers.{i}.attn.out_proj",
    f"{LAYER}.output.dense": "layers.{i}.mlp",
    "bert.pooler": None,
}


def bert():
    shapes = {}
    for row, target in BERT.items():
        for i in range(2 if target else 0):
            name = row.format(i=i).replace(".", "__")
            shapes |= {f"{name}__weight": (4, 4), f"{name}__bias": (4,)}
    return weights(**shapes, bert__pooler__weight=(1,))


def bert_model():
    return made(lambda: nn.ModuleDict({"layers": nn.ModuleList([Block(4), Block(4)])}))


def test_names_of_hugging_face_s_bert():
    state = bert()
    model, session = bert_model()
    model.load_pytorch(session, state, names=BERT)
    found = model.state_dict(session)
    assert len(found) == 20
    for i in range(2):
        theirs = f"bert.encoder.layer.{i}"
        np.testing.assert_array_equal(
            found[f"layers.{i}.attn.k_proj.weight"],
            state[f"{theirs}.attention.self.key.weight"].T,
        )
        np.testing.assert_array_equal(
            found[f"layers.{i}.mlp.bias"], state[f"{theirs}.output.dense.bias"]
        )


def test_names_by_a_function():
    model, session = linear()
    state = weights(**LINEAR, head=(1,))
    model.load_pytorch(session, state, names=FLAT.get)
    np.testing.assert_array_equal(session[model[0].bias], state["bias"])


def mistake(names, state=None):
    model, session = linear()
    with pytest.raises(gf.GraphfwError) as caught:
        model.load_pytorch(session, state or weights(**LINEAR), names=names)
    assert f"{Path(__file__).name}:" in str(caught.value)  # at the user's line
    return caught.value.summary.removeprefix("Sequential.load_pytorch: "), caught.value.fix


def test_wrong_tables():
    assert mistake({"wieght": "0.weight"}) == (
        'names has "wieght", and no entry begins so',
        'did you mean "weight"?',
    )
    assert mistake({"weight": "0.{i}.weight"})[0] == (
        'names has the row "weight": "0.{i}.weight", whose {i} is not on the left'
    )
    assert "is there twice" in mistake({"{i}.{i}": "{i}"})[0]
    assert "is no name" in mistake({"{}": "a"})[0]
    assert mistake({"weight": 3})[0] == "names has the row 'weight': 3"
    assert mistake(["weight"])[0] == "names is a list"
    assert mistake(lambda name: 3)[0] == 'names gives an int for "weight"'
    assert mistake({"weight": "0.bias", "bias": "0.bias"}) == (
        'names gives "0.bias" for "weight" and for "bias"',
        "leave one of them out: give None for its name",
    )


def test_wrong_arguments(tmp_path):
    model, session = linear()
    with pytest.raises(gf.ArgumentError) as caught:
        model.load_pytorch(tmp_path, session)
    assert caught.value.fix == "the session comes first: load_pytorch(session, path)"
    with pytest.raises(gf.ArgumentError, match="the state is one of graphfw's"):
        model.load_pytorch(session, model.state_dict(session))
    with pytest.raises(gf.CheckpointError) as caught:
        model.load_pytorch(session, {"epoch": 3, "net": weights(**LINEAR)})
    assert caught.value.summary == (
        'Sequential.load_pytorch: the entry "epoch" is an int, no array'
    )
    assert caught.value.fix == "pass the dict of the weights: gf.io.read_pytorch(path)['net']"
    with pytest.raises(gf.CheckpointError, match="there is no such file"):
        model.load_pytorch(session, tmp_path / "none")


class Tied(nn.Module):
    def __init__(self):
        self.encoder = nn.Linear(3, 3, bias=False)
        self.decoder = nn.Linear(3, 3, bias=False)
        self.decoder.weight = self.encoder.weight


class Shared(nn.Module):
    def __init__(self):
        self.first = nn.Linear(3, 3, bias=False)
        self.last = self.first


@pytest.mark.parametrize("kind", [Tied, Shared])
def test_a_variable_of_two_names(kind):
    model, session = made(kind)
    (first, variable), *others = model.named_variables()
    assert not others
    last = "decoder.weight" if kind is Tied else "last.weight"
    array = weights(w=(3, 3))["w"]
    for state in ({first: array, last: array}, {last: array + 1}, {first: array + 2},
                  {first: array + 3, last: array + 3}):  # fmt: skip
        assert model.load_pytorch(session, state) == gf.io.Mismatch()
        np.testing.assert_array_equal(session[variable], next(iter(state.values())).T)
        session[variable] = session[variable] * 0
        model.load_state_dict(session, state, format="torch")
        np.testing.assert_array_equal(session[variable], next(iter(state.values())).T)
    with pytest.raises(gf.CheckpointError) as caught:
        model.load_pytorch(session, {first: array, last: array + 1})
    assert f'"{first}" and "{last}" are one variable, and' in caught.value.summary


# Beside PyTorch.


def their_net():
    torch = pytest.importorskip("torch")
    t = torch.nn

    class TheirBlock(t.Module):
        def __init__(self, width):
            super().__init__()
            self.attn = t.MultiheadAttention(width, 2)
            self.mlp = t.Linear(width, width)

    class TheirNet(t.Module):
        def __init__(self):
            super().__init__()
            self.embed = t.Embedding(5, 4)
            self.layers = t.ModuleList([TheirBlock(4), TheirBlock(4)])
            self.norm = t.BatchNorm1d(4)
            self.rnn = t.LSTM(4, 4)

    return torch, TheirNet()


@pytest.mark.parametrize("kind", ["pt", "state", "sharded"])
def test_a_net_of_pytorch_s(tmp_path, kind):
    torch, theirs = their_net()
    state = theirs.state_dict()
    source = {"pt": tmp_path / "x.pt", "state": state, "sharded": tmp_path}[kind]
    if kind == "pt":
        torch.save(state, source)
    if kind == "sharded":
        names = list(state)
        for number, half in enumerate((names[::2], names[1::2])):
            torch.save({name: state[name] for name in half}, tmp_path / f"{number}.bin")
        files_of = {name: f"{i % 2}.bin" for i, name in enumerate(names)}
        (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": files_of}))
    model, session = made(Net)
    assert model.load_pytorch(session, source) == gf.io.Mismatch()
    found = model.state_dict(session)
    np.testing.assert_array_equal(
        found["layers.1.attn.v_proj.weight"], state["layers.1.attn.in_proj_weight"][8:].numpy().T
    )
    np.testing.assert_array_equal(found["rnn.weight_hh_l0"], state["rnn.weight_hh_l0"].numpy().T)


def test_tied_weights_of_pytorch_s(tmp_path):
    torch = pytest.importorskip("torch")
    theirs = torch.nn.ModuleDict(
        {name: torch.nn.Linear(3, 3, bias=False) for name in ("encoder", "decoder")}
    )
    theirs["decoder"].weight = theirs["encoder"].weight
    torch.save(theirs.state_dict(), tmp_path / "x.pt")
    model, session = made(Tied)
    for load in (
        lambda: model.load_pytorch(session, tmp_path / "x.pt"),
        lambda: model.load_state_dict(session, theirs.state_dict()),
    ):
        assert load() == gf.io.Mismatch()
        expected = theirs["encoder"].weight.detach().numpy().T
        np.testing.assert_array_equal(session[model.encoder.weight], expected)
        session[model.encoder.weight] = expected * 0
