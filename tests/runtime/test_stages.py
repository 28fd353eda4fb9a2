"""Runs that find out sizes on the way."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.runtime.contents import STEP
from graphfw.runtime.limits import compiles
from graphfw.runtime.numpy_executor.native_executable import NativeExecutable

SIZES = (5, 8, 0, 1, 17, 5)

compiled = pytest.mark.skipif(not compiles(), reason="looks at compiled plans")


def of(session: gf.Session, fetches: Any, **feeds: Any) -> Any:
    return session.run(fetches, feeds)


@pytest.mark.parametrize(
    "how", [{}, {"debug": True}, {"verify": "first-run"}, {"verify": "values"}], ids=str
)
def test_values(rng, how):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3), name="x")
        mask = x[:, 0] > 0
        fetches = {
            "rows": x[mask],
            "elements": x[x > 0.5],
            "sliced": x[mask, 1:],
            "chosen": x[gf.any(mask)],
            "places": gf.nonzero(x > 0.5),
            "again": gf.nonzero(x > 0.5),
            "unique": gf.unique_all(gf.floor(x)),
            "before": gf.sum(x),
            "sizes": gf.asarray(x[mask].shape[0]),
            "x": x,
        }
    with gf.Session(g, **how) as session:
        for n in SIZES:
            array = rng.normal(size=(n, 3)).astype(np.float32)
            found = of(session, fetches, x=array)
            positive = array[:, 0] > 0
            np.testing.assert_array_equal(found["rows"], array[positive])
            np.testing.assert_array_equal(found["elements"], array[array > 0.5])
            np.testing.assert_array_equal(found["sliced"], array[positive, 1:])
            np.testing.assert_array_equal(found["chosen"], array[positive.any()])
            for ours, wanted in zip(found["places"], np.nonzero(array > 0.5), strict=True):
                np.testing.assert_array_equal(ours, wanted)
            numbers = np.unique(np.floor(array), True, True, True)
            for ours, wanted in zip(found["unique"], numbers, strict=True):
                np.testing.assert_array_equal(ours, wanted.reshape(ours.shape))
            np.testing.assert_allclose(found["before"], array.sum(), rtol=1e-5, atol=1e-6)
            assert found["sizes"] == np.count_nonzero(positive)
            assert found["x"] is not array
            for ours, other in zip(found["places"], found["again"], strict=True):
                assert ours is not other
                ours[...] = -1  # it belongs to whoever has it
                assert not (other == -1).any()


def test_measured_sizes_decide_about_further_ones(rng):
    """Three stages: of what a mask has picked, another mask picks, and distinct elements."""
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        kept = x[x > 0]
        fewer = kept[kept < gf.mean(kept)]
        values, counts = gf.unique_counts(gf.round(fewer * 4))
        joined = gf.concat([kept, gf.zeros((fewer.shape[0],)), values])
        total = gf.sum(gf.arange(kept.shape[0]))
    with gf.Session(g) as session:
        for n in (40, 7, 0):
            array = rng.normal(size=n).astype(np.float32)
            positive = array[array > 0]
            below = positive[positive < positive.mean()] if len(positive) else positive
            numbers, times = np.unique(np.round(below * 4), return_counts=True)
            found = of(session, [joined, counts, total], x=array)
            np.testing.assert_array_equal(
                found[0], np.concatenate([positive, np.zeros(len(below)), numbers])
            )
            np.testing.assert_array_equal(found[1], times)
            assert found[2] == np.arange(len(positive)).sum()
        assert len(session.compile(joined, [x])._run.stages.stages) == 4


def test_repeats_that_a_run_tells(rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 2), name="x")
        times = gf.placeholder(("n",), gf.int32, name="times")
        once = gf.placeholder((), gf.int64, name="once")
        each = gf.repeat(x, times, axis=0)
        fetches = [each, gf.repeat(x, once), gf.grad(gf.sum(each), x)]
    with gf.Session(g) as session:
        for n in (5, 0, 1):
            array, counts = rng.normal(size=(n, 2)).astype(np.float32), rng.integers(0, 4, n)
            feeds = {"x": array, "times": counts.astype(np.int32), "once": n}
            found = of(session, fetches, **feeds)
            np.testing.assert_array_equal(found[0], np.repeat(array, counts, axis=0))
            np.testing.assert_array_equal(found[1], np.repeat(array, n))
            np.testing.assert_array_equal(found[2], np.repeat(counts[:, None], 2, axis=1))
        with pytest.raises(gf.ExecutionError, match=r"repeat: the repeats: .* is negative"):
            of(session, each, x=np.zeros((2, 2), np.float32), times=np.array([5, -1], np.int32))


def test_only_the_size_is_used():
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        ones = gf.ones((x[x > 0].shape[0], 2))
    with gf.Session(g) as session:
        assert of(session, ones, x=[1.0, -1.0, 2.0]).shape == (2, 2)


def test_training_on_what_a_mask_picks(rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 4), name="x")
        w = gf.Variable(rng.normal(size=(4, 2)).astype(np.float32), name="w")
        steps = gf.Variable(0, name="steps")
        before = x @ w
        hard = before[:, 0] > 0  # the variable is read before it is known what it is updated by
        loss = gf.sum(before[hard] ** 2)
        train = [gf.update(w, w - 0.05 * gf.grad(loss, w)), gf.update(steps, steps + 1)]
    with gf.Session(g) as session:
        held = session["w"]
        for number in range(6):
            array = rng.normal(size=(3 + number, 4)).astype(np.float32)
            ours, old, _ = of(session, [loss, w, train], x=array)
            product = array @ held
            mask = product[:, 0] > 0
            np.testing.assert_allclose(ours, (product[mask] ** 2).sum(), rtol=1e-4)
            np.testing.assert_allclose(old, held, rtol=1e-5, atol=1e-6)
            held = held - 0.05 * 2 * array[mask].T @ product[mask]
            np.testing.assert_allclose(session["w"], held, rtol=1e-4, atol=1e-5)
            held = session["w"]
        assert session["steps"] == 6


def test_a_run_that_fails_late_changes_nothing(rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        w = gf.Variable(np.zeros(2, np.float32), name="w")
        noise = gf.random.normal((), name="noise")
        kept = x[x > 0]
        pairs = gf.assert_shape(kept, (4,))
        train = gf.update(w, w + gf.sum(pairs) + noise)
    with gf.Session(g) as session:
        with pytest.raises(gf.ShapeError, match="the dim `_nonzero` is 2 in this run, not 4"):
            of(session, train, x=[1.0, -1.0, 2.0])
        assert not session["w"].any()
        assert session.state_dict()[STEP] == 0
        of(session, train, x=[1.0, 1.0, -1.0, 1.0, 1.0])
        assert session["w"].all()
        assert session.state_dict()[STEP] == 1


def test_all_stages_draw_from_one_step(rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        early = gf.random.uniform((3,), name="early")
        kept = x[x + early[0] > 0]
        late = gf.random.uniform((3,), name="late") + gf.sum(kept) * 0
    array = np.ones(3, np.float32)
    with gf.Session(g, seed=4) as session, gf.Session(g, seed=4) as other:
        for _ in range(3):
            ours = of(session, [early, late], x=array)
            both = [other.run(early), None]
            np.testing.assert_array_equal(ours[0], both[0])
        assert session.state_dict()[STEP] == 3
        assert not np.array_equal(of(session, late, x=array), ours[1])


def test_gradients(rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3), name="x")
        ones = gf.grad(gf.sum(x[x > 0]), x)
        rows = gf.grad(gf.sum(x[x[:, 0] > 0] ** 2), x)
        put = gf.grad(gf.sum(gf.index_set(x, x > 0, x[x > 0] * 3)), x)
    with gf.Session(g) as session:
        for n in (6, 0):
            array = rng.normal(size=(n, 3)).astype(np.float32)
            found = of(session, [ones, rows, put], x=array)
            np.testing.assert_array_equal(found[0], array > 0)
            np.testing.assert_allclose(found[1], 2 * array * (array[:, :1] > 0), rtol=1e-6)
            np.testing.assert_array_equal(found[2], np.where(array > 0, 3, 1))


def test_assert_shape_gives_measured_sizes_names(rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        y = gf.placeholder(("k",), name="y")
        fed = gf.assert_shape(x[x > 0], ("k",)) + y
        named = gf.assert_shape(x[x < 0], ("m",)) * gf.ones(gf.assert_shape(x[x < 0], ("m",)).shape)
    with gf.Session(g) as session:
        assert of(session, fed, x=[1.0, -1.0], y=[2.0]) == 3
        with pytest.raises(gf.ShapeError, match="`_nonzero` is 1 in this run, not k = 2"):
            of(session, fed, x=[1.0, -1.0], y=[2.0, 3.0])
        assert of(session, named, x=[1.0, -1.0]) == -1


def test_errors_name_the_line(rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        picked = gf.take(gf.constant([1.0, 2.0]), gf.nonzero(x)[0])
        nan = gf.log(x[x < 0])
    with gf.Session(g, check_finite=True) as session:
        with pytest.raises(gf.ExecutionError, match=r"index 2 is out of range") as caught:
            of(session, picked, x=[1.0, 1.0, 1.0])
        assert "test_stages.py" in str(caught.value.at)
        with pytest.raises(gf.ExecutionError, match="log gives nan"):
            of(session, nan, x=[1.0, -1.0])


def test_the_debug_path_shows_all_nodes(rng):
    seen = []
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        y = x[x > 0] * 2

    def hook(node, inputs, outputs):
        return seen.append((node.op.name, outputs[0].shape))

    with gf.Session(g, debug=hook) as session:
        of(session, y, x=[1.0, -1.0, 3.0])
    assert ("nonzero", (1, 2)) in seen
    assert [name for name, _ in seen if name in ("greater", "gather", "multiply")] == [
        "greater",
        "gather",
        "multiply",
    ]


def test_many_threads(rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 8), name="x")
        y = gf.sum(x[x[:, 0] > 0] @ gf.constant(np.eye(8, dtype=np.float32)), axis=0)
    wrong = []
    with gf.Session(g) as session:
        plan = session.compile(y, [x])

        def work(seed: int) -> None:
            own = np.random.default_rng(seed)
            for _ in range(20):
                array = own.integers(-9, 9, (own.integers(1, 50), 8)).astype(np.float32)
                if not np.array_equal(plan(array), array[array[:, 0] > 0].sum(0)):
                    wrong.append(array)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_functions(rng):
    @gf.function
    def smallest(x, limit):
        kept = x[x > limit]
        return gf.min(gf.concat([kept, gf.asarray([gf.inf])])), kept

    for n in (4, 0, 9):
        array = rng.normal(size=n).astype(np.float32)
        least, kept = smallest(array, np.float32(0))
        np.testing.assert_array_equal(kept, array[array > 0])
        assert least == min([*kept, np.inf])


def test_other_executors_and_options(rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3), name="x")
        y = x[x[:, 0] > 0]
    with gf.Session(g, executor="meta") as session:
        assert str(session.run(y, {x: (5, 3)})) == "float32[_nonzero, 3]"
    with (
        gf.Session(g, memory_limit="1MB") as session,
        pytest.raises(gf.ExecutorError, match="can't keep a memory_limit"),
    ):
        session.compile(y, [x])


def test_mixed_precision(rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 32), name="x")
        y = x[x[:, 0] > 0] @ gf.Variable(np.eye(32, dtype=np.float32), name="w")
    array = rng.integers(-4, 4, (20, 32)).astype(np.float32)
    with gf.Session(g, precision="mixed-bf16") as session:
        np.testing.assert_array_equal(of(session, y, x=array), array[array[:, 0] > 0])


def test_effects_happen_once(capsys):
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        mask = x > 0
        gf.print("mask: {}", mask)
        kept = x[mask]
        gf.print("kept: {}", kept)
        y = gf.sum(kept)
    with gf.Session(g) as session:
        assert of(session, y, x=[1.0, -1.0]) == 1
    text = capsys.readouterr()
    assert (text.out + text.err).count("mask:") == (text.out + text.err).count("kept:") == 1


def test_cupy(fake, rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3), name="x")
        w = gf.Variable(np.ones(3, np.float32), name="w")
        kept = x[x[:, 0] > 0]
        indices = gf.nonzero(x > 0)
        train = gf.update(w, w + gf.sum(kept, axis=0))
    with gf.Session(g, executor="cupy") as session:
        total = np.ones(3, np.float32)
        for n in SIZES:
            array = rng.integers(-4, 4, (n, 3)).astype(np.float32)
            ours, (rows, _), _ = session.run([kept, indices, train], {x: array}, host=True)
            np.testing.assert_array_equal(ours, array[array[:, 0] > 0])
            np.testing.assert_array_equal(rows, np.nonzero(array > 0)[0])
            total += array[array[:, 0] > 0].sum(0)
            np.testing.assert_array_equal(session["w"], total)


def test_two_nodes_never_share_a_symbol():
    with gf.Graph() as g:
        w = gf.Variable([1.0, -1.0], name="w")
        outer = w[w > 0]
    with gf.Session(g) as session:

        @gf.function(session=session)
        def both(y):
            return gf.sum(outer) + gf.sum(y[y > 1])

        with pytest.raises(gf.GraphError, match="`_nonzero` is what a run finds out by two nodes"):
            both(np.ones(3, np.float32))


# Reports.


@compiled
def test_reports_tell_the_stages(rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 64), name="x")
        w = gf.Variable(np.ones((64, 8), np.float32), name="w")
        y = gf.tanh(gf.exp(x)[x[:, 0] > 0] @ w)
    with gf.Session(g) as session:
        plan = session.compile(y, [x])
        text = plan.explain((100, 64))
        assert "== stage 1 of 2, then it finds out _nonzero by nonzero (test_stages.py" in text
        assert "== stage 2 of 2" in text
        assert plan.source().count("== stage") == 2
        assert "_nonzero" in str(plan.cost((100, 64)).flops)
        array = rng.normal(size=(1000, 64)).astype(np.float32)
        array[:, 0] = 1
        profile = plan.profile(array)
        assert "nonzero" in str(profile)
        assert len({timing.step for timing in profile.timings}) == len(profile.timings)
        most = plan.memory((1000, 64))
        plan(array)
        assert most.peak >= 2 * 1000 * 64 * 4  # the powers, and what is made of them
        assert sum(e.kind == "variable" for e in most.entries) == 1
        assert max(most.timeline()) <= most.peak + most.arena
        limit = most.peak
        assert plan.max_dim("n", limit) == 1000


@compiled
def test_new_sizes_compile_nothing(rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3), name="x")
        y = gf.sum(x[x > 0] ** 2)
    with gf.Session(g) as session:
        plan = session.compile(y, [x])
        for n in range(1, 12):
            array = rng.normal(size=(n, 3)).astype(np.float32)
            np.testing.assert_allclose(plan(array), (array[array > 0] ** 2).sum(), rtol=1e-5)
        first, second = plan._run._runs
        assert isinstance(first, NativeExecutable)
        assert len(first._layouts) == 11
        assert len(second._layouts) > 3
