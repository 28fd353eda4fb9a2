"""Operands prepared once for many runs, and when they are prepared again."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.runtime.cupy_executor import capture
from graphfw.runtime.planning import hoist as planning
from tests.strict_xp import plain_array

RUNS = capture.RUNS


def drawn(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


def network(rng, *, trains=True):
    """A convolution whose weight is laid out for it, and what may update the weight."""
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3, "h", 6), name="x")
        w = gf.Variable(drawn(rng, 5, 3, 3, 3), name="w")
        b = gf.Variable(drawn(rng, 5, 1, 1), name="b")
        y = gf.tanh(gf.conv(x, w, padding=1) + b)
        for _ in range(3):
            y = gf.tanh(y - gf.mean(y, axis=0))
        if not trains:
            return g, x, y
        loss = gf.mean(y * y)
        step = gf.update(w, w - 0.5 * gf.grad(loss, w))
        other = gf.update(b, b + gf.mean(y))
    return g, x, y, step, other


def host_session(g, **options):
    """Return a session on the CPU that convolves directly.

    Winograd's algorithms, which pay with AVX2, have larger errors than the tests' tolerance.
    """
    return gf.Session(g, winograd=False, **options)


def packings(fake):
    """Return how often kernels were laid out since this was asked the last time."""
    count = sum("conv_pack" in launch[0] for launch in fake.launches)
    fake.launches.clear()
    return count


def same(one, other):
    np.testing.assert_allclose(plain_array(one), other, rtol=2e-5, atol=2e-6)


def test_kernels_are_laid_out_once_for_all_sizes(fake, session, rng):
    g, x, y = network(rng, trains=False)
    gpu, cpu = session(g), host_session(g)
    counts = []
    for n in (2, 2, 1, 2, 2):
        feed = {x: drawn(rng, n, 3, 4 + n, 6)}
        same(gpu.run(y, feed), cpu.run(y, feed))
        counts.append(packings(fake))
    assert counts == [1, 0, 0, 0, 0]


@pytest.mark.exhaustive
@pytest.mark.parametrize("runs", [1, RUNS + 2], ids=["launched", "recorded"])
@pytest.mark.parametrize("how", ["assigned", "restored", "updated", "checked"])
def test_what_is_new_is_laid_out_again(fake, session, rng, how, runs):
    g, x, y, step, _ = network(rng)
    finite = {"check_finite": True} if how == "checked" else {}
    gpu, cpu = session(g, **finite), host_session(g, seed=3)
    feed = {x: drawn(rng, 2, 3, 6, 6)}
    for _ in range(3):
        counts = []
        for _ in range(runs):
            same(gpu.run(y, feed), cpu.run(y, feed))
            counts.append(packings(fake))
        assert counts == [1, *[0] * (runs - 1)]
        for one in (gpu, cpu):
            if how == "assigned":
                one["w"] = one["w"] * 0.5 - 1
            elif how == "restored":
                weights = {name: array * 2 for name, array in one.state_dict().items()}
                one.load_state_dict({"w": weights["w"], "b": weights["b"]})
            else:
                one.run(step, feed)
        fake.launches.clear()


def test_it_stays_where_it_is_when_variables_do(fake, session, rng):
    g, x, y, step, _ = network(rng)
    gpu, cpu = session(g), host_session(g, seed=3)
    plan, image = gpu.compile(y, [x]), drawn(rng, 2, 3, 6, 6)
    found = []
    for _ in range(RUNS + 4):
        for one in (gpu, cpu):
            one.run(step, {x: image})
        same(plan(image), cpu.run(y, {x: image}))
        made = plan._run._preparation._values._newest.memory
        found.append((id(made.memory), len(fake.streams.graphs)))
    assert "CUDA graphs: 1," in plan.explain(image.shape)
    assert len({*found[RUNS + 1 :]}) == 1, "the graphs are still of use"
    assert len({memory for memory, _ in found}) == 1


def test_what_training_does_not_change(fake, session, rng):
    g, x, y, _, other = network(rng)
    gpu, cpu = session(g), host_session(g, seed=3)
    feeds = [{x: drawn(rng, 2, 3, 6, 6)} for _ in range(RUNS + 3)]
    wanted = [cpu.run([y, other], feed)[0] for feed in feeds]
    for feed, ones in zip(feeds, wanted, strict=True):
        same(gpu.run([y, other], feed)[0], ones)
    assert packings(fake) == 1
    np.testing.assert_allclose(gpu["b"], cpu["b"], rtol=2e-5)


def test_of_constants_it_is_made_for_good(fake, session, rng):
    values = drawn(rng, 5, 3, 3, 3)
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3, 6, 6), name="x")
        b = gf.Variable(drawn(rng, 5, 1, 1), name="b")
        y = gf.conv(x, gf.asarray(values), padding=1) + b
    gpu, cpu = session(g), host_session(g)
    feed = {x: drawn(rng, 2, 3, 6, 6)}
    for _ in range(RUNS + 2):
        same(gpu.run(y, feed), cpu.run(y, feed))
        for one in (gpu, cpu):
            one["b"] = one["b"] + 1
    assert packings(fake) == 1
    plan = gpu.compile(y, [x])
    assert "made once, for good, " in plan.explain()
    kinds = {entry.kind: entry.nbytes for entry in plan.memory((2, 3, 6, 6)).entries}
    assert "constant" not in kinds, "it is not needed any more"
    assert kinds["prepared"] >= values.nbytes


def test_casts_of_mixed_precision(fake, session, rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 16), name="x")
        first, last = gf.nn.Linear(16, 32, name="first"), gf.nn.Linear(32, 8, name="last")
        y = last(gf.tanh(first(x)))
    gpu, cpu = [make(g, precision="mixed-bf16") for make in (session, gf.Session)]
    cpu.load_state_dict(gpu.state_dict())
    counts = []
    for _ in range(4):
        feed = {x: drawn(rng, 3, 16)}
        found, wanted = plain_array(gpu.run(y, feed)), cpu.run(y, feed)
        np.testing.assert_allclose(found.astype(float), wanted.astype(float), atol=0.05)
        counts.append(len(fake.launches))
        fake.launches.clear()
    assert counts[0] == counts[1] + 4, "two weights, two biases"
    plan = gpu.compile(y, [x])
    assert "again when one of 4 variables has changed" in plan.explain()
    report = plan.memory((3, 16))
    assert report.of("prepared") == 2 * (16 * 32 + 32 + 32 * 8 + 8)
    assert report.peak >= report.of("variable") + report.of("prepared")


def test_what_is_fetched_is_everybodys_own(session, rng):
    values = drawn(rng, 4, 4)
    with gf.Graph() as g:
        w = gf.Variable(values, name="w")
        y = gf.exp(w) - 1.0
    gpu = session(g)
    one, other = gpu.run(y), gpu.run(y)
    plain_array(one)[:] = 0
    same(other, np.exp(values) - 1)
    assert gpu.compile(y, [])._run.build.once.kept == []


def test_what_is_cheap_to_make_is_not_kept(session, rng, monkeypatch):
    with gf.Graph() as g:
        x = gf.placeholder((8, 64), name="x")
        v = gf.Variable(drawn(rng, 64), name="v")
        spread = gf.reshape(gf.exp(v)[:, None] * gf.tanh(v), (64, 64))
        y = x @ spread
    small = session(g).compile(y, [x])._run.build.once
    monkeypatch.setattr(planning, "_SMALL", 0)
    none = session(g).compile(y, [x])._run.build.once
    assert [s.size for s in small.kept] == [64 * 64]
    assert not any(s.size == 64 * 64 for s in none.kept)


def test_half_a_join_is_made_in_each_run(session, rng):
    with gf.Graph() as g:
        x = gf.placeholder((20, 8), name="x")
        w = gf.Variable(drawn(rng, 20, 8), name="w")
        y = gf.tanh(gf.concat([gf.exp(w), gf.sin(x)], axis=1) @ gf.concat([x, x], axis=0)[:16])
    gpu, cpu = session(g), host_session(g, seed=3)
    for _ in range(RUNS + 2):
        feed = {x: drawn(rng, 20, 8)}
        np.testing.assert_allclose(plain_array(gpu.run(y, feed)), cpu.run(y, feed), atol=1e-4)


def test_another_stream_waits_for_what_is_made(fake, session, rng):
    fake.streams.is_done = False
    g, x, y = network(rng, trains=False)
    gpu, cpu = session(g), host_session(g)
    feed = {x: drawn(rng, 2, 3, 6, 6)}
    one, other = fake.cuda.Stream(), fake.cuda.Stream()
    with one:
        gpu.run(y, feed)
    fake.streams.waits.clear()
    with other:
        found = gpu.run(y, feed)
    assert (other.ptr, one.ptr) in {(a, b) for a, b in fake.streams.waits}
    same(found, cpu.run(y, feed))
