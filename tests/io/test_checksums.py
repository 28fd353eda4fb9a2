"""Damage anywhere in a checkpoint is seen, and said where it is."""

import json
import zlib

import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from graphfw.errors import CheckpointError
from graphfw.io import blocks, checksums, read_and_verify, read_checkpoint, write_checkpoint


def stored(path):
    """Return the entries and the metadata of a file as they are stored."""
    with safe_open(path, framework="np") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()


@pytest.fixture
def arrays(rng):
    made = {
        "w": rng.standard_normal((5, 7), np.float32),
        "n": np.arange(11, dtype=np.int16),
        "z": rng.standard_normal(3) + 1j,
        "empty": np.zeros((0, 4), np.float32),
        "scalar": np.array(3.5),
    }
    return made | {"q": np.zeros(6, ml_dtypes.int4)}


@pytest.mark.slow
def test_every_flipped_bit_is_an_error_or_changes_nothing(tmp_path, arrays):
    path = tmp_path / "x"
    write_checkpoint(path, arrays, {"session/step": "7", "session/seed": "12"})
    whole = path.read_bytes()
    expected, text, verified = read_and_verify(path)
    assert verified
    header = int.from_bytes(whole[:8], "little") + 8
    unseen = 0
    for bit in range(8 * len(whole)):
        at = bit // 8
        _put(path, at, whole[at] ^ 1 << bit % 8)
        try:
            found, found_text, _ = read_and_verify(path)
        except CheckpointError:
            continue
        finally:
            _put(path, at, whole[at])
        assert at < header  # such as a space of the header that became a tab
        assert found_text == text
        assert {k: v.tobytes() for k, v in found.items()} == {
            k: v.tobytes() for k, v in expected.items()
        }
        unseen += 1
    assert unseen < 0.01 * 8 * len(whole)


def _put(path, at, byte):
    """Overwrite one byte in place: a file that is made anew takes far longer."""
    with path.open("r+b", buffering=0) as file:
        file.seek(at)
        file.write(bytes([byte]))


@pytest.mark.smoke
def test_the_damaged_block_is_named(tmp_path, rng):
    path = tmp_path / "x"
    array = rng.standard_normal(5 << 17)  # five blocks
    write_checkpoint(path, {"w": array}, {})
    content = bytearray(path.read_bytes())
    content[-(3 << 20) + 5] ^= 16
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(path)
    assert str(caught.value).startswith(
        f"cannot read checkpoint '{path}': bytes 2097152 to 3145728 of entry 'w' are damaged"
    )


def written_checksums(path):
    return json.loads(stored(path)[1]["graphfw.checksums"])["entries"]


def test_a_slice_can_be_checked_by_itself(tmp_path, rng):
    array = rng.standard_normal(3 << 17)
    write_checkpoint(tmp_path / "x", {"w": array}, {})
    expected = [zlib.crc32(section.tobytes()) for section in np.split(array, 3)]
    assert written_checksums(tmp_path / "x") == {"w": "".join(f"{c:08x}" for c in expected)}


def test_large_files_are_moved_by_threads_to_the_same_end(tmp_path, monkeypatch, rng):
    arrays = {"a": rng.standard_normal(5 << 17), "b": np.arange(5), "c": np.zeros(0)}
    write_checkpoint(tmp_path / "alone", arrays, {})
    monkeypatch.setattr(blocks, "_PARALLEL_BYTES", 0)
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    write_checkpoint(tmp_path / "shared", arrays, {})
    assert (tmp_path / "shared").read_bytes() == (tmp_path / "alone").read_bytes()
    found, _ = read_checkpoint(tmp_path / "shared")
    assert all((found[name] == arrays[name]).all() for name in arrays)


def test_systems_that_cannot_read_at_a_place_move_to_it(tmp_path, monkeypatch, rng):
    monkeypatch.delattr("os.preadv", raising=False)
    monkeypatch.delattr("os.pwrite", raising=False)
    monkeypatch.setattr(blocks, "_PARALLEL_BYTES", 0)
    arrays = {"a": rng.standard_normal(5 << 17), "b": np.arange(5), "c": np.zeros(0)}
    write_checkpoint(tmp_path / "x", arrays, {})
    found, _ = read_checkpoint(tmp_path / "x")
    assert all((found[name] == arrays[name]).all() for name in arrays)


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), KeyboardInterrupt()])
def test_an_error_ends_all_threads(tmp_path, monkeypatch, error):
    write_checkpoint(tmp_path / "x", {"a": np.zeros(40 << 17)}, {})
    monkeypatch.setattr(blocks, "_PARALLEL_BYTES", 0)
    calls = []

    def fails(*_):
        calls.append(None)
        raise error

    monkeypatch.setattr("os.preadv", fails, raising=False)
    with pytest.raises(CheckpointError if isinstance(error, OSError) else KeyboardInterrupt):
        read_checkpoint(tmp_path / "x")
    assert len(calls) <= 8  # of 40


@pytest.mark.parametrize("key", ["graphfw.checksums", "graphfw.header"])
def test_a_file_that_lost_one_of_its_checksums_is_refused(tmp_path, key):
    write_checkpoint(tmp_path / "x", {"w": np.zeros(3)}, {})
    entries, text = stored(tmp_path / "x")
    del text[key]
    save_file(entries, tmp_path / "x", text)
    with pytest.raises(CheckpointError, match=r"its header \(names, shapes, dtypes, step, seed"):
        read_checkpoint(tmp_path / "x")


@pytest.mark.parametrize("change", ["rename", "swap", "step"])
def test_a_changed_header_is_refused(tmp_path, change):
    arrays = {"a": np.zeros((2, 3)), "b": np.ones((3, 2))}
    write_checkpoint(tmp_path / "x", arrays, {"session/step": "3"})
    entries, text = stored(tmp_path / "x")
    if change == "rename":
        entries["c"] = entries.pop("a")
    elif change == "swap":
        entries["a"] = entries["a"].reshape(3, 2)
    else:
        text["session/step"] = "4"
    save_file(entries, tmp_path / "x", text)
    with pytest.raises(CheckpointError, match="its header"):
        read_checkpoint(tmp_path / "x")


def test_checksums_of_a_newer_version_are_refused(tmp_path):
    entries = {"a": np.zeros(2)}
    text = {"graphfw.checksums": json.dumps({"algorithm": "crc64", "block_bytes": 1 << 20})}
    text["graphfw.header"] = checksums._header_hash(entries, text)
    save_file(entries, tmp_path / "x", text)
    with pytest.raises(CheckpointError, match="or of a newer version of graphfw"):
        read_checkpoint(tmp_path / "x")


@pytest.mark.parametrize(
    "written",
    [
        None,
        "{",
        "[" * 100_000,
        "3",
        "{}",
        '{"algorithm": "crc32", "block_bytes": 1048576}',
        '{"algorithm": "crc32", "block_bytes": 1048576, "entries": 3}',
        '{"algorithm": "crc32", "block_bytes": 1048576, "entries": {}}',
        '{"algorithm": "crc32", "block_bytes": 1048576, "entries": {"a": 3}}',
        '{"algorithm": "crc32", "block_bytes": 1048576, "entries": {"a": "00"}}',
        '{"algorithm": "crc32", "block_bytes": 1048576, "entries": {"a": "0000000000000000"}}',
    ],
    ids=lambda text: str(text)[:80],
)
def test_made_up_checksums_are_refused(tmp_path, written):
    entries = {"a": np.zeros(2)}
    text = {} if written is None else {"graphfw.checksums": written}
    text["graphfw.header"] = checksums._header_hash(entries, text)  # anybody can compute it
    save_file(entries, tmp_path / "x", text)
    with pytest.raises(CheckpointError, match=r"damaged|of a newer version"):
        read_checkpoint(tmp_path / "x")


def test_files_without_checksums_are_read(tmp_path):
    save_file({"a": np.zeros(2)}, tmp_path / "x")
    found, text, verified = read_and_verify(tmp_path / "x")
    assert (list(found), text, verified) == (["a"], {}, False)
