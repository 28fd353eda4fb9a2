"""Small kernels that are alike, and need not wait for one another, are one launch."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ExecutionError
from graphfw.runtime.cupy_executor import capture
from graphfw.runtime.cupy_executor.codegen import batched_launch
from tests.strict_xp import plain_array
from tests.support.cuda_compilers import compiled
from tests.support.gpu_programs import on_cpu


def many(fake):
    return [name for name, *_ in fake.launches if name.endswith(batched_launch.MANY)]


def parallel(count, sizes, make=gf.sin):
    with gf.Graph() as g:
        xs = [gf.placeholder((sizes[k % len(sizes)],), name=f"x{k}") for k in range(count)]
        ys = [make(x) * 2.0 for x in xs]
    return g, xs, ys


def compared(session, g, xs, ys, arrays):
    gpu, cpu = session(g), gf.Session(g)
    plan = gpu.compile(ys, xs)
    found, wanted = plan(*arrays), cpu.compile(ys, xs)(*arrays)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(plain_array(one), other, rtol=1e-5, atol=1e-6)
    return plan


@pytest.mark.parametrize("count", [1, 2, 16, 17, 35])
def test_as_many_as_fit_go_together(fake, session, rng, count):
    g, xs, ys = parallel(count, [8, 4, 0, 2048])
    arrays = [rng.normal(size=x.shape).astype(np.float32) for x in xs]
    plan = compared(session, g, xs, ys, arrays)
    number = len(plan._run.build.work)
    assert len(fake.launches) < max(2, number / 3 + 2)
    assert bool(many(fake)) is (count > 1)


def test_sizes_that_are_not_known_before(fake, session, rng):
    g, xs, ys = parallel(6, ["n", "m"])
    for n, m in ((5, 9), (4, 8), (0, 3)):
        arrays = [rng.normal(size=[n, m][k % 2]).astype(np.float32) for k in range(6)]
        fake.launches.clear()
        compared(session, g, xs, ys, arrays)
        assert len(fake.launches) <= 2
        assert many(fake)


def test_large_ones_go_alone(fake, session, rng):
    size = 4 * 256 * batched_launch._SMALL
    g, xs, ys = parallel(4, [size, size + 4])
    arrays = [rng.normal(size=x.shape).astype(np.float32) for x in xs]
    compared(session, g, xs, ys, arrays)
    assert len(fake.launches) == 3, "two of a size that is still small"


def test_what_waits_for_another_does(fake, session, rng):
    with gf.Graph() as g:
        x = gf.placeholder((7,), name="x")
        ys = [x]
        for _ in range(4):
            ys.append(gf.roll(gf.sin(ys[-1]), 1, axis=0))
    compared(session, g, [x], ys[1:], [rng.normal(size=7).astype(np.float32)])
    assert not many(fake)


def test_updates_of_many_weights(fake, session, rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 6), name="x")
        y = x
        for k in range(5):
            y = gf.tanh(gf.nn.Linear(6, 6, name=f"layer{k}")(y))
        loss = gf.mean(y * y)
        train = gf.optim.AdamW(1e-2).minimize(loss)
    feeds = [{x: rng.normal(size=(4, 6)).astype(np.float32)} for _ in range(capture.RUNS + 3)]
    wanted, state = on_cpu(g, [loss, train], feeds)
    gpu = session(g)
    found = [gpu.run([loss, train], feed)[0] for feed in feeds]
    np.testing.assert_allclose(
        [plain_array(one) for one in found], [ones[0] for ones in wanted], rtol=1e-4
    )
    for name, array in gpu.state_dict().items():
        np.testing.assert_allclose(array, state[name], rtol=1e-3, atol=1e-5, err_msg=name)
    plan = gpu.compile([loss, train], [x])
    build = plan._run.build
    launched = sum(len(wave) for layout in plan._run.layout((4,)).final for wave in layout)
    assert launched == 3, "weights, biases, the number of the step"
    assert len(build.work) - build.final == 2 * 5 + 1
    assert ", in one launch with others" in plan.explain((4, 6))
    assert len(plan.profile(feeds[0][x]).timings) < len(build.work)


@pytest.mark.usefixtures("bodies_have_steps")
@pytest.mark.parametrize("width", [8, 5])  # rows of 5 do not lie as vectors must
def test_in_bodies_of_loops(fake, session, rng, width):
    with gf.Graph() as g:
        xs = [gf.placeholder((4, width), name=f"x{k}") for k in range(3)]
        w = gf.placeholder((width, width), name="w")

        def iteration(carry, rows):
            made = [gf.sin(c) + r for c, r in zip(carry, rows, strict=True)]
            return [*made[:2], made[2] @ w], made[0] @ w

        last, stack = gf.scan(iteration, [gf.ones(width)] * 3, xs)
    arrays = [rng.normal(size=x.shape).astype(np.float32) for x in [*xs, w]]
    arrays[-1] /= width  # larger weights multiply rounding errors, iteration by iteration
    plan = compared(session, g, [*xs, w], [*last, stack], arrays)
    (region,) = plan._run.layout(()).regions
    (body,) = region.bodies
    together_in_body = [one for one in many(fake) if one in plan.source()]
    assert len(together_in_body) == 4, "one an iteration"
    assert body.launches == 3, "three sums, two products"
    assert ", in one launch with others" in plan.explain()
    assert plan.profile(*arrays).timings


def test_checks_of_each_are_seen(fake, session, rng):
    g, xs, ys = parallel(3, [4], lambda x: gf.take(gf.exp(x), gf.astype(x, gf.int64), axis=0))
    good = [np.arange(4).astype(np.float32) for _ in xs]
    plan = compared(session, g, xs, ys, good)
    for k in range(3):
        bad = [*good[:k], good[k] + 1, *good[k + 1 :]]
        with pytest.raises(ExecutionError, match="index 4 is out of range"):
            plan(*bad, host=True)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_gpus_compilers_take_it(fake, session, architecture):
    g, xs, ys = parallel(3, ["n"])
    source = session(g).compile(ys, xs).source()
    assert source.count(f"vector{batched_launch.MANY}(") == 1
    assert compiled(source, architecture)
