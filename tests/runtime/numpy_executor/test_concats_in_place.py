"""Inputs of concatenations that are computed where they belong."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.transforms.grad import grad
from tests.runtime.numpy_executor.special_runs import assert_native


@pytest.fixture(autouse=True)
def native(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")


def drawn(rng, shape, dtype="float32"):
    return gf.asarray(rng.standard_normal(shape)).astype(dtype).numpy()


def names(plan):
    """Return the names of what the native steps compute."""
    return [node.op.name for step in plan._run.build.steps for node in step.nodes]


def compared(monkeypatch, g, fetches, feeds, *, threads=(1, 2), rtol=2e-5):
    """See that native plans give what the evaluation node by node does; return one of them."""
    with monkeypatch.context() as context, gf.Session(g) as session:
        context.setenv("GRAPHFW_JIT", "0")
        wanted = session.compile(fetches, list(feeds))(*feeds.values())
    for count in threads:
        with gf.Session(g, threads=count) as session:
            plan = session.compile(fetches, list(feeds))
            for _ in range(2):  # memory is used again
                found = plan(*feeds.values())
                for a, b in zip(found, wanted, strict=True):
                    assert a.dtype == b.dtype
                    a, b = (np.asarray(t).astype(np.float64) for t in (a, b))
                    np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)
    return plan


@pytest.mark.exhaustive
@pytest.mark.parametrize("batch", [1, 3, "n"])
@pytest.mark.parametrize("has_epilogue", [False, True])
def test_convolutions_write_their_channels(monkeypatch, rng, batch, has_epilogue):
    n = 3 if batch == "n" else batch
    with gf.Graph() as g:
        x = gf.placeholder((batch, 16, 13, 11), name="x")
        w1 = gf.asarray(drawn(rng, (24, 16, 1, 1)))
        w3 = gf.asarray(drawn(rng, (17, 16, 3, 3)) / 10)
        b = gf.asarray(drawn(rng, (17, 1, 1)))
        left, right = gf.conv(x, w1), gf.conv(x, w3, padding=1)
        if has_epilogue:
            left, right = gf.relu(left), gf.relu(right + b)
        y = gf.concat([left, right], axis=1)
        z = gf.conv(y, gf.asarray(drawn(rng, (5, 41, 1, 1))))
    plan = compared(monkeypatch, g, [z], {x: drawn(rng, (n, 16, 13, 11))})
    assert_native(plan)
    assert "concat" not in names(plan)


def test_a_concat_in_a_concat_and_a_reader_of_a_section(monkeypatch, rng):
    with gf.Graph() as g:
        x = gf.placeholder((2, 20, 33), name="x")
        a = gf.exp(gf.sin(x))
        w = gf.asarray(drawn(rng, (33, 33)))
        b = gf.tanh(a @ w)
        inner = gf.concat([a, b], axis=1)
        c = gf.cumulative_sum(inner, axis=2)
        outer = gf.concat([inner, c, gf.sum(inner, axis=1, keepdims=True)], axis=1)
        fetches = [gf.cos(outer), gf.sum(b, axis=2), outer]
    plan = compared(monkeypatch, g, fetches, {x: drawn(rng, (2, 20, 33))})
    assert_native(plan)
    assert names(plan).count("concat") == 1


@pytest.mark.parametrize("nested", [False, True])
def test_layers_that_read_all_layers_before(monkeypatch, rng, nested):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 8, 9, 10), name="x")
        sections, whole = [gf.max_pool(gf.exp(x), 3, stride=1, padding=1)], None
        for layer in range(4):
            whole = gf.concat(sections, axis=1) if layer else sections[0]
            w = gf.asarray(drawn(rng, (8, whole.shape[1], 3, 3)) / 20)
            new = gf.conv(gf.relu(whole * 1.5 + 0.25), w, padding=1)
            sections = [whole, new] if nested else [*sections, new]
        y = gf.concat(sections, axis=1)
        fetches = [gf.mean(y, axis=(2, 3))]
    plan = compared(monkeypatch, g, fetches, {x: drawn(rng, (3, 8, 9, 10))})
    assert_native(plan)
    assert "concat" not in names(plan)


def test_inputs_that_must_be_copied(monkeypatch, rng):
    with gf.Graph() as g:
        x, y = gf.placeholder((4, 40), name="x"), gf.placeholder((4, 40), name="y")
        given, fetched, twice = x, gf.exp(x), gf.tanh(y) @ gf.asarray(drawn(rng, (40, 40)))
        short = gf.sum(gf.sin(x) @ gf.asarray(drawn(rng, (40, 40))), axis=1, keepdims=True)
        sections = [given, fetched, twice, gf.zeros((4, 40)), short, twice, gf.zeros((4, 0))]
        joined = gf.concat(sections, axis=1)
        fetches = [fetched, gf.sqrt(gf.abs(joined)), gf.sum(twice, axis=0)]
    feeds = {x: drawn(rng, (4, 40)), y: drawn(rng, (4, 40))}
    assert_native(compared(monkeypatch, g, fetches, feeds))


@pytest.mark.exhaustive
@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_any_axis_and_dtype(monkeypatch, rng, axis, dtype):
    with gf.Graph() as g:
        x = gf.placeholder((3, 5, 7, 32), dtype, name="x")
        w = gf.asarray(drawn(rng, (32, 32), dtype))
        k = gf.asarray(drawn(rng, (5, 5, 3, 3), dtype))
        sections = [
            gf.tanh(x),
            x @ w,
            gf.max_pool(x * 2, 3, stride=1, padding=1),
            gf.conv(x, k, padding=1),
            gf.roll(gf.exp(x), 3, axis=2),
        ]
        y = gf.concat(sections, axis=axis)
        fetches = [gf.sum(y, axis=axis), y[..., 5:]]
    rtol = {"float32": 2e-5, "float64": 1e-12}.get(dtype, 6e-2)
    feeds = {x: drawn(rng, (3, 5, 7, 32), dtype)}
    assert_native(compared(monkeypatch, g, fetches, feeds, rtol=rtol))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_what_is_stacked_is_seen_through_its_new_axis(monkeypatch, rng, axis):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 48), name="x")
        w = gf.asarray(drawn(rng, (48, 48)))
        y = 2 * gf.stack([gf.tanh(x @ w), x @ w @ w, gf.exp(x)], axis=axis)
    for n in (0, 1, 17):
        assert_native(compared(monkeypatch, g, [y], {x: drawn(rng, (n, 48))}, rtol=1e-4))


@pytest.mark.parametrize("sizes", [(0, 5), (3, 0), (0, 0), (7, 2)])
def test_sizes_that_are_known_later(monkeypatch, rng, sizes):
    with gf.Graph() as g:
        x, y = gf.placeholder(("a", 19), name="x"), gf.placeholder(("b", 19), name="y")
        w = gf.asarray(drawn(rng, (19, 19)))
        joined = gf.concat([x @ w, gf.exp(y)], axis=0)
        fetches = [gf.sin(joined), gf.sum(joined, axis=0)]
    a, b = sizes
    compared(monkeypatch, g, fetches, {x: drawn(rng, (a, 19)), y: drawn(rng, (b, 19))})


def test_gradients_of_sections(monkeypatch, rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 6, 8, 8), name="x")
        w = [gf.placeholder((8, 6, 3, 3), name=f"w{i}") for i in range(2)]
        sections = [gf.tanh(gf.conv(x, k, padding=1)) for k in w]
        y = gf.concat([*sections, gf.max_pool(x, 3, stride=1, padding=1)], axis=1)
        loss = gf.mean(gf.sin(gf.conv(y, gf.asarray(drawn(rng, (4, 22, 3, 3))))))
        fetches = [loss, *grad(loss, [x, *w])]
    feeds = {x: drawn(rng, (3, 6, 8, 8)), **{k: drawn(rng, (8, 6, 3, 3)) for k in w}}
    compared(monkeypatch, g, fetches, feeds, rtol=2e-4)


def test_a_variable_takes_a_join(rng):
    with gf.Graph() as g:
        v = gf.Variable(np.zeros((3, 40), np.float32), name="v")
        x = gf.placeholder((1, 40), name="x")
        moved = gf.update(v, gf.concat([v[1:] * 2, gf.exp(x)], axis=0))
    rows = [np.zeros((1, 40), np.float32)] * 3
    with gf.Session(g) as session:
        for _ in range(4):
            row = drawn(rng, (1, 40))
            session.run(moved, {x: row})
            rows = [*[2 * one for one in rows[1:]], np.exp(row)]
            np.testing.assert_allclose(session.run(v), np.concatenate(rows), rtol=1e-5)
