"""`state_dict`, `load_state_dict`, `save` and `restore`: all of a session's state, or an error."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import graphfw as gf
from graphfw.errors import CheckpointError
from graphfw.io import Restored

ROOT = Path(gf.__file__).parents[1]


def momentum_training():
    """A model whose optimiser has state of its own, and whose loss draws random numbers."""
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3), name="x")
        w = gf.Variable(
            lambda shape, dtype: gf.random.normal(shape, dtype=dtype), name="model.w", shape=(3, 2)
        )
        b = gf.Variable(np.zeros(2, ml_dtypes.bfloat16), name="model.b")
        velocity = gf.Variable(
            np.zeros((3, 2)), name="sgd.velocity", trainable=False, dtype="float64"
        )
        count = gf.Variable(0, name="sgd.step", trainable=False)
        drop = gf.random.uniform((3,), name="drop") < 0.5
        out = (x * gf.astype(drop, gf.float32)) @ w + gf.astype(b, gf.float32)
        loss = gf.sum(out * out)
        slope, slope_b = gf.grad(loss, [w, b])
        moved = velocity * 0.9 + gf.astype(slope, gf.float64)
        step = gf.group(
            gf.update(w, w - 0.01 * gf.astype(moved, gf.float32)),
            gf.update(b, b - 0.25 * slope_b),
            gf.update(velocity, moved),
            gf.update(count, count + 1),
        )
    return g, x, loss, step


X = np.array([[1, 2, 3], [4, 5, 6]], np.float32) / 10


def train(session, x, loss, step, count):
    return [float(session.run([loss, step], {x: X})[0]) for _ in range(count)]


def test_training_goes_on_exactly_after_a_restore(tmp_path):
    path = tmp_path / "run.safetensors"
    g, *net = momentum_training()
    with gf.Session(g, seed=7) as session:
        train(session, *net, 3)
        session.save(path)
        expected = train(session, *net, 4)
        final = session.state_dict()
    # A fresh description of the same model, another seed.
    g, *net = momentum_training()
    with gf.Session(g, seed=123) as session:
        train(session, *net, 1)
        assert session.restore(path) == Restored()
        assert session.seed == 7
        assert train(session, *net, 4) == expected
        for name, array in session.state_dict().items():
            assert array.dtype == final[name].dtype
            np.testing.assert_array_equal(array, final[name])


def test_a_file_holds_the_variables_and_step_and_seed_beside_them(tmp_path):
    path = tmp_path / "run.safetensors"
    g, *net = momentum_training()
    with gf.Session(g, seed=-5) as session:
        train(session, *net, 2)
        session.save(str(path))
        state = session.state_dict()
    with safe_open(path, framework="np") as file:
        assert set(file.keys()) == {"model.w", "model.b", "sgd.velocity", "sgd.step"}
        for name in file.keys():
            np.testing.assert_array_equal(file.get_tensor(name), state[name])
        metadata = file.metadata()
        assert metadata.pop("graphfw.checksums")
        assert metadata.pop("graphfw.header")
        assert metadata == {
            "session/step": "2",
            "session/seed": "-5",
            "graphfw/opset": str(g.opset),
        }
    assert state["session/step"] == 2
    assert state["session/seed"] == -5


def test_a_file_of_an_older_version_is_read_with_a_warning(tmp_path):
    session = gf.Session(two(), seed=6)
    metadata = {"session/step": "3", "session/seed": "4", "graphfw/opset": "1"}
    state = {k: v for k, v in session.state_dict().items() if "/" not in k}
    save_file(state, tmp_path / "old", metadata)
    with pytest.warns(UserWarning, match=r"was written by graphfw 0\.1, without checksums"):
        session.restore(tmp_path / "old")
    assert session.seed == 4


@pytest.mark.parametrize("key", ["session/step", "session/seed"])
def test_a_session_s_file_without_step_or_seed_is_refused(tmp_path, key):
    session = gf.Session(two(), seed=6)
    metadata = {"session/step": "3", "session/seed": "4", "graphfw/opset": "1"}
    del metadata[key]
    state = {k: v + 1 for k, v in session.state_dict().items() if "/" not in k}
    save_file(state, tmp_path / "x", metadata)
    for strict in (True, False):
        with pytest.raises(CheckpointError) as caught:
            session.restore(tmp_path / "x", strict=strict)
        assert str(caught.value).startswith(
            f"'{tmp_path}/x' was written by session.save and has no {key}: it is damaged"
        )
    assert session.seed == 6
    np.testing.assert_array_equal(session["encoder.weight"], np.ones((2, 3)))


def test_state_dicts_are_copies_both_ways():
    g, *net = momentum_training()
    session = gf.Session(g)
    state = session.state_dict()
    session.load_state_dict(state)
    for array in state.values():
        array[...] = 0
    assert (session["model.w"] != 0).all()


def test_a_state_before_the_first_run_is_the_initial_one(tmp_path):
    g, *net = momentum_training()
    session = gf.Session(g, seed=3)
    session.save(tmp_path / "start")
    other = gf.Session(g, seed=4)
    other.restore(tmp_path / "start")
    assert train(other, *net, 3) == train(gf.Session(g, seed=3), *net, 3)


# What does not match.


def two(**extra):
    with gf.Graph() as g:
        gf.Variable(np.ones((2, 3), np.float32), name="encoder.weight")
        gf.Variable(np.ones(3, np.float32), name="encoder.bias")
        for name, value in extra.items():
            gf.Variable(value, name=name)
    return g


def test_missing_extra_and_mismatched_entries_are_listed_with_near_names(tmp_path):
    path = tmp_path / "old.safetensors"
    save_file(
        {
            "encoder.wieght": np.zeros((2, 3), np.float32),
            "encoder.bias": np.zeros(4, np.float32),
            "head": np.zeros(1, np.float32),
        },
        path,
    )
    session = gf.Session(two())
    session["encoder.bias"] = [5, 6, 7]
    with pytest.raises(CheckpointError) as caught:
        session.restore(path)
    text = str(caught.value)
    assert str(path) in text
    assert "1 missing, 2 extra, 1 mismatched" in text
    assert "'encoder.weight'  float32[2, 3]  did you mean \"encoder.wieght\"?" in text
    assert "'head'  float32[1]" in text
    assert "'encoder.bias'  expected float32[3], found float32[4]" in text
    np.testing.assert_array_equal(session["encoder.bias"], [5, 6, 7])
    np.testing.assert_array_equal(session["encoder.weight"], np.ones((2, 3)))


def test_a_wrong_dtype_is_a_mismatch_even_when_not_strict():
    session = gf.Session(two())
    state = session.state_dict()
    state["encoder.bias"] = state["encoder.bias"].astype(np.float64)
    for strict in (True, False):
        with pytest.raises(CheckpointError, match=r"expected float32\[3\], found float64\[3\]"):
            session.load_state_dict(state, strict=strict)


def test_not_strict_takes_what_fits_and_returns_the_rest(tmp_path):
    path = tmp_path / "part.safetensors"
    old = gf.Session(two(gone=1.0), seed=9)
    old["encoder.bias"] = [7, 8, 9]
    old.save(path)
    new = gf.Session(two(fresh=2.0))
    with pytest.raises(CheckpointError, match="1 missing, 1 extra"):
        new.restore(path)
    mismatch = new.restore(path, strict=False)
    assert mismatch == Restored(missing=("fresh",), extra=("gone",))
    np.testing.assert_array_equal(new["encoder.bias"], [7, 8, 9])
    assert new["fresh"] == 2
    assert new.seed == 9


def test_an_inference_graph_leaves_out_what_the_optimiser_keeps(tmp_path):
    path = tmp_path / "training.safetensors"
    g, *_ = momentum_training()
    gf.Session(g, seed=9).save(path)
    weights = [v for v in g.variables if v.trainable]
    with gf.Graph() as inference:
        for v in weights:
            gf.Variable(np.zeros(v.shape, v.dtype.dtype), name=v.name)
    session = gf.Session(inference)
    with pytest.raises(CheckpointError) as caught:
        session.restore(path)
    assert caught.value.fix == "pass ignore_extra=True to leave out what the graph does not have"
    found = session.restore(path, ignore_extra=True)
    assert found.missing == ()
    assert found.extra == tuple(sorted(v.name for v in g.variables if not v.trainable))
    for v in weights:
        np.testing.assert_array_equal(session[v.name], gf.Session(g, seed=9)[v])
    with inference:
        gf.Variable([1.0], name="head")
    with pytest.raises(CheckpointError, match="1 missing"):
        session.restore(path, ignore_extra=True)


def test_the_file_of_another_tool_leaves_step_and_seed(tmp_path):
    path = tmp_path / "other.safetensors"
    weights = {"encoder.weight": np.zeros((2, 3), "f4"), "encoder.bias": np.zeros(3, ">f4")}
    session = gf.Session(two(), seed=6)
    save_file({k: v.astype("f4") for k, v in weights.items()}, path)
    with pytest.warns(UserWarning, match="without checksums") as caught:
        session.restore(path)
    assert caught[0].filename == __file__
    assert str(caught[0].message) == (
        f"'{path}' was written by another program, without checksums: damage of its arrays can't "
        "be seen. session.save writes them"
    )
    assert session.seed == 6
    session.load_state_dict(weights)
    assert session["encoder.bias"].dtype.isnative
    np.testing.assert_array_equal(session.run("encoder.bias"), [0, 0, 0])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("session/step", "x"),
        ("session/step", -1),
        ("session/step", 2**63),
        ("session/step", None),
        ("session/seed", 2**64),
        ("session/seed", [1, 2]),
    ],
)
def test_a_step_or_seed_that_makes_no_sense_changes_nothing(key, value):
    session = gf.Session(two(), seed=1)
    state = session.state_dict()
    with pytest.raises(CheckpointError, match=f'"{key}" in the state is .*which is no number'):
        session.load_state_dict({**state, "encoder.bias": np.zeros(3, np.float32), key: value})
    np.testing.assert_array_equal(session["encoder.bias"], [1, 1, 1])
    assert session.seed == 1


def test_entries_that_are_no_arrays():
    session = gf.Session(two())
    with pytest.raises(CheckpointError, match=r'"encoder.bias" is no array of numbers'):
        session.load_state_dict({**session.state_dict(), "encoder.bias": object()})


def test_files_that_cannot_be_read(tmp_path):
    session = gf.Session(two())
    with pytest.raises(CheckpointError, match="no such file"):
        session.restore(tmp_path / "none.safetensors")
    (tmp_path / "bad").write_bytes(b"\x10garbage")
    with pytest.raises(CheckpointError, match="damaged, cut short or not a safetensors file"):
        session.restore(tmp_path / "bad")
    with pytest.raises(CheckpointError, match="there is no folder"):
        session.save(tmp_path / "no" / "folder")


# Atomic.


def test_a_save_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "run.safetensors"
    session = gf.Session(two())
    session.save(path)
    old = path.read_bytes()
    session["encoder.bias"] = [9, 9, 9]

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match="No space left"):
        session.save(path)
    assert path.read_bytes() == old
    assert os.listdir(tmp_path) == ["run.safetensors"]


WRITER = """
import sys
import numpy as np
import graphfw as gf
with gf.Graph() as g:
    v = gf.Variable(np.zeros(200_000, np.float32), name="v")
    w = gf.Variable(np.zeros(200_000, np.float32), name="w")
    step = gf.group(gf.update(v, v + 1), gf.update(w, w + 1))
session = gf.Session(g)
session.save(sys.argv[1])
print("ready", flush=True)
while True:
    session.run(step)
    session.save(sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_killed_writer_leaves_a_whole_file(tmp_path, rng):
    path = tmp_path / "run.safetensors"
    with gf.Graph() as g:
        for name in ("v", "w"):
            gf.Variable(np.zeros(200_000, np.float32), name=name)
    reader = gf.Session(g)
    for _ in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        with writer:
            while b"ready" not in writer.stdout.readline():
                assert writer.poll() is None
            time.sleep(rng.uniform(0, 0.05))
            writer.kill()
        reader.restore(path)
        v, w = reader["v"], reader["w"]
        assert (v == v[0]).all()
        np.testing.assert_array_equal(v, w)


def test_saving_while_training_writes_one_step(tmp_path):
    path = tmp_path / "run.safetensors"
    with gf.Graph() as g:
        v = gf.Variable(np.zeros(1000, np.float32), name="v")
        w = gf.Variable(np.zeros(1000, np.float32), name="w")
        noise = gf.random.uniform((1000,), name="u")
        step = gf.group(gf.update(v, v + 1), gf.update(w, w + 1 + 0 * noise))
    session, reader = gf.Session(g), gf.Session(g)
    done = threading.Event()

    def work():
        while not done.is_set():
            session.run(step)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            session.save(path)
            reader.restore(path)
            state = reader.state_dict()
            assert (state["v"] == state["v"][0]).all()
            np.testing.assert_array_equal(state["v"], state["w"])
            # A run that draws takes its step at its start, and commits at its end.
            assert 0 <= state["session/step"] - state["v"][0] <= 1
    finally:
        done.set()
        for thread in threads:
            thread.join(30)


def test_metadata_is_text_that_json_tools_can_read(tmp_path):
    path = tmp_path / "run.safetensors"
    gf.Session(two(), seed=2**62).save(path)
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert header["__metadata__"]["session/seed"] == str(2**62)


def test_metadata_is_kept_in_the_file_and_returned(tmp_path):
    kept = {
        "epoch": 3, "best": np.float32(0.25), "at": np.int64(7), "history": [1.5, float("inf")],
        "data": {"position": (2, 5), "name": "Zürich"}, "is_last": False, "note": None,
    }  # fmt: skip
    with gf.Graph() as g:
        gf.Variable(np.ones(3), name="w")
    with gf.Session(g) as session:
        session.save(tmp_path / "run.safetensors", metadata=kept)
        session.save(tmp_path / "plain.safetensors")
    with gf.Session(g) as session:
        restored = session.restore(tmp_path / "run.safetensors")
        assert restored.metadata == {
            "epoch": 3, "best": 0.25, "at": 7, "history": [1.5, float("inf")],
            "data": {"position": [2, 5], "name": "Zürich"}, "is_last": False, "note": None,
        }  # fmt: skip
        assert session.restore(tmp_path / "plain.safetensors") == Restored()
    with gf.Graph() as other:
        gf.Variable(np.ones(4), name="v")
    with gf.Session(other) as session:
        found = session.restore(tmp_path / "run.safetensors", strict=False)
        assert (found.missing, found.extra) == (("v",), ("w",))
        assert found.metadata["epoch"] == 3


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        (["epoch", 3], "a list, not a dict"),
        ({"a": {3: 4}}, r"metadata\['a'\] has the key 3"),
        ({"a": [1, np.ones(3)]}, r"metadata\['a'\]\[1\] is .*array"),
        ({"a": {1, 2}}, "a set, which JSON does not have"),
        ({"a": 1j}, "a complex, which JSON does not have"),
    ],
)
def test_metadata_that_json_does_not_have_is_refused(tmp_path, metadata, why):
    with gf.Graph() as g:
        gf.Variable(np.ones(3), name="w")
    path = tmp_path / "run.safetensors"
    with gf.Session(g) as session:
        session.save(path, metadata={"epoch": 1})
        with pytest.raises(gf.ArgumentError, match=why):
            session.save(path, metadata=metadata)
        assert session.restore(path).metadata == {"epoch": 1}
