"""State dicts of PyTorch: recognised, converted by each layer's rule, or refused."""

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import graphfw as gf
from graphfw import nn
from graphfw.nn.torch_rules import RenamedScopes


def numpy_state(**shapes):
    rng = np.random.default_rng(3)
    return {
        name.replace("__", "."): rng.standard_normal(shape, np.float32)
        for name, shape in shapes.items()
    }


def test_square_matrices_are_transposed_where_the_format_is_given():
    state = numpy_state(weight=(8, 8), bias=(8,))
    with gf.Graph() as g:
        layer = nn.Linear(8, 8)
    session = gf.Session(g)
    layer.load_state_dict(session, state, format="torch")
    np.testing.assert_array_equal(session[layer.weight], state["weight"].T)
    layer.load_state_dict(session, state, format="graphfw")
    np.testing.assert_array_equal(session[layer.weight], state["weight"])


def test_square_arrays_of_unknown_origin_are_refused():
    state = numpy_state(**{"0__weight": (8, 8), "0__bias": (8,), "1__weight_hh_l0": (8, 8)})
    state["1.weight_ih_l0"] = state["1.weight_hh_l0"] + 1
    with gf.Graph() as g:
        model = nn.Sequential(nn.Linear(8, 8), nn.RNN(8, 8, bias=False))
    session = gf.Session(g)
    before = session.state_dict()
    with pytest.raises(gf.CheckpointError) as caught:
        model.load_state_dict(session, state)
    assert caught.value.summary == (
        'Sequential.load_state_dict: "0.weight" is square, and nothing says whether it is '
        "transposed, as in PyTorch"
    )
    assert caught.value.fix.startswith('pass format="torch", or format="graphfw" if')
    np.testing.assert_array_equal(session[model[0].weight], before["sequential.0.weight"])
    # graphfw's own state dicts say what they are; arrays that are the same both ways may be either.
    assert model.load_state_dict(session, model.state_dict(session)) == gf.io.Mismatch()
    model.load_state_dict(session, {name: array * 0 for name, array in state.items()})


class Tower(nn.Module):
    """A model whose layers had other names in PyTorch twice."""

    def __init__(self):
        self.layers = nn.ModuleList([nn.Linear(2, 2), nn.BatchNorm1d(2)])
        self.head = nn.Linear(2, 3)

    def _torch_rules(self):
        table = {"body.block{i}.w": "layers.{i}", "body.{i}": "layers.{i}", "fc.out": "head"}
        return [RenamedScopes(table)]


def test_scopes_with_other_names(tmp_path):
    with gf.Graph() as g:
        model = nn.ModuleDict({"tower": Tower()})
    session = gf.Session(g)
    norm = dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (2,))
    shapes = {"0.weight": (2, 2), "0.bias": (2,), **{f"1.{name}": s for name, s in norm.items()}}
    new = {f"tower.body.{name}": shape for name, shape in shapes.items()}
    old = {f"tower.body.block{name[0]}.w{name[1:]}": shape for name, shape in shapes.items()}
    head = {"tower.fc.out.weight": (3, 2), "tower.fc.out.bias": (3,)}
    for names in (old, new):
        state = numpy_state(**names, **head)
        model.load_pytorch(session, state)
        np.testing.assert_array_equal(
            session[model["tower"].layers[0].weight], state[next(iter(names))].T
        )
    model.save_pytorch(session, tmp_path / "new")
    back = gf.io.read_pytorch(tmp_path / "new")
    del back["tower.body.1.num_batches_tracked"]
    assert back.keys() == state.keys()
    for name, array in state.items():
        np.testing.assert_array_equal(back[name], array, name)
    # What a table speaks of has the names of the table.
    names = {"first": "tower.layers.0", "": "tower"}
    model.save_pytorch(session, tmp_path / "named", names=names)
    named = gf.io.read_pytorch(tmp_path / "named")
    assert {"first.weight", "body.1.weight", "fc.out.weight"} < named.keys()
    assert model.load_pytorch(session, tmp_path / "named", names=names) == gf.io.Mismatch()


def test_one_other_shape_says_what_the_layout_is():
    with gf.Graph() as g:
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))
    session = gf.Session(g)
    state = {name: array + 1 for name, array in model.state_dict(session).items()}
    model.load_state_dict(session, state)
    np.testing.assert_array_equal(session[model[0].weight], state["0.weight"])


def test_a_whole_model_by_format():
    class Model(nn.Module):
        def __init__(self):
            self.embed = nn.Embedding(5, 4)
            self.attn = nn.MultiHeadAttention(4, 2)
            self.norm = nn.BatchNorm1d(4)
            self.body = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Conv1d(4, 4, 1))
            self.rnn = nn.GRU(4, 4)

    state = numpy_state(
        embed__weight=(5, 4),
        attn__in_proj_weight=(12, 4),
        attn__in_proj_bias=(12,),
        attn__out_proj__weight=(4, 4),
        attn__out_proj__bias=(4,),
        norm__weight=(4,),
        norm__bias=(4,),
        norm__running_mean=(4,),
        norm__running_var=(4,),
        body__0__weight=(4, 4),
        body__0__bias=(4,),
        body__2__weight=(4, 4, 1),
        body__2__bias=(4,),
        rnn__weight_ih_l0=(12, 4),
        rnn__weight_hh_l0=(12, 4),
        rnn__bias_ih_l0=(12,),
        rnn__bias_hh_l0=(12,),
    )
    state["norm.num_batches_tracked"] = np.array(7)
    with gf.Graph() as g:
        model = Model()
    session = gf.Session(g)
    model.load_state_dict(session, state, format="torch")
    found = model.state_dict(session)
    q, k, v = np.split(state["attn.in_proj_weight"], 3)
    for name, expected in {
        "embed.weight": state["embed.weight"],
        "attn.q_proj.weight": q.T,
        "attn.k_proj.weight": k.T,
        "attn.v_proj.weight": v.T,
        "attn.v_proj.bias": state["attn.in_proj_bias"][8:],
        "attn.out_proj.weight": state["attn.out_proj.weight"].T,
        "body.0.weight": state["body.0.weight"].T,
        "body.2.weight": state["body.2.weight"],
        "rnn.weight_hh_l0": state["rnn.weight_hh_l0"].T,
        "norm.running_var": state["norm.running_var"],
    }.items():
        np.testing.assert_array_equal(found[name], expected, err_msg=name)
    with pytest.raises(gf.CheckpointError) as caught:
        model.load_state_dict(session, state)
    assert caught.value.summary == (
        'Model.load_state_dict: "attn.in_proj_weight" is a name that PyTorch gives, '
        "and matrices may be transposed"
    )
    assert caught.value.fix.startswith('pass format="torch"')


def test_a_layer_may_have_a_rule_of_its_own():
    class Scale(nn.Module):
        def __init__(self):
            self.gain = gf.Variable([1.0, 1.0])

        def from_torch(self, state):
            return {"gain": np.exp(state["log_gain"])}

    with gf.Graph() as g:
        model = nn.Sequential(Scale())
    session = gf.Session(g)
    state = {"0.log_gain": np.zeros(2, np.float32)}
    model.load_state_dict(session, state, format="torch")
    np.testing.assert_array_equal(session["sequential.0.gain"], [1, 1])


def test_mistakes():
    with gf.Graph() as g:
        layer = nn.Linear(3, 2)
    session = gf.Session(g)
    with pytest.raises(gf.ArgumentError, match="there is no format 'pytorch'"):
        layer.load_state_dict(session, {}, format="pytorch")
    with pytest.raises(gf.CheckpointError) as caught:
        layer.load_state_dict(session, numpy_state(weight=(2, 3), bias=(2,)))
    assert caught.value.fix == '"weight" is transposed, as in PyTorch: pass format="torch"'


def square_model():
    with gf.Graph() as g:
        model = nn.Sequential(nn.Linear(4, 4), nn.RNNCell(4, 4), nn.Embedding(4, 4))
    session = gf.Session(g)
    return model, session, model.state_dict(session)


@pytest.mark.parametrize("join", ["update", "set", "or", "ior", "setdefault"])
def test_what_is_set_in_a_state_dict_is_of_unknown_origin(join):
    """PyTorch's users load a part of a model by `state.update(pretrained)`."""
    model, session, state = square_model()
    theirs = numpy_state(**{"0__weight": (4, 4)})
    if join == "set":
        state["0.weight"] = theirs["0.weight"]
    elif join == "or":
        state = state | theirs
    elif join == "ior":
        state |= theirs
    elif join == "setdefault":
        del state["0.weight"]
        state.setdefault("0.weight", theirs["0.weight"])
    else:
        state.update(theirs)
    before = model.state_dict(session)
    with pytest.raises(gf.CheckpointError, match="is square, and nothing says"):
        model.load_state_dict(session, state)
    model.load_state_dict(session, state, format="torch")
    now = model.state_dict(session)
    np.testing.assert_array_equal(now.pop("0.weight"), theirs["0.weight"].T)
    for name, array in now.items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, dict.copy, lambda s: s.copy(), lambda s: s | {},
               lambda s: pickle.loads(pickle.dumps(s))],
    ids=["copy", "deepcopy", "dict.copy", "method", "or", "pickle"],
)  # fmt: skip
def test_copies_of_a_state_dict(copied):
    model, session, state = square_model()
    if copied is dict.copy:  # is a plain one
        with pytest.raises(gf.CheckpointError, match="is square"):
            model.load_state_dict(session, copied(state))
    else:
        assert model.load_state_dict(session, copied(state)) == gf.io.Mismatch()


def test_a_session_refuses_square_matrices_of_layers_of_unknown_origin(tmp_path):
    model, session, before = square_model()
    state = {f"sequential.{name}": array + 1 for name, array in before.items()}
    save_file(state, tmp_path / "x")
    for load in (session.load_state_dict, lambda s, **how: session.restore(tmp_path / "x", **how)):
        for strict in (True, False):
            with pytest.raises(gf.CheckpointError, match="is square, and nothing"):
                load(state, strict=strict)
        with pytest.raises(gf.ArgumentError, match="the format \"graphfw\", and not 'torch'"):
            load(state, format="torch")
    np.testing.assert_array_equal(session[model[0].weight], before["0.weight"])
    session.load_state_dict(state, format="graphfw")
    with pytest.warns(UserWarning, match="written by another program"):
        session.restore(tmp_path / "x", format="graphfw")
    np.testing.assert_array_equal(session[model[0].weight], before["0.weight"] + 1)


def test_a_session_takes_what_sessions_have_written_and_what_is_clear(tmp_path):
    _, session, _ = square_model()
    state = session.state_dict()
    session.save(tmp_path / "x")
    session.restore(tmp_path / "x")
    session.load_state_dict(state)
    session.load_state_dict({name: np.asarray(array) * 2 for name, array in state.items()})
    only = {name: array for name, array in state.items() if "embedding" in name or ".2." in name}
    session.load_state_dict({name: array + 1 for name, array in only.items()}, strict=False)
    with gf.Graph() as g:
        nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    other = gf.Session(g)
    shapes = {v.name: v.shape for v in g.variables}
    other.load_state_dict({name: np.ones(s, np.float32) for name, s in shapes.items()})


def test_layers_of_functions_and_copies_are_known_too():
    model, session, _ = square_model()
    functions = gf.function(lambda x: nn.Linear(4, 4)(x))
    functions(np.ones((1, 4), np.float32))
    graph = pickle.loads(pickle.dumps(model[0].weight)).graph
    with gf.Graph() as copies:
        copy.deepcopy(model)
    for other in (functions.session, gf.Session(graph), gf.Session(copies)):
        state = {n: a + np.float32(1) * np.arange(a.size, dtype="f4").reshape(a.shape)
                 for n, a in other.state_dict().items() if a.ndim == 2}  # fmt: skip
        with pytest.raises(gf.CheckpointError, match="is square"):
            other.load_state_dict(state, strict=False)
    assert session.graph is model[0].weight.graph


# Beside PyTorch.


def pairs():
    torch = pytest.importorskip("torch")
    t = torch.nn
    return {
        "linear": (lambda: nn.Linear(8, 8), lambda: t.Linear(8, 8), (3, 8)),
        "conv": (lambda: nn.Conv2d(4, 4, 3), lambda: t.Conv2d(4, 4, 3), (2, 4, 5, 5)),
        "transpose": (
            lambda: nn.ConvTranspose2d(4, 4, 3),
            lambda: t.ConvTranspose2d(4, 4, 3),
            (2, 4, 5, 5),
        ),
        "norm": (
            lambda: nn.Sequential(nn.BatchNorm2d(4), nn.GroupNorm(2, 4, axis=1)),
            lambda: t.Sequential(t.BatchNorm2d(4), t.GroupNorm(2, 4)),
            (2, 4, 5, 5),
        ),
        "layer": (lambda: nn.LayerNorm(8), lambda: t.LayerNorm(8), (3, 8)),
        "prelu": (lambda: nn.PReLU(4, axis=1), lambda: t.PReLU(4), (2, 4, 5)),
        "rnn": (lambda: nn.RNN(4, 4), lambda: t.RNN(4, 4), (5, 2, 4)),
        "lstm": (
            lambda: nn.LSTM(4, 4, num_layers=2, bidirectional=True),
            lambda: t.LSTM(4, 4, num_layers=2, bidirectional=True),
            (5, 2, 4),
        ),
        "gru": (lambda: nn.GRU(4, 4), lambda: t.GRU(4, 4), (5, 2, 4)),
        "gru cell": (lambda: nn.GRUCell(4, 4), lambda: t.GRUCell(4, 4), (2, 4)),
    }


@pytest.mark.parametrize(
    "name",
    sorted(
        ["linear", "conv", "transpose", "norm", "layer", "prelu", "rnn", "lstm", "gru", "gru cell"]
    ),
)
def test_outputs_are_those_of_pytorch(name, rng):
    torch = pytest.importorskip("torch")
    make, make_theirs, shape = pairs()[name]
    theirs = make_theirs().eval()
    data = rng.standard_normal(shape).astype(np.float32)
    with gf.Graph() as g, gf.training(False):
        layer = make()
        state = [gf.zeros((shape[0], 4))] if name == "gru cell" else []
        y = layer(gf.placeholder(shape, name="x"), *state)
    with gf.Session(g) as session:
        mismatch = layer.load_state_dict(session, theirs.state_dict())
        assert not mismatch.missing
        assert not mismatch.extra
        found = session.run(y[0] if isinstance(y, tuple) else y, {"x": data})
    with torch.no_grad():
        expected = theirs(torch.tensor(data))
    expected = expected[0] if isinstance(expected, tuple) else expected
    np.testing.assert_allclose(found, expected.numpy(), 1e-4, 1e-5)


@pytest.mark.parametrize("dims", [{}, {"key_dim": 6, "value_dim": 5}])
def test_attention_is_pytorch_s(dims, rng):
    torch = pytest.importorskip("torch")
    theirs_dims = {"kdim": 6, "vdim": 5} if dims else {}
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True, **theirs_dims).eval()
    q = rng.standard_normal((2, 3, 8)).astype(np.float32)
    k = rng.standard_normal((2, 4, 6 if dims else 8)).astype(np.float32)
    v = rng.standard_normal((2, 4, 5 if dims else 8)).astype(np.float32)
    with gf.Graph() as g:
        layer = nn.MultiHeadAttention(8, 2, **dims)
        y = layer(gf.asarray(q), gf.asarray(k), gf.asarray(v))
    with gf.Session(g) as session:
        layer.load_state_dict(session, theirs.state_dict())
        found = session.run(y)
    with torch.no_grad():
        expected = theirs(*map(torch.tensor, (q, k, v)))[0].numpy()
    np.testing.assert_allclose(found, expected, 1e-4, 1e-5)


def test_bfloat16_and_parameters_that_want_gradients():
    torch = pytest.importorskip("torch")
    theirs = torch.nn.Linear(3, 3, dtype=torch.bfloat16)
    with gf.Graph() as g:
        layer = nn.Linear(3, 3, dtype="bfloat16")
    session = gf.Session(g)
    layer.load_state_dict(session, dict(theirs.named_parameters()))
    expected = theirs.weight.detach().float().numpy().T
    assert session[layer.weight].dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(session[layer.weight].astype(np.float32), expected)


def test_a_session_refuses_what_only_layers_can_convert(tmp_path):
    torch = pytest.importorskip("torch")
    with gf.Graph() as g:
        nn.Linear(8, 8, name="model")
    state = {f"model.{name}": t for name, t in torch.nn.Linear(8, 8).state_dict().items()}
    session = gf.Session(g)
    with pytest.raises(gf.CheckpointError, match="holds PyTorch's tensors") as caught:
        session.load_state_dict(state)
    assert "model.load_state_dict(session, state)" in caught.value.fix


def test_a_file_of_pytorch_s_is_refused(tmp_path):
    state = numpy_state(model__weight=(8, 8), model__bias=(8,))
    save_file(state, tmp_path / "x", {"format": "pt"})
    with gf.Graph() as g:
        layer = nn.Linear(8, 8, name="model")
    session = gf.Session(g)
    before = session[layer.weight]
    with pytest.raises(gf.CheckpointError, match="holds PyTorch's weights") as caught:
        session.restore(tmp_path / "x")
    assert "model.load_pytorch(session, path)" in caught.value.fix
    np.testing.assert_array_equal(session[layer.weight], before)


def test_tensors_of_pytorch_s_in_a_state_of_graphfw_s():
    torch = pytest.importorskip("torch")
    model, session, state = square_model()
    theirs = torch.nn.Linear(4, 4).state_dict()
    before = model.state_dict(session)
    state.update({f"0.{name}": tensor for name, tensor in theirs.items()})
    model.load_state_dict(session, state)
    now = model.state_dict(session)
    np.testing.assert_array_equal(now.pop("0.weight"), theirs["weight"].numpy().T)
    np.testing.assert_array_equal(now.pop("0.bias"), theirs["bias"].numpy())
    for name, array in now.items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)
    mixed = dict(state)  # of whose arrays nothing is known
    with pytest.raises(gf.CheckpointError) as caught:
        model.load_state_dict(session, mixed)
    assert '"0.weight" is a PyTorch tensor and "1.weight_ih" is not' in caught.value.summary
    assert caught.value.fix.startswith("load them in two calls with strict=False; or pass format=")


def test_a_square_tensor_of_pytorch_s_is_no_layer_s_weight():
    torch = pytest.importorskip("torch")
    model, session, _ = square_model()
    square = torch.nn.Linear(4, 4).weight
    with pytest.raises(gf.ArgumentError, match=r"weight\" is given a square tensor of PyTorch's"):
        session["sequential.0.weight"] = square
    with gf.Graph(), pytest.raises(gf.ArgumentError) as caught:
        nn.Linear(4, 4, weight_init=square)
    assert caught.value.fix.startswith("pass tensor.T.numpy(force=True) if it is the weight of")
    session["sequential.0.weight"] = square.T.numpy(force=True)
    session["sequential.2.weight"] = square.detach()  # of an embedding, as PyTorch has it
    with gf.Graph():
        nn.Linear(4, 2, weight_init=torch.zeros((4, 2)))
