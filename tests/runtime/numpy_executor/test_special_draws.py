"""random_bits, natively: the bits of the reference, to the last one."""

import threading

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.op import Rng
from graphfw.ir.shape import size_of
from graphfw.ops.draws import RandomBits
from graphfw.runtime.numpy_executor.special.draws import Draws
from tests.runtime.numpy_executor.special_runs import assert_native, plan_of, same


@pytest.fixture(autouse=True)
def native(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")


@pytest.mark.parametrize("words", [1, 2])
@pytest.mark.parametrize(
    "dims", [(), (0,), (1,), (2,), (3,), (31,), (32,), (33,), (64,), (65,), (127,), (3, 5, 7),
             (8191,), (8192,), (16385,), (50003,)]
)  # fmt: skip
def test_bits(dims, words):
    op = RandomBits("a/b", dims, words)
    plan, _ = plan_of(op, (), seed=-5)
    for step in range(3):
        same(plan(), np.asarray(op.eval(np, rng=Rng(-5, step))))


@pytest.mark.parametrize("step", [0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1])
@pytest.mark.parametrize("seed", [0, 2**80 + 3])
def test_any_seed_and_step(seed, step):
    op = RandomBits("x", (77,))
    plan, _ = plan_of(op, ())
    run, rng = plan._run, Rng(seed, step)
    (got,) = run((), (), rng, 0, None)
    same(got, op.eval(np, rng=rng))


def dropped():
    with gf.Graph() as g:
        x = gf.placeholder(("n", 30), name="x")
        w = gf.Variable(np.ones(30, np.float32), name="w")
        noisy = gf.dropout(x * w, 0.3, training=True) + gf.random.uniform((30,), name="noise")
        other = gf.random.randint(0, 1000, (x.shape[0],), name="other")
        loss = gf.mean(noisy**2)
        train = gf.optim.SGD(0.1).minimize(loss)
    return g, x, [noisy, other, loss, train]


def results(g, x, fetches, fed, runs=3):
    session = gf.Session(g, seed=11)
    plan = session.compile(fetches, [x])
    return plan, [plan(fed)[:3] for _ in range(runs)], session.state_dict()


def test_training_with_dropout(rng, monkeypatch):
    g, x, fetches = dropped()
    fed = rng.standard_normal((9, 30)).astype(np.float32)
    plan, got, state = results(g, x, fetches, fed)
    assert_native(plan)
    monkeypatch.setenv("GRAPHFW_JIT", "0")
    _, wanted, expected = results(g, x, fetches, fed)
    for ours, theirs in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(ours[1], theirs[1])
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=3e-6, atol=1e-6)
    np.testing.assert_allclose(state["w"], expected["w"], rtol=1e-5)
    assert not np.array_equal(got[0][1], got[1][1])


def test_a_profile_and_a_replay_draw_too(rng):
    g, x, fetches = dropped()
    fed = rng.standard_normal((9, 30)).astype(np.float32)
    session = gf.Session(g, seed=1)
    plan = session.compile(fetches, [x])
    assert plan.profile(fed)
    wanted = gf.Session(g, seed=1, verify="first-run").compile(fetches, [x])(fed)
    np.testing.assert_array_equal(wanted[1], gf.Session(g, seed=1).compile(fetches, [x])(fed)[1])


def test_runs_at_once_draw_from_their_own_steps():
    op = RandomBits("x", (40000,))
    plan, _ = plan_of(op, ())
    found = {}

    def work(step):
        found[step] = plan._run((), (), Rng(7, step), 0, None)[0]

    threads = [threading.Thread(target=work, args=(step,)) for step in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for step, got in found.items():
        same(got, op.eval(np, rng=Rng(7, step)))


def test_what_a_run_draws_from():
    with gf.Graph() as g:
        gf.random.normal((2,), name="a")
    assert not Draws(gf.Graph())
    draws = Draws(g)
    assert size_of((draws.storage.size,)) == 2
    assert draws.array(Rng(1, 2**64 - 1))[0] == -1
    assert draws.array(Rng(1, 0))[1] != draws.array(Rng(2, 0))[1]
