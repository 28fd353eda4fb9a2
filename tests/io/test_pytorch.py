"""Files of PyTorch's weights: what is read, and what is refused without being run."""

import json
import os
import pickle
import zipfile

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import graphfw as gf
from graphfw.errors import CheckpointError
from graphfw.io import read_pytorch, write_checkpoint
from graphfw.io.pickles import PickleError, PickleRefusedError, read_pickle


def archive(path, pickled, storages=(), root="archive", **others):
    """Write a zip archive as torch.save does."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{root}/data.pkl", pickled)
        for key, content in dict(storages).items():
            file.writestr(f"{root}/data/{key}", content)
        for name, content in others.items():
            file.writestr(f"{root}/{name}", content)
    return path


# A pickle of torch.save's form, by hand: {"w": a tensor}.
def pickled(
    function="torch._utils\n_rebuild_tensor_v2", kind="torch\nFloatStorage", key="0", count=6,
    offset=0, shape=(2, 3), strides=(3, 1),
):  # fmt: skip
    def number(value):
        return b"J" + value.to_bytes(4, "little", signed=True)

    def text(value):
        return b"X" + len(value).to_bytes(4, "little") + value.encode()

    def numbers(values):
        return b"(" + b"".join(map(number, values)) + b"t"

    storage = b"(" + text("storage") + f"c{kind}\n".encode() + text(key) + text("cpu")
    storage += number(count) + b"tQ"
    tensor = f"c{function}\n".encode() + b"(" + storage + number(offset)
    tensor += numbers(shape) + numbers(strides) + b"\x89ccollections\nOrderedDict\n)RtR"
    return b"\x80\x02}" + text("w") + tensor + b"s."


SIX = np.arange(6, dtype=np.float32)


def test_a_file_of_torch_save_by_hand(tmp_path):
    found = read_pytorch(archive(tmp_path / "x.pt", pickled(), {"0": SIX.tobytes()}))
    np.testing.assert_array_equal(found["w"], SIX.reshape(2, 3))
    assert not found["w"].flags.writeable


@pytest.mark.parametrize(
    ("shape", "strides", "offset", "expected"),
    [
        ((3, 2), (1, 3), 0, SIX.reshape(2, 3).T),
        ((2,), (2,), 1, [1, 3]),
        ((), (), 5, 5),
        ((0, 4), (4, 1), 0, np.zeros((0, 4))),
        ((4, 2), (0, 1), 4, [[4, 5]] * 4),
    ],
)
def test_views(tmp_path, shape, strides, offset, expected):
    content = pickled(shape=shape, strides=strides, offset=offset)
    found = read_pytorch(archive(tmp_path / "x.pt", content, {"0": SIX.tobytes()}))["w"]
    np.testing.assert_array_equal(found, expected)
    assert found.shape == shape


def refused(path):
    with pytest.raises(CheckpointError) as caught:
        read_pytorch(path)
    return caught.value


class Calls:
    """Pickles to the call of a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(1, 6))
@pytest.mark.parametrize(
    ("function", "arguments", "name"),
    [
        (os.system, ("touch HACKED",), f"{os.system.__module__}.system"),
        (eval, ("open('HACKED', 'w')",), "eval"),
        (exec, ("open('HACKED', 'w')",), "exec"),
        (open, ("HACKED", "w"), "open"),
        (getattr, ("", "join"), "getattr"),
        (np.dtype, ("f4",), "dtype"),
    ],
)
def test_code_in_a_pickle_is_named_and_not_run(
    tmp_path, monkeypatch, protocol, function, arguments, name
):
    monkeypatch.chdir(tmp_path)
    content = pickle.dumps({"w": Calls(function, *arguments)}, protocol)
    error = refused(archive(tmp_path / "x.pt", content))
    assert f"{name}, which may run code" in error.summary
    assert error.fix.startswith("in PyTorch, load it if you trust it, and save its tensors alone")
    assert os.listdir(tmp_path) == ["x.pt"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\x80\x02cos\nsystem\nX\x04\0\0\0true\x85R.", "it asks for os.system"),
        (b"\x80\x02c__builtin__\neval\nX\x04\0\0\0true\x85R.", "it asks for __builtin__.eval"),
        (b"\x80\x04\x8c\x08builtins\x8c\x0dgetattr.x.foo\x93.", "it asks for builtins.getattr"),
        (b"\x80\x02}X\x01\0\0\0aX\x01\0\0\0bX\x01\0\0\0c\x85R.", "it calls an object of type str"),
        (b"\x80\x02(cos\nsystem\nS'true'\no.", "it asks for os.system"),
        (b"\x80\x02(S'true'\nios\nsystem\n.", "it has the operation INST"),
        (b"\x80\x02ccollections\nOrderedDict\n)\x81.", "it has the operation NEWOBJ"),
        (b"\x80\x02\x82\x01.", "it has the operation EXT1"),
        (b"\x80\x05\x97.", "it has the operation NEXT_BUFFER"),
    ],
)
def test_pickles_that_ask_for_more_than_data(tmp_path, content, why):
    assert why in refused(archive(tmp_path / "x.pt", content)).summary


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\x80\x02", b"\x80\x02}", b".", b"\x80\x02}}.", b"R.", b"\x80\x02h\x05.", b"t.",
        b"s.", b"\x80\x02]]b.", b"\x80\x02}]]s.", b"\x80\x02}NNa.", b"\xff",
        b"\x80\x02X\xff\xff\xff\x7fa.",
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.", b"\x80\x02r\xff\xff\xff\xff.",
        b"\x80\x02\x8b\xff\xff\xff\x7f\x01.", b"\x80\x02NQ.", b"I9x\n.", b"\x80\x02(NNNu.",
        b"\x80\x02Nccollections\nOrderedDict\nN\x85R.", b"\x80\x04NN\x93.",
    ],
)  # fmt: skip
def test_damaged_pickles(tmp_path, content):
    summary = refused(archive(tmp_path / "x.pt", content)).summary
    assert "damaged or cut short" in summary or "holds one" in summary


def test_every_beginning_and_every_changed_byte_of_a_pickle():
    whole = pickled()
    functions = {"collections.OrderedDict": dict, "torch.FloatStorage": 0,
                 "torch._utils._rebuild_tensor_v2": lambda *given: given}  # fmt: skip
    for length in range(len(whole)):
        with pytest.raises((PickleError, PickleRefusedError)):
            read_pickle(whole[:length], functions, tuple)
    for position in range(len(whole)):
        for value in (0, 0x28, 0x52, 0x7F, 0xFF):
            changed = whole[:position] + bytes([value]) + whole[position + 1 :]
            try:
                read_pickle(changed, functions, tuple)
            except (PickleError, PickleRefusedError):
                pass


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"key": "1"}, "the storage 'archive/data/1' is missing"),
        ({"key": "../../etc/passwd"}, "is missing"),
        ({"count": 7}, "has fewer than 7 elements"),
        ({"count": -1}, "has fewer than -1 elements"),
        ({"count": 2**31 - 1}, "has fewer than 2147483647 elements"),
        ({"shape": (3, 3)}, "a tensor of shape [3, 3] is larger than its storage"),
        ({"shape": (2**31 - 1, 2**31 - 1)}, "is larger than its storage"),
        ({"offset": 1}, "is larger than its storage"),
        ({"offset": -1}, "has no storage, offset, shape and strides"),
        ({"strides": (-3, 1)}, "has no storage, offset, shape and strides"),
        ({"strides": (1,)}, "damaged"),
        ({"kind": "collections\nOrderedDict"}, "the id of a storage is none"),
        ({"kind": "torch\nQUInt8Storage"}, "it asks for torch.QUInt8Storage"),
        ({"function": "torch._utils\n_rebuild_sparse_tensor"}, "_rebuild_sparse_tensor, which"),
        ({"function": "torch._utils\n_rebuild_tensor_v3"}, "its pickle is damaged"),
        ({"function": "torch._utils\n__builtins__"}, "it asks for torch._utils.__builtins__"),
    ],
)
def test_tensors_that_are_none(tmp_path, options, why):
    path = archive(tmp_path / "x.pt", pickled(**options), {"0": SIX.tobytes()})
    assert why in refused(path).summary


def test_expanded_tensors_take_no_memory(tmp_path):
    content = pickled(shape=(2**31 - 1, 2**10), strides=(0, 0))
    found = read_pytorch(archive(tmp_path / "x.pt", content, {"0": SIX.tobytes()}))["w"]
    assert found.strides == (0, 0)
    with gf.Graph() as g:
        layer = gf.nn.Embedding(2, 3)
    with pytest.raises(CheckpointError, match="1 missing, 1 extra"):
        layer.load_pytorch(gf.Session(g), {"w": found})


def test_archives_cut_short(tmp_path):
    path = archive(tmp_path / "x.pt", pickled(), {"0": SIX.tobytes()})
    whole = path.read_bytes()
    for length in range(1, len(whole)):
        path.write_bytes(whole[:length])
        refused(path)


def test_archives_with_changed_bytes_never_do_more_than_fail(tmp_path):
    path = archive(tmp_path / "x.pt", pickled(), {"0": SIX.tobytes()})
    whole = path.read_bytes()
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + b"\xff" + whole[position + 1 :])
        try:
            read_pytorch(path)
        except CheckpointError:
            pass


def test_other_archives(tmp_path):
    np.savez(tmp_path / "a.npz", w=SIX)
    assert "a zip archive that torch.save has not written" in refused(tmp_path / "a.npz").summary
    path = archive(tmp_path / "x.pt", pickled(), **{"constants.pkl": b""})
    assert "a program of torch.jit.save" in refused(path).summary
    with zipfile.ZipFile(tmp_path / "z.pt", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data.pkl", b"\0" * 10_000_000)
    assert "a compressed archive" in refused(tmp_path / "z.pt").summary
    path = archive(tmp_path / "b.pt", pickled(), {"0": SIX.tobytes()}, byteorder=b"big")
    assert "its numbers are big-endian" in refused(path).summary


def test_old_files_and_other_objects(tmp_path):
    (tmp_path / "old.pt").write_bytes(pickle.dumps(0x1950A86A20F9469CFC6C, 2) + b"more")
    error = refused(tmp_path / "old.pt")
    assert "a file of torch.save before PyTorch 1.6" in error.summary
    assert "weights_only=True" in error.fix
    error = refused(archive(tmp_path / "x.pt", b"\x80\x02]."))
    assert "holds one list, and no dict of tensors" in error.summary


# Safetensors, indices and folders.


def state(*names):
    return {name: np.full(3, number, np.float32) for number, name in enumerate(names)}


def test_safetensors_are_mapped(tmp_path):
    arrays = {"a": SIX, "h": SIX.astype(ml_dtypes.bfloat16), "none": np.zeros((0, 2), np.float16),
              "one": np.array(3, np.int64)}  # fmt: skip
    save_file(arrays, tmp_path / "x.safetensors", {"format": "pt"})
    found = read_pytorch(tmp_path / "x.safetensors")
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
    assert not found["a"].flags.owndata
    assert not found["a"].flags.writeable


def test_elements_between_addresses_are_copied(tmp_path):
    header = {"w": {"dtype": "F32", "shape": [6], "data_offsets": [0, 24]}}
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 4 + 1)
    (tmp_path / "x").write_bytes(len(text).to_bytes(8, "little") + text + SIX.tobytes())
    found = read_pytorch(tmp_path / "x")["w"]
    assert found.flags.aligned
    np.testing.assert_array_equal(found, SIX)


def test_a_file_whose_header_begins_like_a_pickle_is_none(tmp_path):
    """The length of a header may have the first bytes of a pickle: 0x0280."""
    header = {"w": {"dtype": "F32", "shape": [6], "data_offsets": [0, 24]}}
    text = json.dumps(header).encode().ljust(0x280)
    content = len(text).to_bytes(8, "little") + text + SIX.tobytes()
    assert content.startswith(b"\x80\x02")
    (tmp_path / "x").write_bytes(content)
    np.testing.assert_array_equal(read_pytorch(tmp_path / "x")["w"], SIX)


def test_graphfw_s_own_files_are_refused(tmp_path):
    write_checkpoint(tmp_path / "x", {"w": SIX}, {"graphfw/opset": "1"})
    error = refused(tmp_path / "x")
    assert "holds graphfw's weights, not PyTorch's" in error.summary
    assert "session.restore(path)" in error.fix


def sharded(folder, files_of, **contents):
    for file, arrays in contents.items():
        save_file(arrays, folder / f"{file}.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": files_of}))
    return index


def test_shards(tmp_path):
    files_of = {"a": "one.safetensors", "c": "two.safetensors", "b": "one.safetensors"}
    index = sharded(tmp_path, files_of, one=state("a", "b"), two=state("c", "unlisted"))
    for path in (index, tmp_path, str(tmp_path)):
        found = read_pytorch(path)
        assert list(found) == ["a", "c", "b"]
        np.testing.assert_array_equal(found["b"], np.ones(3))


@pytest.mark.parametrize(
    "file",
    ["/etc/passwd", "../x.safetensors", "sub/x.safetensors", "C:\\x", "..\\x", "", ".", "..",
     "a\0b", "model.safetensors.index.json"],
)  # fmt: skip
def test_an_index_names_files_beside_it_alone(tmp_path, file):
    index = sharded(tmp_path, {"a": file}, one=state("a"))
    assert "is not the name of a file beside it" in refused(index).summary


def test_wrong_indices(tmp_path):
    index = sharded(tmp_path, {"a": "one.safetensors", "b": "two.safetensors", "c": "3.bin"},
                    one=state("a"))  # fmt: skip
    assert "of 3 files, these are missing: '3.bin', 'two.safetensors'" in refused(index).summary
    index = sharded(tmp_path, {"a": "one.safetensors", "b": "one.safetensors"}, one=state("a"))
    assert "'one.safetensors' has no entry 'b'" in refused(index).summary
    for text in ("", "[", "[]", "{}", '{"weight_map": []}', '{"weight_map": {"a": 1}}', "[" * 9999):
        index.write_text(text)
        summary = refused(index).summary
        assert "it is no JSON" in summary or 'it has no "weight_map"' in summary


def test_folders(tmp_path):
    assert "has no weights" in refused(tmp_path).summary
    save_file(state("x"), tmp_path / "b.safetensors")
    assert list(read_pytorch(tmp_path)) == ["x"]
    save_file(state("y"), tmp_path / "a.safetensors")
    error = refused(tmp_path)
    assert "has 2 files of weights: 'a.safetensors', 'b.safetensors'" in error.summary
    assert "a.safetensors'" in error.fix
    save_file(state("z"), tmp_path / "model.safetensors")
    assert list(read_pytorch(tmp_path)) == ["z"]


def test_wrong_paths(tmp_path):
    for path in (tmp_path / "none.pt", "", "a\0b", 3, None):
        refused(path)
    assert "did you mean" in (refused(archive(tmp_path / "net.pt", b"").with_name("nets.pt"))).fix


def test_names_of_other_libraries_say_what_to_write():
    for name, text in {
        "load_file": "gf.io.read_pytorch",
        "load_pytorch": "model.load_pytorch",
        "save_file": "gf.io.write_pytorch",
    }.items():
        with pytest.raises(AttributeError, match=f"write {text}"):
            getattr(gf.io, name)


# Beside PyTorch.


def theirs():
    torch = pytest.importorskip("torch")
    base = torch.arange(24, dtype=torch.float32)
    kinds = [
        *(torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.uint8, torch.int16),
        *(torch.int32, torch.int64, torch.bool, torch.complex64, torch.uint16, torch.float8_e5m2),
    ]
    return torch, {
        **{str(kind): (base % 2).to(kind) for kind in kinds},
        "view": base[4:10].view(2, 3),
        "transposed": base.view(4, 6).t(),
        "steps": base[::5],
        "expanded": base[:1].expand(5, 3),
        "scalar": torch.tensor(3.5),
        "empty": torch.zeros(0, 3),
        "parameter": torch.nn.Parameter(base.clone()),
        "tied": base,
    }


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_what_torch_save_writes(tmp_path, protocol):
    torch, tensors = theirs()
    torch.save(tensors, tmp_path / "x.pt", pickle_protocol=protocol)
    found = read_pytorch(tmp_path / "x.pt")
    assert list(found) == list(tensors)
    for name, tensor in tensors.items():
        plain = tensor.detach()
        if "float8" in name or "bfloat16" in name:
            plain, given = plain.float(), found[name].astype(np.float32)
            assert found[name].dtype.name == name.removeprefix("torch.")
        else:
            given = found[name]
        np.testing.assert_array_equal(given, plain.numpy(), name)
        assert found[name].shape == tuple(tensor.shape)
    assert found["view"].base is not None


def test_a_whole_training_state(tmp_path):
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    whole = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3,
             "name": "net", "shape": torch.Size([3]), "best": 0.5, "none": None}  # fmt: skip
    torch.save(whole, tmp_path / "x.pth")
    found = read_pytorch(tmp_path / "x.pth")
    np.testing.assert_array_equal(found["model"]["weight"], model.weight.detach().numpy())
    assert (found["epoch"], found["name"], found["best"], found["shape"]) == (3, "net", 0.5, (3,))
    with gf.Graph() as g:
        layer = gf.nn.Linear(3, 2)
    with pytest.raises(CheckpointError) as caught:
        layer.load_pytorch(gf.Session(g), tmp_path / "x.pth")
    assert caught.value.fix == ("pass the dict of the weights: gf.io.read_pytorch(path)['model']")
    layer.load_pytorch(gf.Session(g), found["model"])


def test_a_whole_module_is_refused(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save(torch.nn.Linear(3, 2), tmp_path / "x.pt")
    error = refused(tmp_path / "x.pt")
    assert "it asks for torch.nn.modules.linear.Linear, which may run code" in error.summary
    torch.save({"w": torch.eye(3).to_sparse()}, tmp_path / "x.pt")
    assert "_rebuild_sparse_tensor" in refused(tmp_path / "x.pt").summary


def test_files_before_pytorch_1_6(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"w": torch.eye(3)}, tmp_path / "x.pt", _use_new_zipfile_serialization=False)
    assert "before PyTorch 1.6" in refused(tmp_path / "x.pt").summary
