"""A module's variables in files: its own, and with PyTorch's names and layouts."""

import ml_dtypes
import numpy as np
import pytest

import graphfw as gf
from graphfw import nn
from graphfw.io import read_checkpoint, read_pytorch
from tests.nn.test_from_torch import pairs
from tests.nn.test_load_pytorch import (
    BERT,
    Net,
    Shared,
    Tied,
    bert,
    bert_model,
    linear,
    made,
    their_net,
    weights,
)


def equal(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
        assert found[name].dtype == array.dtype


# PyTorch's layout.


def test_what_is_loaded_is_saved_again(tmp_path):
    state = weights(**{"0__weight": (2, 3), "0__bias": (2,)})
    model, session = linear()
    model.load_pytorch(session, state)
    model.save_pytorch(session, tmp_path / "x.safetensors")
    found, metadata = read_checkpoint(tmp_path / "x.safetensors")
    equal(found, state)
    assert metadata == {"format": "pt"}
    with pytest.raises(gf.CheckpointError, match="holds PyTorch's weights"):
        session.restore(tmp_path / "x.safetensors")


def test_a_whole_model_and_back(tmp_path):
    model, session = made(Net)
    model.save_pytorch(session, tmp_path / "x.safetensors")
    theirs = read_pytorch(tmp_path)
    assert theirs["layers.0.attn.in_proj_weight"].shape == (12, 4)
    assert theirs["norm.num_batches_tracked"] == 0
    assert theirs["rnn.weight_ih_l0"].shape == (16, 4)
    other, others = made(Net)
    assert other.load_pytorch(others, tmp_path) == gf.io.Mismatch()
    equal(other.state_dict(others), model.state_dict(session))


@pytest.mark.parametrize("sizes", [{"key_dim": 3, "value_dim": 5}, {"value_dim": 4}])
def test_attention_with_sizes_of_its_own(tmp_path, sizes):
    model, session = made(lambda: nn.MultiHeadAttention(6, 2, **sizes))
    model.save_pytorch(session, tmp_path / "x")
    names = ("k_proj_weight", "q_proj_weight", "v_proj_weight", "in_proj_bias")
    assert set(names) < read_pytorch(tmp_path / "x").keys()
    other, others = made(lambda: nn.MultiHeadAttention(6, 2, **sizes))
    other.load_pytorch(others, tmp_path / "x")
    equal(other.state_dict(others), model.state_dict(session))


def test_names_inside_of_a_layer_are_kept_apart(tmp_path):
    """Hugging Face's attention has three maps where PyTorch's own has one."""
    state = bert()
    model, session = bert_model()
    model.load_pytorch(session, state, names=BERT)
    model.save_pytorch(session, tmp_path / "x", names=BERT)
    del state["bert.pooler.weight"]
    equal(read_pytorch(tmp_path / "x"), state)
    model.save_pytorch(session, tmp_path / "y", names={"h.{i}": "layers.{i}"})
    assert read_pytorch(tmp_path / "y")["h.1.attn.in_proj_weight"].shape == (12, 4)
    names = {"h.{i}.qkv.w": "layers.{i}.attn.in_proj_weight", "h.{i}": "layers.{i}"}
    model.save_pytorch(session, tmp_path / "y", names=names)
    found = read_pytorch(tmp_path / "y")
    assert found["h.0.qkv.w"].shape == (12, 4)
    assert "h.0.attn.out_proj.bias" in found
    other, others = bert_model()
    other.load_pytorch(others, tmp_path / "y", names=names)
    equal(other.state_dict(others), model.state_dict(session))


def test_a_table_of_names_is_read_backwards(tmp_path):
    model, session = linear()
    model.save_pytorch(session, tmp_path / "y", names={"net.fc": "0", "head": None})
    assert sorted(read_pytorch(tmp_path / "y")) == ["net.fc.bias", "net.fc.weight"]
    model.save_pytorch(session, tmp_path / "y", names=lambda name: f"x.{name}")
    assert sorted(read_pytorch(tmp_path / "y")) == ["x.0.bias", "x.0.weight"]
    with pytest.raises(gf.ArgumentError) as caught:
        model.save_pytorch(session, tmp_path / "y", names={"a": "0", "b": "0"})
    assert caught.value.summary == 'Sequential.save_pytorch: names gives "0" for "a" and for "b"'


@pytest.mark.parametrize("kind", [Tied, Shared])
def test_a_variable_of_two_names_is_written_under_both(tmp_path, kind):
    model, session = made(kind)
    model.save_pytorch(session, tmp_path / "x")
    first, last = read_pytorch(tmp_path / "x").values()
    np.testing.assert_array_equal(first, last)
    model.load_pytorch(session, tmp_path / "x")


def test_a_layer_of_ones_own_needs_both_directions(tmp_path):
    class Scale(nn.Module):
        def __init__(self):
            self.gain = gf.Variable([1.0, 2.0])

        def from_torch(self, state):
            return {"gain": np.exp(state["log_gain"])}

    class Both(Scale):
        def to_torch(self, state):
            return {"log_gain": np.log(state["gain"])}

    model, session = made(lambda: nn.Sequential(Scale()))
    with pytest.raises(gf.ArgumentError) as caught:
        model.save_pytorch(session, tmp_path / "x")
    assert caught.value.summary == (
        "Sequential.save_pytorch: Scale defines from_torch and no to_torch"
    )
    model, session = made(lambda: nn.Sequential(Both()))
    model.save_pytorch(session, tmp_path / "x")
    np.testing.assert_allclose(read_pytorch(tmp_path / "x")["0.log_gain"], np.log([1, 2]), 1e-6)


def test_a_dtype_that_no_file_of_pytorch_s_has(tmp_path):
    model, session = made(lambda: nn.Linear(3, 2, dtype="complex128", weight_init=np.ones((3, 2)),
                                            bias=False))  # fmt: skip
    with pytest.raises(gf.CheckpointError, match="'weight' is of complex128"):
        model.save_pytorch(session, tmp_path / "x")


# Files of its own.


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_a_module_and_back(tmp_path, dtype):
    def make():
        return nn.Sequential(nn.Linear(3, 3, dtype=dtype), nn.Embedding(4, 3, dtype=dtype))

    model, session = made(make)
    model.save(session, tmp_path / "x")
    assert sorted(read_checkpoint(tmp_path / "x")[0]) == ["0.bias", "0.weight", "1.weight"]
    with gf.Graph() as g:
        nn.Linear(2, 2)
        other = make()
    others = gf.Session(g)
    assert other.load(others, tmp_path / "x") == gf.io.Mismatch()
    equal(other.state_dict(others), model.state_dict(session))


def test_mismatched_files(tmp_path):
    model, session = linear()
    model.save(session, tmp_path / "x")
    other, others = made(lambda: nn.Sequential(nn.Linear(3, 4, bias=False), nn.Linear(3, 2)))
    with pytest.raises(gf.CheckpointError) as caught:
        other.load(others, tmp_path / "x")
    assert caught.value.summary.splitlines() == [
        f"the entries of '{tmp_path}/x' are not the expected ones: "
        "2 missing, 1 extra, 1 mismatched",
        "  missing     '1.bias'  float32[2]  did you mean \"0.bias\"?",
        "  missing     '1.weight'  float32[3, 2]",
        "  extra       '0.bias'  float32[2]",
        "  mismatched  '0.weight'  expected float32[3, 4], found float32[3, 2]",
    ]
    small, smalls = made(lambda: nn.Sequential(nn.Linear(3, 2, bias=False)))
    assert small.load(smalls, tmp_path / "x", ignore_extra=True).extra == ("0.bias",)
    assert small.load(smalls, tmp_path / "x", strict=False).extra == ("0.bias",)


def test_other_files_are_refused(tmp_path):
    model, session = linear()
    model.save_pytorch(session, tmp_path / "pytorch")
    session.save(tmp_path / "session")
    model.save(session, tmp_path / "module")
    for name in ("pytorch", "session"):
        with pytest.raises(gf.CheckpointError, match="was not written by a module's save"):
            model.load(session, tmp_path / name)
    with pytest.raises(
        gf.CheckpointError, match="holds graphfw's weights, not PyTorch's"
    ) as caught:
        model.load_pytorch(session, tmp_path / "module")
    assert "model.load(session, path)" in caught.value.fix
    content = bytearray((tmp_path / "module").read_bytes())
    content[-1] ^= 1
    (tmp_path / "module").write_bytes(content)
    with pytest.raises(gf.CheckpointError, match=r"bytes 0 to 24 of entry '0\.weight' are"):
        model.load(session, tmp_path / "module")


def test_wrong_arguments(tmp_path):
    model, session = linear()
    for method in ("save", "load", "save_pytorch"):
        with pytest.raises(gf.ArgumentError) as caught:
            getattr(model, method)(tmp_path / "x", session)
        assert caught.value.fix == f"the session comes first: {method}(session, path)"
        other = gf.Session(gf.Graph())
        with pytest.raises(gf.ArgumentError, match='has no variable "sequential'):
            getattr(model, method)(other, tmp_path / "x")
    with pytest.raises(gf.CheckpointError, match="there is no folder"):
        model.save(session, tmp_path / "none" / "x")


# Beside PyTorch.


@pytest.mark.parametrize(
    "name",
    ["linear", "conv", "transpose", "norm", "layer", "prelu", "rnn", "lstm", "gru", "gru cell",
     "net", "attention", "attention of sizes"],
)  # fmt: skip
def test_pytorch_loads_what_is_saved(tmp_path, name):
    torch = pytest.importorskip("torch")
    load_file = pytest.importorskip("safetensors.torch").load_file
    attention = torch.nn.MultiheadAttention
    if name == "net":
        make, (_, theirs) = Net, their_net()
    elif name.startswith("attention"):
        sizes = {"kdim": 6, "vdim": 5} if name != "attention" else {}
        theirs = attention(8, 2, **sizes)
        own = {"key_dim": 6, "value_dim": 5} if sizes else {}

        def make():
            return nn.MultiHeadAttention(8, 2, **own)
    else:
        make, make_theirs, _ = pairs()[name]
        theirs = make_theirs()
    model, session = made(make)
    model.save_pytorch(session, tmp_path / "x")
    theirs.load_state_dict(load_file(tmp_path / "x"), strict=True)
    other, others = made(make)
    other.load_pytorch(others, theirs.state_dict())
    equal(other.state_dict(others), model.state_dict(session))


@pytest.mark.parametrize(
    ("make", "name", "arguments", "options"),
    [
        (nn.RMSNorm, "RMSNorm", (4,), {}),
        (nn.InstanceNorm2d, "InstanceNorm2d", (4,), {"affine": True, "track_running_stats": True}),
        (nn.InstanceNorm1d, "InstanceNorm1d", (4,), {}),
        (nn.BatchNorm1d, "BatchNorm1d", (4,), {"momentum": None}),
        (nn.BatchNorm1d, "BatchNorm1d", (4,), {"track_running_stats": False}),
        (nn.Conv3d, "Conv3d", (4, 6, 3), {"groups": 2}),
        (nn.ConvTranspose1d, "ConvTranspose1d", (4, 6, 3), {}),
        (nn.LSTMCell, "LSTMCell", (4, 3), {}),
        (nn.RNN, "RNN", (4, 3), {"bias": False, "bidirectional": True}),
        (nn.MultiHeadAttention, "MultiheadAttention", (4, 2), {"bias": False}),
        (nn.Embedding, "Embedding", (4, 3), {}),
    ],
)
def test_pytorch_loads_each_layer(tmp_path, make, name, arguments, options):
    torch = pytest.importorskip("torch")
    load_file = pytest.importorskip("safetensors.torch").load_file
    theirs = getattr(torch.nn, name)(*arguments, **options)
    model, session = made(lambda: make(*arguments, **options))
    model.save_pytorch(session, tmp_path / "x")
    theirs.load_state_dict(load_file(tmp_path / "x"), strict=True)
    assert model.load_pytorch(session, theirs.state_dict()) == gf.io.Mismatch()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_dtypes_beside_pytorch(tmp_path, dtype):
    torch = pytest.importorskip("torch")
    load_file = pytest.importorskip("safetensors.torch").load_file
    theirs = torch.nn.Linear(3, 2, dtype=getattr(torch, dtype))
    model, session = made(lambda: nn.Linear(3, 2, dtype=dtype))
    torch.save(theirs.state_dict(), tmp_path / "x.pt")
    model.load_pytorch(session, tmp_path / "x.pt")
    assert session[model.weight].dtype == getattr(ml_dtypes, dtype, dtype)
    model.save_pytorch(session, tmp_path / "x")
    for name, tensor in load_file(tmp_path / "x").items():
        assert torch.equal(tensor, theirs.state_dict()[name])
