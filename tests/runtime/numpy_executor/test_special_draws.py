"""random_bits, natively: the bits of the reference, where they are used or by themselves."""

import threading

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.op import Rng
from graphfw.ir.shape import size_of
from graphfw.ops.random.draws import RandomBits
from graphfw.runtime.planning.draws import Draws, drawn_keys
from tests.runtime.numpy_executor.special_runs import assert_native, plan_of, same


@pytest.fixture(autouse=True)
def native(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")


@pytest.mark.exhaustive
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


def steps_of(plan):
    return [step for level in plan._run.build.levels for step in level.steps]


def written_dtypes(plan):
    """Return the dtypes of the arrays that a plan writes."""
    return {
        storage.dtype.name
        for step in steps_of(plan)
        for storage, written in zip(step.operands, step.written, strict=True)
        if written
    }


def both_ways(monkeypatch, g, fetches, feeds, arrays):
    """The plan, and what it gives in its second run; and what the reference gives."""
    plan = gf.Session(g, seed=3).compile(fetches, feeds)
    assert_native(plan)
    plan(*arrays)
    found = plan(*arrays)
    monkeypatch.setenv("GRAPHFW_JIT", "0")
    other = gf.Session(g, seed=3).compile(fetches, feeds)
    other(*arrays)
    return plan, found, other(*arrays)


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize("shape", [(), (1,), (3, 0), (7, 33), (5, 1, 130), (64, 64), (3001,)])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_noise_is_made_where_it_is_used(shape, dtype, rng, monkeypatch):
    with gf.Graph() as g:
        x = gf.placeholder(shape, dtype, name="x")
        c = gf.placeholder(shape, dtype, name="c")
        dropped = gf.dropout(x, 0.3, name="dropped")
        (dx,) = gf.grad(gf.sum(dropped * c), [x])
        noisy = x * gf.random.uniform(shape, dtype=dtype, name="noise")
        dice = gf.random.randint(0, 1000, shape, name="dice") + 1
    arrays = [rng.standard_normal(shape).astype(x.dtype.dtype) for _ in range(2)]
    fetches = [dropped, dx, noisy, dice]
    plan, found, wanted = both_ways(monkeypatch, g, fetches, [x, c], arrays)
    for ours, theirs in zip(found, wanted, strict=True):
        same(ours, theirs)
    assert not written_dtypes(plan) & {"uint32", "uint64", "bool"}


@pytest.mark.parametrize("shape", [(7, 33), (40, 1), (65, 64)])
def test_noise_that_is_read_in_other_ways(shape, rng, monkeypatch):
    with gf.Graph() as g:
        x = gf.placeholder(shape, name="x")
        noise = [gf.random.uniform(shape, name=f"noise{i}") for i in range(6)]
        across = gf.permute_dims(noise[0], (1, 0)) + 1
        cropped = noise[1][1:, ::-1] * 2
        of_rows = x + gf.random.uniform((shape[0], 1), name="rows")
        of_columns = x + gf.random.uniform((shape[1],), name="columns")
        sums = gf.sum(noise[2], axis=1), gf.sum(noise[3] * x, axis=0), gf.max(noise[4])
        picked = gf.take(noise[5], gf.argmax(x, axis=0), axis=0)
        several = noise[4] * x
        spread = gf.softmax(x + noise[4], axis=-1)
    fetches = [across, cropped, of_rows, of_columns, picked, several, *sums, spread]
    array = rng.standard_normal(shape, np.float32)
    _, found, wanted = both_ways(monkeypatch, g, fetches, [x], [array])
    for ours, theirs in zip(found[:6], wanted[:6], strict=True):
        same(ours, theirs)
    for ours, theirs in zip(found[6:], wanted[6:], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_a_mask_is_kept_for_the_gradient(rng, monkeypatch):
    with gf.Graph() as g:
        x = gf.placeholder((64, 100), name="x")
        w = gf.placeholder((100, 48), name="w")
        y = gf.tanh(gf.dropout(x, 0.2, name="d") @ w)
        (dx,) = gf.grad(gf.sum(y), [x])
    arrays = [rng.standard_normal(shape, np.float32) for shape in ((64, 100), (100, 48))]
    plan, found, wanted = both_ways(monkeypatch, g, [y, dx], [x, w], arrays)
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-4, atol=1e-4)
    assert "bool" in written_dtypes(plan)
    names = [{node.op.name for node in step.nodes} for step in steps_of(plan)]
    assert len([True for ops in names if "random_bits" in ops]) == 1


@pytest.mark.parametrize(("m", "n"), [(64, 48), (37, 131), (300, 515)])
def test_dropout_behind_a_product(m, n, rng, monkeypatch):
    with gf.Graph() as g:
        x = gf.placeholder((m, 20), name="x")
        w = gf.placeholder((20, n), name="w")
        y = gf.dropout(gf.relu(x @ w), 0.4, name="d")
    arrays = [rng.standard_normal(shape, np.float32) for shape in ((m, 20), (20, n))]
    plan, found, wanted = both_ways(monkeypatch, g, [y], [x, w], arrays)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-4, atol=1e-4)
    assert np.mean((found[0] == 0) == (wanted[0] == 0)) > 0.999
    assert len(steps_of(plan)) == 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normal_noise(dtype, rng, monkeypatch):
    with gf.Graph() as g:
        x = gf.placeholder((33, 70), dtype, name="x")
        y = x + gf.random.normal((33, 70), dtype=dtype, name="noise")
        z = x + gf.random.truncated_normal((33, 70), dtype=dtype, name="cut")
    array = np.zeros((33, 70), dtype)
    plan, found, wanted = both_ways(monkeypatch, g, [y, z], [x], [array])
    tolerance = 2e-6 if dtype == "float32" else 3e-15
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance)
    assert not written_dtypes(plan) & {"uint32", "uint64", "bool"}


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
    assert not Draws(drawn_keys(gf.Graph()))
    draws = Draws(drawn_keys(g))
    assert size_of((draws.storage.size,)) == 2
    assert draws.array(Rng(1, 2**64 - 1))[0] == -1
    assert draws.array(Rng(1, 0))[1] != draws.array(Rng(2, 0))[1]
