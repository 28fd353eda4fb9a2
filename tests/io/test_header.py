"""Headers of files: those that the package safetensors reads and writes, and no others."""

import json

import numpy as np
import pytest
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from graphfw.errors import CheckpointError
from graphfw.io import read_checkpoint, write_checkpoint
from graphfw.io.header import DTYPES


def theirs(path):
    """Return the arrays and the metadata that safetensors reads; None where it refuses."""
    try:
        with safe_open(path, framework="np") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}
            return {k: (v.shape, v.tobytes()) for k, v in arrays.items()}, file.metadata() or {}
    except (SafetensorError, OSError):
        return None


def ours(path):
    try:
        arrays, text = read_checkpoint(path)
    except CheckpointError:
        return None
    return {k: (v.shape, v.tobytes()) for k, v in arrays.items()}, text


def put(path, header, rest):
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + rest)


def entry(dtype="I8", shape=(2,), offsets=(0, 2), **others):
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets, **others}


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_safetensors_reads_what_is_written(tmp_path, rng, dtype):
    raw = rng.integers(0, 2, (3, 5, dtype.itemsize), np.uint8).view(dtype)[..., 0]
    write_checkpoint(tmp_path / "x", {"b": raw, "ä": np.zeros((0, 3))}, {"k": "\n"})
    with safe_open(tmp_path / "x", framework="np") as file:
        assert sorted(file.keys()) == ["b", "ä"]
        assert file.metadata()["k"] == "\n"
        assert DTYPES[file.get_slice("b").get_dtype()] == dtype


@pytest.mark.parametrize(
    ("header", "rest"),
    [
        ({}, b""),
        ({"a": entry()}, b"ab"),
        ({"a": entry(), "__metadata__": {"k": "v"}}, b"ab"),
        ({"a": entry(), "__metadata__": None}, b"ab"),
        ({"a": entry(more=3)}, b"ab"),
        ({"a": entry(), "b": entry("I16", (), (2, 4))}, b"abcd"),
        ({"b": entry(offsets=(2, 4)), "a": entry(offsets=(0, 2))}, b"abcd"),
        ({"a": entry(shape=(0, 7), offsets=(0, 0)), "b": entry()}, b"ab"),
        (b'{"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}}   ', b"ab"),
    ],
)
def test_what_safetensors_reads_is_read(tmp_path, header, rest):
    put(tmp_path / "x", header, rest)
    assert ours(tmp_path / "x") is not None
    assert ours(tmp_path / "x") == theirs(tmp_path / "x")


@pytest.mark.parametrize(
    ("header", "rest"),
    [
        ([], b""),
        (3, b""),
        (b"", b""),
        (b"{", b""),
        (b"\xff{}", b""),
        (b'{"\\ud800":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}}', b"ab"),
        (b"[" * 100_000, b""),
        ({"a": 3}, b"ab"),
        ({"a": {"dtype": "I8", "shape": [2]}}, b"ab"),
        ({"a": entry(3)}, b"ab"),
        ({"a": entry("I9")}, b"ab"),
        ({"a": entry(shape=2)}, b"ab"),
        ({"a": entry(shape=(-2,))}, b"ab"),
        ({"a": entry(shape=(-2, -1))}, b"ab"),
        ({"a": entry(shape=(2.0,))}, b"ab"),
        ({"a": entry(shape=(True, 2))}, b"ab"),
        ({"a": entry(shape=(3,))}, b"ab"),
        ({"a": entry(shape=(2**40, 2**40, 0), offsets=(0, 0))}, b""),
        ({"a": entry(shape=(2**70,))}, b"ab"),
        ({"a": entry(offsets=(0, 3))}, b"ab"),
        ({"a": entry(offsets=(2, 0))}, b"ab"),
        ({"a": entry(offsets=(-2, 0))}, b"ab"),
        ({"a": entry(offsets=(0, 1, 2))}, b"ab"),
        ({"a": entry(offsets=(1, 3))}, b"abc"),
        ({"a": entry()}, b"abc"),
        ({"a": entry()}, b"a"),
        ({"a": entry(), "b": entry()}, b"ab"),
        ({"a": entry(), "b": entry(offsets=(1, 3))}, b"abc"),
        ({"a": entry(), "b": entry(offsets=(3, 5))}, b"abcde"),
        ({"a": entry(), "__metadata__": {"k": 3}}, b"ab"),
        ({"a": entry(), "__metadata__": [3]}, b"ab"),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_what_safetensors_refuses_is_refused(tmp_path, header, rest):
    put(tmp_path / "x", header, rest)
    assert theirs(tmp_path / "x") is None
    assert ours(tmp_path / "x") is None


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (b'{"a":{"dtype":"I8","shape":[2],"shape":[2],"data_offsets":[0,2]}}', "a name twice"),
        ({"a": entry(shape=(1,) * 65, offsets=(0, 1))}, "a shape that NumPy does not have"),
    ],
)
def test_what_is_refused_beyond_that(tmp_path, header, why):
    put(tmp_path / "x", header, b"ab")
    with pytest.raises(CheckpointError, match=why):
        read_checkpoint(tmp_path / "x")


@pytest.mark.slow
def test_any_change_of_a_header_is_refused_or_read_alike(tmp_path, rng):
    """But for what NumPy lacks, and names that are there twice."""
    path = tmp_path / "x"
    save_file({"a": np.arange(6, dtype=np.int8), "b": np.ones((2, 3))}, path, {"k": "v"})
    whole = path.read_bytes()
    end = 8 + int.from_bytes(whole[:8], "little")
    for _ in range(2000):
        content = bytearray(whole)
        for _ in range(rng.integers(1, 3)):
            content[rng.integers(0, end)] = rng.choice(list(b'0123456789[]{}",: abIF\x00\xff'))
        path.write_bytes(content)
        found = ours(path)
        if found is not None:
            assert found == theirs(path)
