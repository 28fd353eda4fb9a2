"""A training that is killed at any moment goes on to the same bits, from one checkpoint."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import graphfw as gf

ROOT = Path(gf.__file__).parents[1]

TRAINING = """
import sys, time
from pathlib import Path
import numpy as np
import graphfw as gf

path, ahead, pause = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
rng = np.random.default_rng(0)
x = rng.standard_normal((100, 4)).astype(np.float32)
data = gf.data.batches({"x": x, "y": x.sum(axis=1, keepdims=True)}, 8, seed=3, epochs=5)
with gf.Graph() as g:
    xs = gf.placeholder(("batch", 4), name="x")
    ys = gf.placeholder(("batch", 1), name="y")
    out = gf.nn.Linear(8, 1)(gf.dropout(gf.relu(gf.nn.Linear(4, 8)(xs)), p=0.2))
    step = gf.optim.Adam(1e-2).minimize(gf.mean((out - ys) ** 2))
with gf.Session(g, seed=1) as session:
    plan = session.compile(step, feeds=[xs, ys])
    position = None
    if path.exists():
        position = session.restore(path).metadata["data"]
    with gf.data.feeds(data, plan, ahead=ahead, position=position) as feeds:
        for number, feed in enumerate(feeds):
            plan(*feed.values())
            if number % 5 == 4:
                session.save(path, metadata={"data": feeds.position})
                time.sleep(pause)
    session.save(path, metadata={"data": feeds.position, "done": True})
"""


def started(path, ahead, pause):
    command = [sys.executable, "-c", TRAINING, str(path), str(ahead), str(pause)]
    return subprocess.Popen(command, cwd=ROOT)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_killed_and_resumed_training_has_the_same_weights(tmp_path, rng):
    whole, killed = tmp_path / "whole.safetensors", tmp_path / "killed.safetensors"
    assert started(whole, 0, 0).wait(120) == 0
    kills = 0
    while True:
        before = killed.stat().st_mtime_ns if killed.exists() else 0
        process = started(killed, int(rng.integers(4)), 0.02)
        until = time.monotonic() + 120
        while kills < 5 and process.poll() is None and time.monotonic() < until:
            if killed.exists() and killed.stat().st_mtime_ns > before:  # it has got on
                time.sleep(rng.uniform(0, 0.02))
                process.kill()
                kills += 1
                break
            time.sleep(0.001)
        if process.wait(120) == 0:
            break
    assert kills == 5
    (one, text), (other, again) = [gf.io.read_checkpoint(path) for path in (whole, killed)]
    assert text == again
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(other[name], array, err_msg=name)
