"""Checkpoint files: exact round trips, no half files, and errors that say what to do.

Long: every way in which a file can be broken is here.
"""

import os
import pickle
import signal
import stat
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import deserialize
from safetensors.numpy import save_file

from graphfw.errors import CheckpointError
from graphfw.io import Mismatch, check_entries, read_checkpoint, write_checkpoint
from graphfw.io.header import read_header
from graphfw.ir.dtype import STORAGE
from tests.texts import said

_DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128", ml_dtypes.bfloat16),
]


def _bits(rng, shape, dtype):
    """Any bits at all, so NaN payloads and negative zeros too."""
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(bool)
    raw = rng.bytes(int(np.prod(shape)) * dtype.itemsize)
    return np.frombuffer(raw, dtype).reshape(shape)


def _assert_same(read, wanted):
    assert read.keys() == wanted.keys()
    for name, array in wanted.items():
        got = read[name]
        assert got.dtype == array.dtype.newbyteorder("=")
        assert got.dtype.isnative
        assert got.shape == array.shape
        assert got.tobytes() == array.astype(got.dtype).tobytes()
        assert got.flags.owndata
        assert got.flags.carray  # aligned, writable, C-contiguous


def _only(folder, *names):
    assert sorted(os.listdir(folder)) == sorted(names)


@pytest.mark.exhaustive
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (5, 1, 7)])
@pytest.mark.parametrize("dtype", _DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_round_trip_is_exact_for_every_dtype(tmp_path, rng, dtype, shape):
    arrays = {"a": _bits(rng, shape, dtype), "b.c": _bits(rng, shape, dtype)}
    write_checkpoint(tmp_path / "x", arrays, {"step": "7"})
    read, metadata = read_checkpoint(tmp_path / "x")
    _assert_same(read, arrays)
    assert metadata == {"step": "7"}
    _only(tmp_path, "x")


_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
_arrays = hnp.arrays(st.sampled_from([np.dtype(d) for d in _DTYPES[:-1]]), _shapes) | hnp.arrays(
    np.uint16, _shapes
).map(lambda bits: bits.view(ml_dtypes.bfloat16))


@given(st.dictionaries(_texts, _arrays, max_size=5), st.dictionaries(_texts, _texts, max_size=3))
@settings(max_examples=60, deadline=None)
def test_round_trip_of_any_names_arrays_and_metadata(tmp_path_factory, arrays, metadata):
    path = tmp_path_factory.mktemp("any") / "x"
    write_checkpoint(path, arrays, metadata)
    read, text = read_checkpoint(path)
    _assert_same(read, arrays)
    assert text == metadata


def test_any_layout_and_byte_order_comes_back_native(tmp_path, rng):
    plain = rng.standard_normal((5, 6)).astype(np.float32)
    read_only = plain.copy()
    read_only.flags.writeable = False
    arrays = {
        "transposed": plain.T,
        "strided": plain[::2, ::-3],
        "broadcast": np.broadcast_to(plain[:, :1], (5, 4)),
        "fortran": np.asfortranarray(plain),
        "read_only": read_only,
        "big": plain.astype(">f4"),
        "big_int": np.arange(5, dtype=">i8"),
        "big_bfloat16": plain.astype(ml_dtypes.bfloat16).astype(
            np.dtype(ml_dtypes.bfloat16).newbyteorder(">")
        ),
        "big_complex": (plain + 1j * plain).astype(">c16").T,
        "big_0d": np.array(3.5, ">f8"),
    }
    write_checkpoint(tmp_path / "x", arrays, {})
    read, metadata = read_checkpoint(tmp_path / "x")
    _assert_same(read, arrays)
    np.testing.assert_array_equal(read["big"], plain)
    assert metadata == {}


def test_files_of_the_safetensors_package_are_read_and_none_are_empty(tmp_path):
    save_file({"w": np.arange(3)}, tmp_path / "theirs")
    read, metadata = read_checkpoint(tmp_path / "theirs")
    assert (read["w"].tolist(), metadata) == ([0, 1, 2], {})
    write_checkpoint(tmp_path / "empty", {}, {})
    assert read_checkpoint(tmp_path / "empty") == ({}, {})


@pytest.mark.parametrize("as_path", [str, Path])
def test_str_path_and_unicode_names(tmp_path, monkeypatch, as_path):
    monkeypatch.chdir(tmp_path)
    for name in ("čekpoint-模型-🦊.safetensors", "a b'\"\n.st", "x" * 255):
        write_checkpoint(as_path(name), {"层.вес": np.arange(3)}, {"ключ": "値"})
        read, metadata = read_checkpoint(as_path(name))
        assert (read["层.вес"].tolist(), metadata) == ([0, 1, 2], {"ключ": "値"})


def test_a_link_is_written_through(tmp_path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to(Path("real") / "file")  # dangling at first, then not
    for value in (1, 2):
        write_checkpoint(link, {"a": np.array(value)}, {})
        assert link.is_symlink()
        assert read_checkpoint(tmp_path / "real" / "file")[0]["a"] == value
        _only(tmp_path / "real", "file")


def test_permissions_are_the_replaced_files_or_the_usual_ones(tmp_path):
    path, plain = tmp_path / "x", tmp_path / "plain"
    plain.write_bytes(b"")
    write_checkpoint(path, {}, {})
    assert path.stat().st_mode == plain.stat().st_mode
    path.chmod(0o640)
    write_checkpoint(path, {}, {})
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


# Writes two large files in turn; each is filled with one number. "ready" once the first is whole.
_WRITER = """
import sys
import numpy as np
from graphfw.io import write_checkpoint
path, first = sys.argv[1], int(sys.argv[2])
arrays = [np.full(4_000_000, first + i, np.int32) for i in range(2)]
for turn in range(1_000_000):
    fill = first + turn % 2
    write_checkpoint(path, {"a": arrays[turn % 2], "b": arrays[turn % 2]}, {"fill": str(fill)})
    if turn == 0:
        print("ready", flush=True)
"""


def _start_writer(path, first):
    command = [sys.executable, "-c", _WRITER, str(path), str(first)]
    root = Path(__file__).parents[2]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root)


def _assert_whole(path):
    read, metadata = read_checkpoint(path)
    for array in read.values():
        assert array.shape == (4_000_000,)
        assert (array == int(metadata["fill"])).all()


@pytest.mark.slow
def test_killed_and_competing_writers_leave_a_whole_file(tmp_path, rng):
    path = tmp_path / "x"
    for _ in range(3):
        writers = [_start_writer(path, first) for first in (10, 20)]
        try:
            for writer in writers:
                assert writer.stdout.readline() == b"ready\n"
            _assert_whole(path)  # while both are writing
            time.sleep(rng.uniform(0, 0.05))
        finally:
            for writer in writers:
                writer.send_signal(signal.SIGKILL)
                writer.wait()
                writer.stdout.close()
        assert [writer.returncode for writer in writers] == [-signal.SIGKILL] * 2
        _assert_whole(path)
    write_checkpoint(path, {}, {})
    _only(tmp_path, "x")  # nothing of the killed writers stays


def test_a_failed_rename_keeps_the_old_file_and_leaves_nothing_behind(tmp_path, monkeypatch):
    path = tmp_path / "x"
    write_checkpoint(path, {"a": np.array(1)}, {})

    def fail(source, target):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(CheckpointError) as caught:
        write_checkpoint(path, {"a": np.array(2)}, {})
    assert said(caught.value) == (
        f"cannot write checkpoint '{path}': Input/output error; "
        "what was at this path before is unchanged\n"
        f"  fix  check the free space and the state of '{tmp_path}', or use another disk"
    )
    assert isinstance(caught.value.__cause__, OSError)
    assert read_checkpoint(path)[0]["a"] == 1
    _only(tmp_path, "x")


@pytest.mark.parametrize(
    "step", ["mkdtemp", "write_blocks", "safe_open", "chmod", "fsync", "replace"]
)
def test_an_interrupt_at_any_step_keeps_the_old_file(tmp_path, monkeypatch, step):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    write_checkpoint(tmp_path / "x", {"a": np.array(1)}, {})
    with monkeypatch.context() as patch:
        where = {"mkdtemp": "tempfile", "chmod": "os", "fsync": "os", "replace": "os"}
        patch.setattr(f"{where.get(step, 'graphfw.io.checkpoint')}.{step}", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_checkpoint(tmp_path / "x", {"a": np.array(2)}, {})
    assert read_checkpoint(tmp_path / "x")[0]["a"] == 1
    _only(tmp_path, "x")


def test_a_full_disk_keeps_the_old_file_and_leaves_nothing_behind(tmp_path):
    resource = pytest.importorskip("resource")
    path = tmp_path / "x"
    write_checkpoint(path, {"a": np.array(1)}, {})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))  # a real failure of write(2)
    try:
        with pytest.raises(
            CheckpointError, match=r"File too large.*is unchanged\n.*\n.*free space"
        ):
            write_checkpoint(path, {"a": np.zeros(1 << 16)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert read_checkpoint(path)[0]["a"] == 1
    _only(tmp_path, "x")


def test_a_folder_that_cannot_be_synced_is_said(tmp_path, monkeypatch):
    sync = os.fsync

    def fail_on_folders(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(5, "Input/output error")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fail_on_folders)
    with pytest.raises(CheckpointError, match="is written, but may not survive a power failure"):
        write_checkpoint(tmp_path / "x", {"a": np.array(2)}, {})
    assert read_checkpoint(tmp_path / "x")[0]["a"] == 2


def test_data_is_flushed_before_the_rename_and_the_folder_after(tmp_path, monkeypatch):
    events = []
    sync, replace = os.fsync, os.replace

    def record_sync(descriptor):
        events.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    def record_replace(source, target):
        events.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(os, "replace", record_replace)
    write_checkpoint(tmp_path / "x", {}, {})
    assert events == ["file", "replace", "folder"]


def test_bad_targets_are_refused_and_untouched(tmp_path):
    loop, pipe = tmp_path / "loop", tmp_path / "pipe"
    loop.symlink_to(loop)
    os.mkfifo(pipe)
    for path, why, fix in [
        (tmp_path / "no" / "x", f"there is no folder '{tmp_path}/no'", "create the folder first"),
        (tmp_path, "it is a folder", "add a file name, as in 'model.safetensors'"),
        (f"{tmp_path}/new/", "it is a folder", "add a file name, as in 'model.safetensors'"),
        (loop, "it is a symbolic link that leads to itself", "remove the link"),
        (pipe, "it is a device, a pipe or a socket", "write to a plain file"),
        ("", "this is not a file's path", "pass a non-empty str or a pathlib.Path"),
        ("a\0b", "this is not a file's path", "pass a non-empty str or a pathlib.Path"),
        (None, "this is not a file's path", "pass a non-empty str or a pathlib.Path"),
        (5, "this is not a file's path", "pass a non-empty str or a pathlib.Path"),
        (b"x", "this is not a file's path", "pass a non-empty str or a pathlib.Path"),
    ]:
        with pytest.raises(CheckpointError) as caught:
            write_checkpoint(path, {}, {})
        shown = str(path) if isinstance(path, Path) else path
        wanted = f"cannot write checkpoint {shown!r}: {why}\n  fix  {fix}"
        assert said(caught.value) == wanted
    assert loop.is_symlink()
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    _only(tmp_path, "loop", "pipe")


@pytest.fixture
def closed_folder():
    """A folder with a file "x", neither of which this process may touch; no mode stops a root."""
    with tempfile.TemporaryDirectory() as name:  # not tmp_path: its parents are closed to others
        folder, user = Path(name), os.geteuid()
        write_checkpoint(folder / "x", {"a": np.array(1)}, {})
        (folder / "x").chmod(0)
        folder.chmod(0o555)
        if user == 0:
            os.seteuid(65534)
        yield folder
        os.seteuid(user)
        folder.chmod(0o700)


def test_no_permission_is_said(closed_folder, monkeypatch):
    path = closed_folder / "x"
    with pytest.raises(CheckpointError) as caught:
        write_checkpoint(closed_folder / "new", {}, {})
    assert said(caught.value) == (
        f"cannot write checkpoint '{closed_folder}/new': Permission denied; "
        "what was at this path before is unchanged\n"
        f"  fix  get permission to write in '{closed_folder}', or write to another folder"
    )
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(path)
    assert said(caught.value) == (
        f"cannot read checkpoint '{path}': Permission denied\n  fix  get permission to read it"
    )
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # it asks for the real user
    with pytest.raises(
        CheckpointError, match=r"the file is read-only\n.*\n  fix  make it writable"
    ):
        write_checkpoint(path, {}, {})
    _only(closed_folder, "x")


@pytest.mark.parametrize(
    ("tensors", "metadata", "message"),
    [
        ({"a": 1.5}, {}, "entry 'a' is a float\n  fix  pass a numpy.ndarray"),
        (
            {"a": np.array(["x"])},
            {},
            "entry 'a' has dtype <U1\n  fix  cast it to one of bool, int8",
        ),
        ({"a": np.array([None])}, {}, "entry 'a' has dtype object"),
        ({"a": np.zeros(1, "f4,f4")}, {}, "entry 'a' has dtype [('f0', '<f4'), ('f1', '<f4')]"),
        ({"__metadata__": np.zeros(1)}, {}, "'__metadata__' cannot name an entry"),
        ({3: np.zeros(1)}, {}, "3 cannot name an entry\n  fix  choose another name"),
        ({"\ud800": np.zeros(1)}, {}, "'\\ud800' cannot name an entry"),
        ({}, {"step": 3}, "metadata 'step': 3 is not text\n  fix  pass Unicode str for both"),
        ({}, {"graphfw.complex128": "[]"}, "the metadata key 'graphfw.complex128' is reserved"),
    ],
)
def test_what_cannot_be_stored_is_refused(tmp_path, tensors, metadata, message):
    with pytest.raises(CheckpointError) as caught:
        write_checkpoint(tmp_path / "x", tensors, metadata)
    assert said(caught.value).startswith(f"cannot write checkpoint '{tmp_path}/x': {message}")
    _only(tmp_path)


def test_a_file_cut_anywhere_is_refused(tmp_path, rng):
    whole = tmp_path / "whole"
    write_checkpoint(whole, {"a": _bits(rng, (3, 5), "int16"), "b": np.ones(2)}, {"k": "v"})
    content = whole.read_bytes()
    cut = tmp_path / "cut"
    for size in range(len(content)):
        cut.write_bytes(content[:size])
        with pytest.raises(CheckpointError, match="damaged, cut short or not a safetensors file"):
            read_checkpoint(cut)
    cut.write_bytes(content + b"\0")
    with pytest.raises(CheckpointError, match="damaged"):
        read_checkpoint(cut)


def test_a_file_cut_short_while_it_is_read_is_refused(tmp_path, monkeypatch):
    write_checkpoint(tmp_path / "x", {"a": np.zeros(1 << 16)}, {})

    def cut_after_reading_the_header(file):
        header = read_header(file)
        os.truncate(tmp_path / "x", 4096)
        return header

    monkeypatch.setattr("graphfw.io.checkpoint.read_header", cut_after_reading_the_header)
    with pytest.raises(CheckpointError, match="damaged, cut short"):  # and no SIGBUS
        read_checkpoint(tmp_path / "x")


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"PK\x03\x04" + b"zip" * 30, "a zip archive, as torch.save and np.savez write it"),
        (b"\x93NUMPY" + b"\0" * 90, "an array, as np.save writes it"),
        (b"\x89HDF\r\n\x1a\n" + b"\0" * 90, "an HDF5 file, as Keras writes it"),
        (pickle.dumps({"w": np.arange(90)}), "a pickle"),
    ],
)
def test_another_format_is_refused(tmp_path, content, kind):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(tmp_path / "x")
    assert said(caught.value) == (
        f"cannot read checkpoint '{tmp_path}/x': it is {kind}, and not a safetensors file\n"
        "  fix  PyTorch's weights are loaded by model.load_pytorch(session, path); read others "
        "with their library, and give what they hold to session.load_state_dict"
    )


def test_what_is_no_known_format_is_refused(tmp_path):
    (tmp_path / "x").write_bytes(b"hello, world, this is a text")
    with pytest.raises(CheckpointError, match=r"damaged.*its header would be too large") as caught:
        read_checkpoint(tmp_path / "x")
    assert caught.value.fix == "use another copy; session.save never leaves half a file"


def test_a_dtype_numpy_lacks_is_named(tmp_path):
    (tmp_path / "x").write_bytes(_file('{"w":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}}'))
    with pytest.raises(CheckpointError, match=r"entry 'w' has dtype F4\n.*\n  fix  convert it to"):
        read_checkpoint(tmp_path / "x")


def test_a_file_is_read_whole_when_another_takes_its_place(tmp_path, monkeypatch):
    write_checkpoint(tmp_path / "x", {"w": np.arange(2)}, {})
    write_checkpoint(tmp_path / "other", {"w": np.zeros(5)}, {})

    def replaced_after_reading_the_header(file):
        header = read_header(file)
        os.replace(tmp_path / "other", tmp_path / "x")
        return header

    monkeypatch.setattr("graphfw.io.checkpoint.read_header", replaced_after_reading_the_header)
    assert read_checkpoint(tmp_path / "x")[0]["w"].tolist() == [0, 1]


@pytest.mark.parametrize("dtype", ["F8_E4M3", "I8"])
def test_metadata_may_be_null(tmp_path, dtype):
    entry = f'{{"dtype":"{dtype}","shape":[2],"data_offsets":[0,2]}}'
    (tmp_path / "x").write_bytes(_file(f'{{"__metadata__":null,"w":{entry}}}'))
    arrays, text = read_checkpoint(tmp_path / "x")
    assert arrays["w"].tobytes() == b"ab"
    assert text == {}


def _file(header):
    return len(header).to_bytes(8, "little") + header.encode() + b"ab"


def test_dtypes_that_numbers_are_only_kept_in(tmp_path, rng):
    arrays = {dtype.name: codes(rng, dtype) for dtype in STORAGE}
    arrays |= {"scalar": arrays["int4"][0, 0], "strided": arrays["float8_e5m2"].T[::2]}
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    write_checkpoint(tmp_path / "x", {**arrays, "z": np.ones(2, complex)}, {"step": "3"})
    found, text = read_checkpoint(tmp_path / "x")
    assert text == {"step": "3"}
    _assert_same(found, {**arrays, "z": np.ones(2, complex)})


def test_memory_holds_a_file_once(tmp_path):
    size = 1 << 20
    arrays = {"f": np.zeros(size, ml_dtypes.float8_e4m3fn), "i": np.zeros(size, np.int8)}
    write_checkpoint(tmp_path / "x", arrays, {})
    tracemalloc.start()
    try:
        found, _ = read_checkpoint(tmp_path / "x")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    _assert_same(found, arrays)
    assert peak < 1.2 * 2 * size


def codes(rng, dtype):
    return rng.integers(0, 4, (3, 5)).astype(np.uint8).view(dtype.dtype)


def test_other_tools_read_floats_of_8_bits(tmp_path, rng):
    array = codes(rng, STORAGE[0])
    write_checkpoint(tmp_path / "x", {"w": array}, {})
    (name, entry), *_ = deserialize((tmp_path / "x").read_bytes())
    assert (name, entry["dtype"], bytes(entry["data"])) == ("w", "F8_E4M3", array.tobytes())


@pytest.mark.parametrize(
    "marker",
    ["{", "3", '{"w": "int8"}', '{"gone": "int4"}', '{"f": "int4"}', '{"w": [1]}', "[" * 100_000],
    ids=lambda marker: marker[:20],
)
def test_a_false_marker_of_bytes_is_refused(tmp_path, marker):
    arrays = {"w": np.zeros(2, np.uint8), "f": np.zeros(2, np.float32)}
    save_file(arrays, tmp_path / "x", {"graphfw.bytes": marker})
    with pytest.raises(CheckpointError, match="does not give uint8 entries one of the dtypes"):
        read_checkpoint(tmp_path / "x")


@pytest.mark.parametrize(
    "marker",
    ["{", "3", "[1]", '["gone"]', '["int"]', '["narrow"]', '["0d"]', "[" * 100_000],
    ids=lambda marker: marker[:20],
)
def test_a_false_complex_marker_is_refused(tmp_path, marker):
    arrays = {"int": np.zeros(2, int), "narrow": np.zeros((2, 3)), "0d": np.array(0.5)}
    save_file(arrays, tmp_path / "x", {"graphfw.complex128": marker})
    with pytest.raises(
        CheckpointError, match="does not name float64 entries with a last axis of 2"
    ):
        read_checkpoint(tmp_path / "x")


def test_a_complex_entry_that_is_named_twice_is_one(tmp_path):
    save_file({"z": np.ones((3, 2))}, tmp_path / "x", {"graphfw.complex128": '["z", "z"]'})
    _assert_same(read_checkpoint(tmp_path / "x")[0], {"z": np.full(3, 1 + 1j)})


def test_a_missing_file_gets_near_names(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"")
    (tmp_path / "model2.safetensors").write_bytes(b"")
    (tmp_path / "modell.safetensors.d").mkdir()
    for name, fix in [
        (
            "modl.safetensors",
            f"did you mean '{tmp_path}/model.safetensors' or '{tmp_path}/model2.safetensors'?",
        ),
        ("zzz", f"nothing in '{tmp_path}' has a name like it: check the path"),
        ("no/x", f"there is no folder '{tmp_path}/no' either: check the path"),
    ]:
        with pytest.raises(CheckpointError) as caught:
            read_checkpoint(tmp_path / name)
        path = f"{tmp_path}/{name}"
        wanted = f"cannot read checkpoint '{path}': there is no such file\n  fix  {fix}"
        assert said(caught.value) == wanted


def test_reading_what_is_no_plain_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="it is a device, a pipe or a socket"):
        read_checkpoint(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="it is a folder"):
        read_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="'': this is not a file's path"):
        read_checkpoint("")
    for path in (None, 5, ["a"], b"a"):
        with pytest.raises(CheckpointError, match="this is not a file's path") as caught:
            read_checkpoint(path)
        assert repr(path) in caught.value.summary
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(bytes(10_000))  # the contents of a file, say
    assert len(caught.value.summary) < 150


def test_equal_entries_are_no_mismatch():
    entries = {"w": ((3, 0), "float32"), "b": ((), "bfloat16")}
    assert check_entries(entries, dict(entries), source="x") == Mismatch()


def test_everything_that_differs_is_in_one_error():
    expected = {
        "fc.weight": ((10, 64), "float32"),
        "fc.bias": ((10,), "float32"),
        "step": ((), "int64"),
        "lonely": ((1,), "bool"),
        "scale": ((1,), "int8"),
    }
    found = {
        "fc.weights": ((64, 10), "float32"),
        "fcc.weight_": ((10, 64), "float32"),
        "fc.bias": ((10,), "float64"),
        "step": ((1,), "int64"),
        "scales": ((2,), "int8"),
    }
    with pytest.raises(CheckpointError) as caught:
        check_entries(expected, found, source="a.safetensors")
    assert said(caught.value) == (
        "the entries of 'a.safetensors' are not the expected ones: "
        "3 missing, 3 extra, 2 mismatched\n"
        "  missing     'fc.weight'  float32[10, 64]  did you mean \"fcc.weight_\"?\n"
        "  missing     'lonely'  bool[1]\n"
        "  missing     'scale'  int8[1]  did you mean \"scales\"?\n"
        "  extra       'fc.weights'  float32[64, 10]\n"
        "  extra       'fcc.weight_'  float32[10, 64]\n"
        "  extra       'scales'  int8[2]\n"
        "  mismatched  'fc.bias'  expected float32[10], found float64[10]\n"
        "  mismatched  'step'  expected int64[], found int64[1]\n"
        "  fix  build the graph with the shapes and dtypes of the checkpoint, or load another one"
    )


def test_long_lists_are_cut():
    expected = {f"a{i:02}": ((), "int8") for i in range(11)}
    with pytest.raises(CheckpointError) as caught:
        check_entries(expected, {}, source="x")
    lines = said(caught.value).splitlines()
    assert lines[0].endswith("11 missing")
    assert lines[8:10] == ["  missing     'a07'  int8[]", "  missing     and 3 more"]
    assert lines[10].startswith("  fix  rename the entries, or pass strict=False to keep what is")


def test_not_strict_returns_names_and_still_refuses_shapes():
    expected = {"a": ((), "int8"), "c": ((2,), "int8")}
    found = {"b": ((), "int8"), "c": ((2,), "int8")}
    result = check_entries(expected, found, source="x", strict=False)
    assert result == Mismatch(missing=("a",), extra=("b",))
    found["c"] = ((2,), "int16")
    with pytest.raises(CheckpointError, match=r"expected int8\[2\], found int16\[2\]"):
        check_entries(expected, found, source="x", strict=False)


def test_comparing_very_many_entries_is_quick():
    entry = ((1,), "int8")
    expected = {f"old.{i}": entry for i in range(5000)}
    found = {f"new.{i}": entry for i in range(5000)}
    with pytest.raises(CheckpointError, match="5000 missing, 5000 extra"):
        check_entries(expected, found, source="x")
