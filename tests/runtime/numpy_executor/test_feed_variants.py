"""Plans have variants for feeds that are not C-contiguous, which give the same bits."""

from __future__ import annotations

import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphfw as gf
from graphfw.runtime.numpy_executor import feed_variants as module
from tests.runtime.numpy_executor.special_runs import same

DTYPES = (bool, np.int8, np.uint16, ml_dtypes.bfloat16, np.float16, np.float32, np.int64)


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the second run with feeds of some layouts compile a variant."""
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    monkeypatch.setattr(module, "_COPIED", 0)


def laid(rng: np.random.Generator, array: Any) -> Any:
    """Return an array with the same elements, of some layout."""
    axes = rng.permutation(array.ndim)
    steps = [int(rng.choice([1, 1, 1, -1, 2, -3, 9])) for _ in axes]
    margins = [int(rng.integers(0, 3)) for _ in axes]
    shape = [
        m + array.shape[axis] * abs(s) for axis, s, m in zip(axes, steps, margins, strict=True)
    ]
    held = np.zeros(shape, array.dtype)
    view = held[tuple([slice(m, None, abs(s)) for s, m in zip(steps, margins, strict=True)])]
    view = view[tuple([slice(None, None, 1 if s > 0 else -1) for s in steps])]
    view = view.transpose(np.argsort(axes))
    view = view[tuple([slice(0, size) for size in array.shape])]
    view[...] = array
    return view


def variants(plan: Any) -> list[Any]:
    """Return the variants that a plan has compiled."""
    kept = plan._run.variants._variants.values()
    return [one.executable for one in kept if one.executable is not None]


def check(plan: Any, feeds: Any, layouts: Any) -> None:
    """See that a plan gives the same bits for feeds of a layout, copied and by a variant."""
    wanted = plan(*feeds)
    for _ in range(3):
        found = plan(*layouts)
        for one, other in zip(found, wanted, strict=True):
            same(one, other)


def random_like(rng: np.random.Generator, shape: Any, dtype: Any) -> Any:
    if np.dtype(dtype).kind in "fV":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2 if dtype is bool else 100, shape).astype(dtype)


FUNCTIONS = {
    "elementwise": lambda x, y: gf.where(gf.equal(x, y), x, y[..., :1]),
    "two views": lambda x, y: gf.where(
        gf.equal(gf.permute_dims(x, (2, 1, 0)), y[0, 0, 0]), y[0, 0, 1], y[0, 0, 0]
    ),
    "rows": lambda x, y: gf.any(gf.not_equal(x, y), axis=-1),
    "reshape": lambda x, y: gf.reshape(x, (-1,)),
    "concat": lambda x, y: gf.concat([x, y, x], axis=1),
    "flip": lambda x, y: gf.flip(x, axis=1),
    "take": lambda x, y: gf.take(x, gf.constant([1, 0, 1]), axis=2),
    "sort": lambda x, y: gf.argsort(gf.where(x, 1, 0) if x.dtype is gf.bool else x, axis=1),
    "itself": lambda x, y: x,
    "equal": lambda x, y: gf.equal(x, y),
}


@pytest.mark.exhaustive(every=4)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("what", FUNCTIONS)
def test_all_dtypes(dtype, what):
    rng = np.random.default_rng(3)
    shape = (5, 17, 33)
    with gf.Graph() as g:
        x = gf.placeholder(shape, np.dtype(dtype).name, name="x")
        y = gf.placeholder(shape, np.dtype(dtype).name, name="y")
        result = FUNCTIONS[what](x, y)
    plan = gf.Session(g).compile([result], feeds=[x, y])
    feeds = [random_like(rng, shape, dtype) for _ in range(2)]
    for _ in range(3):
        check(plan, feeds, [laid(rng, feed) for feed in feeds])


SUMS = {
    "columns": lambda x: gf.sum(x * x, axis=0),
    "rows": lambda x: gf.sum(x * x, axis=1),
    "both": lambda x: gf.sum(x * x),
    "softmax": lambda x: gf.softmax(x, axis=1),
    "norm": gf.layer_norm,
    "deviations": lambda x: (x - gf.mean(x, axis=0)) / gf.std(x, axis=0),
    "running": lambda x: gf.cumulative_sum(x, axis=0),
    "product": lambda x: x @ gf.permute_dims(x, (1, 0)),
    "largest": lambda x: gf.argmax(x, axis=1),
    "mean of pairs": lambda x: gf.mean(gf.reshape(x, (-1, 2)), axis=1),
    "scan": lambda x: gf.scan(lambda c, row: (c * 0.5 + row, gf.sum(c)), x[0], x)[1],
}


@pytest.mark.exhaustive(every=4)
@pytest.mark.parametrize("shape", [(300, 64), (33, 700), (96, 3), (3, 4096)])
@pytest.mark.parametrize("what", SUMS)
def test_sums_have_the_same_bits(what, shape):
    rng = np.random.default_rng(4)
    with gf.Graph() as g:
        x = gf.placeholder(("n", "m"), name="x")
        if what == "mean of pairs":
            x = gf.placeholder(("n", 2 * shape[1]), name="even")
        result = SUMS[what](x)
    plan = gf.Session(g).compile([result], feeds=[x])
    for factor in (1, 2):
        size = (shape[0] * factor, shape[1] * (2 if what == "mean of pairs" else 1))
        feed = rng.standard_normal(size).astype(np.float32)
        check(plan, [feed], [np.asfortranarray(feed)])
        check(plan, [feed], [feed[::-1].copy()[::-1]])
        check(plan, [feed], [np.concatenate([feed, feed], axis=1)[:, : size[1]]])
        check(plan, [feed], [np.repeat(feed, 2, axis=1)[:, ::2]])
        check(plan, [feed], [laid(rng, feed)])


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("axes", [(2, 3), (0, 2, 3), (1,), (3,), (0, 1)])
def test_channels_last(axes):
    rng = np.random.default_rng(5)
    with gf.Graph() as g:
        x = gf.placeholder(("n", 7, "h", "w"), name="x")
        results = [gf.sum(x, axis=axes), gf.maximum(x * 2.0 + 1.0, 0.0)]
    plan = gf.Session(g).compile(results, feeds=[x])
    for sizes in ((3, 7, 9, 31), (1, 7, 40, 40), (5, 7, 1, 1)):
        feed = rng.standard_normal(sizes).astype(np.float32)
        last = feed.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)
        check(plan, [feed], [last])
        check(plan, [feed * 0 + feed[:1]], [np.broadcast_to(feed[:1], feed.shape)])


def test_kernels_read_in_place():
    """Elementwise kernels need no copies; a product does."""
    rng = np.random.default_rng(6)
    with gf.Graph() as g:
        x, y = [gf.placeholder((90, 70), name=name) for name in "xy"]
        results = [x + y], [x @ gf.permute_dims(y, (1, 0))]
    session = gf.Session(g)
    for result, is_copied in zip(results, (False, True), strict=True):
        plan = session.compile(result, feeds=[x, y])
        feeds = [rng.standard_normal((90, 70)).astype(np.float32) for _ in range(2)]
        check(plan, feeds, [np.asfortranarray(feeds[0]), feeds[1]])
        (variant,) = variants(plan)
        strange, usual = variant.program.layouts
        assert strange.is_copied is is_copied
        assert usual is None


def test_alternating_layouts_compile_each_once(monkeypatch):
    loads = []
    real = module.FeedVariants.__init__

    def counting(self, program, load):
        def counted(layouts):
            loads.append(layouts)
            return load(layouts)

        real(self, program, counted)

    monkeypatch.setattr(module.FeedVariants, "__init__", counting)
    rng = np.random.default_rng(7)
    with gf.Graph() as g:
        x = gf.placeholder((4, 5, 6, 7), name="x")
        result = gf.exp(x)
    plan = gf.Session(g).compile([result], feeds=[x])
    feed = rng.standard_normal((4, 5, 6, 7)).astype(np.float32)
    layouts = [laid(rng, feed) for _ in range(30)]
    for _ in range(3):
        for layout in layouts:
            check(plan, [feed], [layout])
    assert len(loads) == len(set(loads)) == len(variants(plan)) == module._VARIANTS


def test_runs_that_copy_little_compile_nothing(monkeypatch):
    monkeypatch.setattr(module, "_COPIED", 1 << 22)
    with gf.Graph() as g:
        x = gf.placeholder((40, 30), name="x")
        result = gf.exp(x)
    plan = gf.Session(g).compile([result], feeds=[x])
    feed = np.random.default_rng(8).standard_normal((40, 30)).astype(np.float32)
    check(plan, [feed], [np.asfortranarray(feed)])
    assert not variants(plan)


def test_a_run_with_a_timeout_compiles_nothing():
    with gf.Graph() as g:
        x = gf.placeholder((40, 30), name="x")
        result = gf.exp(x)
    plan = gf.Session(g).compile(result, feeds=[x])
    feed = np.asfortranarray(np.random.default_rng(8).standard_normal((40, 30)), np.float32)
    for _ in range(3):
        plan(feed, timeout=100.0)
    assert not variants(plan)
    plan(feed)
    assert len(variants(plan)) == 1
    same(plan(feed, timeout=100.0), plan(np.ascontiguousarray(feed)))


def test_an_interrupted_variant_is_compiled_by_a_later_run(monkeypatch):
    with gf.Graph() as g:
        x = gf.placeholder((40, 30), name="x")
        result = gf.exp(x)
    plan = gf.Session(g).compile(result, feeds=[x])
    feed = np.asfortranarray(np.random.default_rng(8).standard_normal((40, 30)), np.float32)
    plan(feed)
    real = plan._run.variants._load

    def interrupted(layouts):
        plan._run.variants._load = real
        raise KeyboardInterrupt

    plan._run.variants._load = interrupted
    with pytest.raises(KeyboardInterrupt):
        plan(feed)
    assert not variants(plan)
    plan(feed)
    assert len(variants(plan)) == 1


def test_overlapping_windows():
    with gf.Graph() as g:
        x = gf.placeholder(("n", 7), name="x")
        results = [gf.sum(x, axis=1), x * 2.0]
    plan = gf.Session(g).compile(results, feeds=[x])
    held = np.random.default_rng(13).standard_normal(400).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(held, 7)
    check(plan, [np.ascontiguousarray(windows)], [windows])
    assert len(variants(plan)) == 1


def test_feeds_that_change_between_runs():
    rng = np.random.default_rng(9)
    with gf.Graph() as g:
        x = gf.placeholder(("n", 30), name="x")
        result = x * 2.0
    plan = gf.Session(g).compile(result, feeds=[x])
    held = np.zeros((30, 50), np.float32)
    for _ in range(5):
        held[...] = rng.standard_normal(held.shape)
        found = plan(held.T)
        same(found, np.ascontiguousarray(held.T) * np.float32(2))
        assert not np.may_share_memory(found, held)


def test_updates_and_draws():
    """Variables take the contents of feeds of any layout; draws stay the same."""
    rng = np.random.default_rng(10)
    feed = rng.standard_normal((60, 70)).astype(np.float32)
    states = []
    for layout in (feed, np.asfortranarray(feed)):
        with gf.Graph() as g:
            x = gf.placeholder((60, 70), name="x")
            kept = gf.Variable(gf.nn.init.zeros, shape=(60, 70), name="kept")
            total = gf.Variable(gf.nn.init.zeros, shape=(70,), name="total")
            noise = gf.random.normal((60, 70), name="noise")
            noisy = x + noise
            updates = [gf.update(kept, x), gf.update(total, total + gf.sum(x * noise, axis=0))]
        with gf.Session(g, seed=1) as session:
            for _ in range(4):
                drawn = session.run([noisy, *updates], {x: layout})[0]
            same(session["kept"], feed)
            states.append((drawn, session["total"]))
            assert not np.may_share_memory(session["kept"], layout)
    for one, other in zip(*states, strict=True):
        same(one, other)


def test_many_threads():
    rng = np.random.default_rng(11)
    with gf.Graph() as g:
        x = gf.placeholder(("n", "m"), name="x")
        result = gf.sum(gf.exp(x), axis=1)
    session = gf.Session(g, threads=1)
    feed = rng.standard_normal((200, 120)).astype(np.float32)
    wanted = session.run(result, {x: feed})
    layouts = [feed, np.asfortranarray(feed), feed[::-1].copy()[::-1], laid(rng, feed)]
    failures = []

    def work(number):
        try:
            for turn in range(30):
                same(session.run(result, {x: layouts[(turn + number) % 4]}), wanted)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_errors_are_those_of_contiguous_feeds():
    with gf.Graph() as g:
        x = gf.placeholder((4, 6), gf.int64, name="x")
        result = gf.take(gf.constant(np.arange(5.0, dtype=np.float32)), x)
    plan = gf.Session(g).compile(result, feeds=[x])
    good = np.asfortranarray(np.arange(24).reshape(4, 6) % 5)
    for _ in range(3):
        same(plan(good), np.ascontiguousarray(good).astype(np.float32))
    bad = good.copy(order="F")
    bad[3, 5] = 5
    with pytest.raises(gf.ExecutionError, match="5"):
        plan(bad)
    same(plan(good), np.ascontiguousarray(good).astype(np.float32))


def test_misaligned_feeds_are_copied():
    with gf.Graph() as g:
        x = gf.placeholder((8, 5), name="x")
        result = x + 1.0
    plan = gf.Session(g).compile(result, feeds=[x])
    words = np.zeros(8 * 5 * 4 + 1, np.uint8)
    values = np.arange(40, dtype=np.float32).reshape(5, 8)
    odd = words[1:].view(np.float32).reshape(5, 8)
    odd[...] = values
    for feed in (values.T, odd.T, odd.T, values.T):
        same(plan(feed), np.ascontiguousarray(values.T) + np.float32(1))


@pytest.mark.parametrize("verify", ["values", "first-run"])
def test_verified_sessions(verify):
    with gf.Graph() as g:
        x = gf.placeholder((40, 30), name="x")
        result = gf.softmax(x, axis=1)
    feed = np.random.default_rng(12).standard_normal((40, 30)).astype(np.float32)
    session = gf.Session(g, verify=verify)
    wanted = session.run(result, {x: feed})
    for _ in range(3):
        same(session.run(result, {x: np.asfortranarray(feed)}), wanted)
