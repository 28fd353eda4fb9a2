"""Operands that are computed once: when they are computed again."""

import numpy as np

import graphfw as gf
from graphfw.runtime.numpy_executor.prepare import Preparation


def test_weights_that_an_updating_plan_keeps_are_prepared_once(rng, monkeypatch):
    made = []
    real = Preparation.compute
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    monkeypatch.setattr(
        Preparation, "compute", lambda self, *args, **facts: made.append(real(self, *args, **facts))
    )
    with gf.Graph() as g:
        x = gf.placeholder(("n", 70), name="x")
        w = gf.Variable(rng.standard_normal((70, 90), dtype=np.float32), name="w")
        head = gf.Variable(rng.standard_normal((90, 3), dtype=np.float32), name="head")
        y = gf.relu(x @ w)
        tune = gf.update(head, head - 0.01 * gf.grad(gf.mean((y @ head) ** 2), head))
        grow = gf.update(w, w * 1.5)
    a = rng.standard_normal((40, 70), dtype=np.float32)
    with gf.Session(g, verify="off") as session:
        plan = session.compile([y, tune], [x])
        other = session.compile(grow)
        assert plan._run.loaded.recipe.prepared

        def check(times):
            for _ in range(3):
                expected = np.maximum(a @ session[w], 0)
                np.testing.assert_allclose(plan(a)[0], expected, rtol=1e-4, atol=1e-4)
            assert len(made) == times

        check(1)
        other()  # overwrites the weights in place
        check(2)
        session[w] = rng.standard_normal((70, 90), dtype=np.float32)
        check(3)
