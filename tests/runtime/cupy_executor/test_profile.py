"""`plan.profile` on a GPU, by events."""

import re
from itertools import pairwise

import numpy as np

import graphfw as gf
from graphfw.ir.tensor import Node
from graphfw.runtime.cupy_executor import profiling


def test_a_table_by_step_and_line(anywhere, rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 8), name="x")
        v = gf.Variable(np.ones(8, np.float32), name="v")
        y = gf.sort(gf.softmax(x * v, axis=1), axis=1)
        z = gf.sum(gf.tanh(y - gf.random.uniform((8,))), axis=0)
        grow = gf.update(v, v + z)
    with gf.Session(g, "cupy") as session:
        plan = session.compile([z, grow], [x])
        before = session["v"]
        profile = plan.profile(rng.normal(size=(5, 8)).astype(np.float32))
        np.testing.assert_array_equal(session["v"], before)
        steps = len(plan._run.build.work)
    assert sorted(timing.step for timing in profile.timings) == list(range(steps))
    assert all(timing.seconds > 0 for timing in profile.timings)
    events = sorted(profile.events)
    assert all(a.end <= b.begin for a, b in pairwise(events))
    text = str(profile)
    assert "sort" in text
    assert re.search(r"softmax|exp.*test_profile.py:\d+", text)
    assert "ms on the clock" in text


def test_the_gpu_waits_until_steps_are_launched(fake, monkeypatch, rng):
    opened = []

    class Gate:
        """Notes how many kernels have been launched when it is opened."""

        def set(self):
            opened.append(len(fake.launches))

        def wait(self, seconds):
            assert seconds == profiling._PATIENCE

    monkeypatch.setattr(profiling, "Gate", Gate)
    data = rng.normal(size=(5, 8)).astype(np.float32)
    with gf.Graph() as g:
        x = gf.placeholder(("n", 8), name="x")
        y = gf.softmax(gf.exp(x) - gf.sum(gf.exp(x), axis=0), axis=1)
        z = gf.exp(gf.sort(y, axis=1))
    with gf.Session(g, "cupy") as session:
        for fetched in (y, z):
            plan = session.compile(fetched, [x])
            kernels = [n for n, one in enumerate(plan._run.build.work) if not isinstance(one, Node)]
            plan(data)
            fake.launches.clear()
            opened.clear()
            plan.profile(data)
            # All of them, or those before what CuPy computes: it may wait for these.
            first = len(kernels) + (len(kernels) if fetched is y else 2)
            assert opened[0] == first
            assert opened[-1] == len(fake.launches) == 2 * len(kernels)
        monkeypatch.setattr(profiling, "_AHEAD", 1)
        opened.clear()
        fake.launches.clear()
        plan.profile(data)
        assert opened[0] == len(kernels) + 1, "CUDA has no room for more"
