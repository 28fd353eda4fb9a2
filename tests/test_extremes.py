"""Steps, sizes, depths and texts far beyond what is meant: right results, or graphfw's errors."""

from __future__ import annotations

import contextlib
import random
import re
import sys

import numpy as np
import pytest

import graphfw as gf
from graphfw.runtime.limits import compiles

compiled = pytest.mark.skipif(not compiles(), reason="of native code alone")


def run(make, array, *, debug=False):
    with gf.Graph() as g:
        x = gf.placeholder((None,) * array.ndim, array.dtype, name="x")
        y = make(x)
    # "values" would evaluate the unoptimised graph before the error that is meant.
    with gf.Session(g, debug=debug, verify="each") as session:
        return session.run(y, {x: array})


@pytest.mark.exhaustive
@pytest.mark.parametrize("step", [2**62, 2**63 - 1, 2**63, 2**64, -(2**62), -(2**63), -(2**70)])
@pytest.mark.parametrize("size", [0, 1, 5])
def test_steps_that_no_integer_of_a_machine_holds(step, size):
    array = np.arange(size)
    for bounds in (slice(None, None, step), slice(3, None, step), slice(None, 1, step)):
        np.testing.assert_array_equal(run(lambda x, b=bounds: x[b], array), array[bounds])
        np.testing.assert_array_equal(gf.asarray(array)[bounds].numpy(), array[bounds])


@pytest.mark.parametrize("step", [2**47, 2**48, 2**62, 2**63 - 1, -(2**48), -(2**62), -(2**70)])
@pytest.mark.parametrize("dim", [5, "t"])
def test_steps_that_lead_over_rows(step, dim):
    rows = np.arange(15, dtype=np.float32).reshape(5, 3)
    with gf.Graph() as g:
        x = gf.placeholder((dim, 3), name="x")
        y = x[::step]
        slope = gf.grad(gf.sum(y * y), [x])
    with gf.Session(g) as session:
        found, (ct,) = session.run([y, slope], {x: rows})
    np.testing.assert_array_equal(found, rows[::step])
    wanted = np.zeros_like(rows)
    wanted[::step] = 2 * rows[::step]
    np.testing.assert_array_equal(ct, wanted)


def test_dilations_of_which_native_code_would_lose_bits():
    with gf.Graph() as g:
        x, w = gf.placeholder((1, 1, 5), name="x"), gf.placeholder((1, 1, 3), name="w")
        g.outputs = (gf.conv(x, w, padding=1),)
    far = gf.parse(str(g).replace(", dilations=(1,)", ", dilations=(9223372036854775807,)"))
    feeds = {"x": np.arange(5.0).reshape(1, 1, 5), "w": np.ones((1, 1, 3))}
    feeds = {name: array.astype(np.float32) for name, array in feeds.items()}
    (found,) = gf.Session(far).run(far.outputs, feeds)
    np.testing.assert_array_equal(found.ravel(), [0, 0, 1, 2, 3])


@pytest.mark.parametrize("axis", [2, 3])
def test_strides_that_lead_out_of_an_image(axis):
    strides = [1, 1]
    strides[axis - 2] = 2**62
    image = np.arange(25, dtype=np.float32).reshape(1, 1, 5, 5)

    def convolved(x):
        return gf.conv(x[:, None], gf.ones((1, 1, 1, 1)), stride=strides)

    found = run(convolved, image[:, 0])
    np.testing.assert_array_equal(found, np.take(image, [0], axis=axis))


def test_elements_far_apart_take_no_longer():
    with gf.Graph() as g:
        x, w = gf.placeholder((1, 1, 5, 5), name="x"), gf.placeholder((1, 1, 3, 3), name="w")
        g.outputs = (gf.conv_transpose(x, w, stride=2),)
    text = re.sub(r"input_dilations=\([^)]*\)", "input_dilations=(4611686018427387904, 1)", str(g))
    parsed = gf.parse(text)
    feeds = {t: np.ones(t.shape, np.float32) for t in parsed.placeholders}
    values = [gf.Session(parsed, debug=d).run(parsed.outputs, feeds)[0] for d in (False, True)]
    np.testing.assert_array_equal(*values)
    assert values[0].sum() == 45


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (lambda x: gf.arange(0, 2**64 - 1, 2**63, dtype="uint64"), np.uint64([0, 2**63])),
        (lambda x: gf.arange(0, 2**64 - 1, 2**63, dtype="float32"), np.float32([0, 2**63])),
        (lambda x: gf.arange(0, 2**70, 2**70), [0]),
        (lambda x: gf.arange(-(2**63), 0, 2**62), [-(2**63), -(2**62)]),
        (lambda x: gf.diff(gf.ones((3,)), n=2**62), np.ones(0)),
        (lambda x: gf.diagonal(gf.ones((3, 4)), offset=2**70), np.ones(0)),
        (lambda x: gf.diagonal(gf.ones((3, 4)), offset=-(2**70)), np.ones(0)),
        (lambda x: gf.scan(lambda c, _: (c + 1, c), x, None, length=3, unroll=2**62)[0], [3, 4]),
        (lambda x: gf.scan(lambda c, _: (c + 1, c), x, None, length=0, unroll=2**62)[0], [0, 1]),
    ],
)
@pytest.mark.parametrize("debug", [False, True])
def test_counts_that_no_integer_of_a_machine_holds(make, wanted, debug):
    np.testing.assert_array_equal(run(make, np.arange(2), debug=debug), wanted)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gf.linspace(0, 1, 2**62), "NumPy has no arrays of 4,611,686,018,427,387,904 num"),
        (lambda: gf.arange(0, 1e20, 0.5), "NumPy has no arrays of 2e"),
        (lambda: gf.repeat([1, 2], [2**62, 2**62]), "NumPy has no arrays of 9,223,372,036,854,775"),
        (lambda: gf.resize(gf.ones((1, 1, 2, 2)), (2**62, 1)), "NumPy has no arrays of 4,611,686"),
        (lambda: gf.repeat([1, 2], [2**42, 1]), "not enough memory for what becomes a part"),
        (lambda: gf.polygamma(171, 1.0), "n=171 is not in 1 … 170"),
        (lambda: gf.arange(2**70, 2**70 + 1, dtype="float32"), "fits neither int64 nor uint64"),
        (lambda: gf.nn.Conv2d(2**63, 3, 1, groups=2), "groups=2"),
    ],
)
def test_counts_that_nothing_can_be_made_of(make, message):
    with gf.Graph(), pytest.raises(gf.GraphfwError, match=re.escape(message)):
        make()


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (lambda x: gf.conv(x, gf.ones((1, 1, 1, 1)), dilation=2**70), np.ones((1, 1, 3, 3))),
        (lambda x: gf.conv(x, gf.ones((1, 1, 1, 1)), stride=10**400), np.ones((1, 1, 1, 1))),
        (lambda x: gf.max_pool(x, 2, stride=2**70), np.ones((1, 1, 1, 1))),
        (lambda x: gf.max_pool(x, 1, dilation=2**62), np.ones((1, 1, 3, 3))),
        (lambda x: gf.avg_pool(x, 2, stride=2**63 - 1), np.ones((1, 1, 1, 1))),
        (lambda x: gf.fold(gf.ones((1, 4, 1)), (2, 2), 2, stride=2**70), np.ones((1, 1, 2, 2))),
    ],
)
def test_numbers_of_more_than_64_bits_have_no_native_code(make, wanted):
    image = np.ones((1, 1, 3, 3), np.float32)
    for sizes in (image.shape, (1, 1, "h", "w")):
        with gf.Graph() as g:
            x = gf.placeholder(sizes, name="x")
            y = make(x)
        plan = gf.Session(g, verify="each").compile(y, feeds=[x])
        np.testing.assert_array_equal(plan(image), wanted)
        for report in (plan.explain, plan.memory):
            with contextlib.suppress(gf.ExecutionError, gf.ExecutorError):  # which say why
                report(image)


@compiled
def test_a_limit_of_memory_with_numbers_of_more_than_64_bits():
    with gf.Graph() as g:
        x = gf.placeholder((1, 1, 3, 3), name="x")
        pooled = gf.max_pool(x, 1, dilation=2**62)
        strided = gf.conv(x, gf.ones((1, 1, 1, 1)), stride=10**400)
    session = gf.Session(g, memory_limit="1GB")
    image = np.ones((1, 1, 3, 3), np.float32)
    np.testing.assert_array_equal(session.run(pooled, {x: image}), image)
    with pytest.raises(gf.ExecutorError, match="more than 64 bits") as caught:
        session.run(strided, {x: image})
    assert caught.value.fix == "leave it out, or use smaller numbers"


@compiled
def test_a_size_divided_by_0_has_no_plan_of_memory():
    with gf.Graph() as g:
        x = gf.placeholder(("n", "m"), name="x")
        y = gf.sum(x) + gf.asarray(x.shape[0] // x.shape[1])
    plan = gf.Session(g).compile(y, feeds=[x])
    with pytest.raises(gf.ExecutionError, match="divides by 0"):
        plan.memory((3, 0))


WINDOWS = [
    lambda x, n: gf.max_pool(x, (n, 3), padding=(n // 2, 1)),
    lambda x, n: gf.avg_pool(x, (n, 3), stride=2, padding=(n // 2, 1)),
    lambda x, n: gf.max_pool(x, (n, 3), padding=(n // 2, 1), return_indices=True)[1],
    lambda x, n: gf.grad(gf.sum(gf.max_pool(x, (n, 3), padding=(n // 2, 1)) ** 2), x),
    lambda x, n: gf.grad(gf.sum(gf.avg_pool(x, (n, 3), padding=(n // 2, 1)) ** 2), x),
]


@pytest.mark.parametrize("make", WINDOWS)
def test_long_windows(make, rng):
    image = rng.standard_normal((1, 2, 5, 6)).astype(np.float32)
    with gf.Graph() as g:
        x = gf.placeholder(image.shape, name="x")
        y = make(x, 1100)
    found, wanted = [gf.Session(g, debug=d).run(y, {x: image}) for d in (False, True)]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@compiled
def test_windows_far_larger_than_the_image_take_no_longer(rng):
    image = rng.standard_normal((1, 2, 5, 6)).astype(np.float32)
    with gf.Graph() as g:
        x = gf.placeholder(image.shape, name="x")
        y = [gf.local_response_norm(x, 2**60), gf.max_pool(x, (2**60, 1), padding=(2**59, 0))]
    with gf.Session(g, verify="each", timeout=20) as session:
        norm, largest = session.run(y, {x: image})
    np.testing.assert_array_equal(norm, image)
    np.testing.assert_array_equal(largest[:, :, 0], image.max(axis=2))


@pytest.mark.parametrize(
    "make", [lambda x: gf.one_hot(x[:0], 2**62), lambda x: gf.broadcast_to(x[:0, None], (0, 2**62))]
)
def test_empty_arrays_that_numpy_has_not(make):
    with pytest.raises((gf.MemoryLimitError, gf.ExecutionError)) as caught:
        run(make, np.arange(5))
    text = str(caught.value)
    assert "NumPy has no arrays of shape [" in text
    assert "4611686018427387904]" in text
    assert "test_extremes.py" in text


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda x: gf.take(x, [99], axis=1), (0, 10)),
        (lambda x: x[:, [3, -11]], (0, 10)),
        (lambda x: x[..., [99], :], (4, 3, 0)),
        (lambda x: gf.index_set(x, (slice(None), [99]), 1.0), (0, 10)),
        (lambda x: gf.index_add(x, (slice(None), [99]), 1.0), (0, 10)),
        (lambda x: x[:, 99], (0, 10)),
    ],
)
@pytest.mark.parametrize("debug", [False, True])
def test_an_index_is_checked_where_the_result_is_empty(make, shape, debug):
    array = np.zeros(shape, np.float32)
    with pytest.raises(gf.ExecutionError, match=r"index (99|-11) is out of range for dim 1 of"):
        run(make, array, debug=debug)


def test_no_index_is_none_out_of_range():
    found = run(lambda x: gf.take(x, np.zeros((0,), np.int64), axis=1), np.zeros((0, 10)))
    assert found.shape == (0, 0)
    assert run(lambda x: gf.take(x, [9], axis=1), np.zeros((0, 10))).shape == (0, 1)


def nested(depth, x):
    return x if depth == 0 else gf.cond(gf.sum(x) > 0, lambda: nested(depth - 1, x + 1), lambda: x)


def test_bodies_nested_too_deep():
    with pytest.raises(gf.GraphError) as caught:
        run(lambda x: nested(300, x), np.ones(3, np.float32))
    text = str(caught.value)
    assert re.search(r"cond|branch: \d+ bodies inside of each other are too many for", text)
    assert "fix  choose among many with gf.switch, repeat with gf.while_loop or gf.scan" in text
    assert "test_extremes.py" in text


def test_a_function_that_calls_itself_is_no_deep_nesting():
    def endless(x):
        return endless(x)

    with gf.Graph(), pytest.raises(RecursionError):
        gf.cond(gf.placeholder((), gf.bool), endless, endless, gf.ones(3))


def test_near_the_recursion_limit_runs_raise_recursion_errors():
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
        y = gf.exp(x) * 2
    session = gf.Session(g)
    plan = session.compile(y, feeds=[x])
    array = np.ones(3, np.float32)
    plan(array)

    def at_depth(depth):
        return plan(array) if depth == 0 else at_depth(depth - 1)

    limit, outcomes = sys.getrecursionlimit(), set()
    for depth in range(limit - 150, limit):
        try:
            at_depth(depth)
        except RecursionError:
            outcomes.add("refused")
        else:
            outcomes.add("done")
    assert outcomes == {"refused", "done"}  # and nothing else was raised
    plan(array)


@pytest.mark.parametrize("value", ["x", None, object(), [[1.0], [2.0, 3.0]], {}])
def test_entries_of_a_state_that_are_no_arrays(value):
    with gf.Graph() as g:
        layer = gf.nn.Linear(2, 2)
    session = gf.Session(g)
    before = session.state_dict()
    for load in (
        lambda: session.load_state_dict(before | {"linear.weight": value}),
        lambda: session.load_state_dict({"a": value}, strict=False),
        lambda: layer.load_state_dict(session, {"weight": value, "bias": np.zeros(2)}),
        lambda: layer.load_state_dict(session, {"weight": value}, strict=False, format="torch"),
    ):
        with pytest.raises(gf.CheckpointError, match=r'the entry "[\w.]+" is no array of numbers'):
            load()
    np.testing.assert_array_equal(session.state_dict()["linear.weight"], before["linear.weight"])


TOKENS = [
    *("0", "-1", "2**62", "9223372036854775808", "()", "(1,)", "(1, 2)", "None", "True", "1.5"),
    *('"x"', "n", "%0", "%99", "body.b0", "float32", "[", "]", "(", ")", "{", "}", ",", "=", ":"),
    *("@abc", "nan", "n//0", "max(n)", "lambda", "**", "#", "\\", "\0", "é", "\n"),
]


def mutated(rng, text):
    """Return a text with a piece of it replaced: by a token, or by another piece."""
    kind = rng.randrange(4)
    if kind == 0:
        at = rng.randrange(len(text))
        return text[:at] + rng.choice(TOKENS) + text[at + rng.randrange(3) :]
    pattern = (None, r"-?\d+", r"(?<==)[^,)]+", r"[\w.]+")[kind]
    pieces = list(re.finditer(pattern, text))
    piece = rng.choice(pieces)
    new = rng.choice(pieces)[0] if kind == 3 else rng.choice(TOKENS)
    return text[: piece.start()] + new + text[piece.end() :]


def graph_text():
    with gf.Graph("net") as g:
        x = gf.placeholder(("n", 4), name="x")
        image = gf.reshape(x, (x.shape[0], 1, 2, 2))
        pooled = gf.max_pool(gf.conv(image, gf.ones((1, 1, 1, 1))), 2)
        carry, rows = gf.scan(lambda c, r: (c + r, c * 2), gf.zeros((4,)), x)
        either = gf.cond(gf.sum(x) > 0, lambda: x * 2, lambda: gf.flip(x, axis=0))
        loss = gf.nn.cross_entropy(gf.nn.Linear(4, 3)(x), gf.argmax(x[:, :3], axis=1))
        train = gf.optim.Adam(1e-3).minimize(loss)
        assert train is not None
        g.outputs = (pooled, carry, rows, either, loss, gf.random.normal(x.shape), x[1:, ::2])
    return str(g), g.constants()


@pytest.mark.slow
def test_mutated_texts_are_graphs_or_refused():
    text, constants = graph_text()
    rng = random.Random(17)
    read = 0
    for _ in range(120):
        changed = mutated(rng, text)
        try:
            str(gf.parse(changed, constants=constants))
        except gf.GraphfwError:
            continue
        read += 1
    assert read > 3


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dim=", "dim=(1,) + n"),
        ("to=dtype.float32", "to=65"),
        ("axes=(0,)", "axes=0"),
        ("axes=(0,)", "axes=(False,)"),
        ("axes=(0,)", "axes=(-1,)"),
        ("keepdims=False", "keepdims=0"),
    ],
)
def test_fields_of_a_wrong_kind(field, value):
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        g.outputs = (gf.mean(x),)
    text = str(g)
    assert field in text
    with pytest.raises(gf.ParseError):
        gf.parse(text.replace(field, value))
