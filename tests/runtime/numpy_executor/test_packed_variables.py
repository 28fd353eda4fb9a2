"""Variables of 4 and 2 bits lie packed in a session: all that reads and writes them."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest

import graphfw as gf

DTYPES = ["int4", "uint4", "int2", "uint2", "float4_e2m1fn"]
BITS = {"int4": 4, "uint4": 4, "int2": 2, "uint2": 2, "float4_e2m1fn": 4}


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setenv("GRAPHFW_CACHE", "off")


def drawn(rng, shape, dtype):
    """Return numbers of a dtype, all codes of it among them."""
    codes = rng.integers(0, 2 ** BITS[dtype], shape).astype(np.uint8)
    return codes.view(np.dtype(getattr(ml_dtypes, dtype)))


def same(found, wanted):
    """Compare bits, also of what has no comparison."""
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    assert found.tobytes() == wanted.tobytes()


def compared(f, contents, feeds=(), rows="m", **session):
    """Compare a function of a variable with the same one of a placeholder, which is not packed."""
    results = []
    for is_variable in (True, False):
        with gf.Graph() as g:
            if is_variable:
                w = gf.Variable(contents, name="w", trainable=False)
            else:
                w = gf.placeholder(contents.shape, contents.dtype, name="w")
            xs = [gf.placeholder((rows, *x.shape[1:]), name=f"x{i}") for i, x in enumerate(feeds)]
            y = f(w, *xs)
        given = dict(zip(xs, feeds, strict=True)) | ({} if is_variable else {w: contents})
        with gf.Session(g, **session) as run:
            results.append(run.run(y, given))
    same(*results)
    return results[0]


VIEWS = {
    "all": lambda w: w,
    "transposed": lambda w: w.T,
    "a row": lambda w: w[3],
    "a column": lambda w: w[:, 4],
    "an element": lambda w: w[2, 5],
    "a slice": lambda w: w[1:-2, 3:],
    "every second": lambda w: w[1::2, ::3],
    "flipped": lambda w: w[::-1, ::-1],
    "flattened": lambda w: gf.reshape(w, (-1,)),
    "regrouped": lambda w: gf.reshape(w.T, (-1, 3)),
    "broadcast": lambda w: gf.broadcast_to(w, (3, *w.shape)),
    "rows by number": lambda w: w[gf.asarray([3, 0, -1, 3])],
    "columns by number": lambda w: gf.take(w, gf.asarray([3, 0, 2]), axis=1),
    "joined": lambda w: gf.concat([w[:2], w[4:]], axis=0),
    "padded": lambda w: gf.stack([w, w[::-1]], axis=1),
}
OF_THEM = {
    "as they are": lambda v: v,
    "widened": lambda v: gf.astype(v, gf.float32),
    "as float64": lambda v: gf.astype(v, gf.float64),
    "as int8": lambda v: gf.astype(v, gf.int8),
    "as float16": lambda v: gf.astype(v, gf.float16),
    "compared": lambda v: v == v[..., ::-1] if v.ndim else v == v,
    "summed": lambda v: gf.sum(gf.astype(v, gf.float32), axis=-1) if v.ndim else v,
    "summed across": lambda v: gf.sum(gf.astype(v, gf.float32), axis=0) if v.ndim else v,
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("jit", ["1", "0"])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("use", OF_THEM)
def test_views(monkeypatch, rng, use, view, jit):
    """Rows of 69 elements begin within bytes."""
    monkeypatch.setenv("GRAPHFW_JIT", jit)
    dtype = DTYPES[[*VIEWS].index(view) % len(DTYPES)]
    contents = drawn(rng, (9, 69), dtype)
    compared(lambda w: OF_THEM[use](VIEWS[view](w)), contents)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (127,), (128,), (129,), (5, 3, 7)])
@pytest.mark.parametrize("use", OF_THEM)
def test_shapes(rng, use, dtype, shape):
    contents = drawn(rng, shape, dtype)
    compared(OF_THEM[use], contents)
    with gf.Graph() as g:
        w = gf.Variable(contents, name="w", trainable=False)
    with gf.Session(g) as session:
        same(session[w], contents)


SCALES = {
    "plain": lambda w, n: w,
    "of columns": lambda w, n: w * n,
    "of rows": lambda w, n: w * gf.arange(w.shape[0], dtype=gf.float32)[:, None],
    "from a zero": lambda w, n: (w - 1.5) * gf.sum(n),
    "chosen": lambda w, n: gf.where(w > 0, gf.abs(w) * n, -gf.square(w)) / 3,
}


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize("rows", [1, 2, 4, 5, 33])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("transposed", [False, True])
def test_products(rng, rows, scale, transposed):
    for number, (k, n) in enumerate([(70, 45), (33, 131), (64, 64), (1, 3)]):
        dtype = DTYPES[(number + rows) % len(DTYPES)]
        scales = rng.standard_normal(k if transposed else n).astype(np.float32)
        x = rng.standard_normal((rows, k)).astype(np.float32)

        def product(w, x, scales=scales, rows=rows):
            right = SCALES[scale](gf.astype(w, gf.float32), gf.constant(scales))
            return gf.relu(x @ (right.T if transposed else right)) + 1

        contents = drawn(rng, (n, k) if transposed else (k, n), dtype)
        compared(product, contents, [x])
        compared(lambda w, x, f=product, rows=rows: f(w, x[:rows]), contents, [x])


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("computed", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("rows", [1, 3, 20])
def test_products_of_other_dtypes(rng, dtype, computed, rows):
    x = rng.standard_normal((rows, 71)).astype(np.float32)
    for contents, transposed in (
        (drawn(rng, (71, 40), dtype), False),
        (drawn(rng, (40, 71), dtype), True),
    ):

        def product(w, x, transposed=transposed):
            right = gf.astype(w, computed)
            return gf.astype(x[:rows], computed) @ (right.T if transposed else right)

        compared(product, contents, [x])


@pytest.mark.parametrize("dtype", ["int4", "uint2"])
def test_scales_of_blocks(rng, dtype):
    """As 4-bit weights have them: one number for some elements along the sums."""
    scales = rng.standard_normal((96 // 32, 1, 50)).astype(np.float32)

    def product(w, x):
        wide = gf.astype(gf.reshape(w, (3, 32, 50)), gf.float32) * gf.constant(scales)
        return x @ gf.reshape(wide, (96, 50))

    for rows in (1, 7):
        x = rng.standard_normal((rows, 96)).astype(np.float32)
        compared(product, drawn(rng, (96, 50), dtype), [x])


def test_batches(rng):
    x = rng.standard_normal((3, 2, 40)).astype(np.float32)
    compared(
        lambda w, x: x @ gf.astype(w, gf.float32), drawn(rng, (3, 40, 51), "int4"), [x], rows=3
    )


def test_memory_is_half_of_that_of_bytes(rng, monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")  # only plans of compiled code tell their memory
    sizes = {}
    for dtype in ("int8", "int4", "int2"):
        with gf.Graph() as g:
            x = gf.placeholder((1, 1024), name="x")
            w = gf.Variable(gf.nn.init.zeros, shape=(1024, 512), dtype=dtype, name="w")
            y = x @ (gf.astype(w, gf.float32) * 0.5)
        with gf.Session(g) as session:
            report = session.compile(y, [x]).memory()
            (entry,) = [entry for entry in report.entries if entry.kind == "variable"]
            held = session._state.snapshot.values[w]
            assert held.nbytes == entry.nbytes
            assert not report.of("arena", "outside", "prepared")
            sizes[dtype] = entry.nbytes
    assert sizes["int8"] / 2 <= sizes["int4"] <= sizes["int8"] / 2 + 64
    assert sizes["int8"] / 4 <= sizes["int2"] <= sizes["int8"] / 4 + 64


@pytest.mark.exhaustive
@pytest.mark.parametrize("jit", ["1", "0"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_updates(monkeypatch, rng, jit, dtype):
    monkeypatch.setenv("GRAPHFW_JIT", jit)
    contents, other = drawn(rng, (7, 9), dtype), drawn(rng, (7, 9), dtype)
    with gf.Graph() as g:
        w = gf.Variable(contents, name="w", trainable=False)
        v = gf.Variable(other, name="v", trainable=False)
        given = gf.placeholder((7, 9), dtype, name="given")
        total = gf.sum(gf.astype(w, gf.float32))
        swap = [gf.update(w, v), gf.update(v, w)]
        flip = gf.update(w, w[::-1])
        keep = gf.update(w, w)
        take = gf.update(v, given)
        less = gf.update(w, gf.astype(gf.minimum(gf.astype(w, gf.float32), 1), dtype))
    with gf.Session(g) as session:
        before = session.run([total, swap, w])
        assert before[0] == contents.astype(np.float32).sum()
        same(before[2], contents)
        same(session[w], other)
        same(session[v], contents)
        session.run(flip)
        session.run(keep)
        same(session[w], np.ascontiguousarray(other[::-1]))
        session.run([take, flip], {given: contents})
        same(session[v], contents)
        same(session[w], other)
        session.run(less)
        np.testing.assert_array_equal(
            session[w].astype(np.float32), np.minimum(other.astype(np.float32), 1)
        )


def test_a_run_that_fails_changes_nothing(rng):
    contents = drawn(rng, (5, 7), "int4")
    with gf.Graph() as g:
        w = gf.Variable(contents, name="w", trainable=False)
        index = gf.placeholder((), "int64", name="place")
        change = gf.update(w, w[::-1])
        bad = gf.astype(w, gf.float32)[index]
    with gf.Session(g) as session:
        with pytest.raises(gf.GraphfwError):
            session.run([change, bad], {index: 5})
        same(session[w], contents)


@pytest.mark.parametrize("dtype", DTYPES)
def test_contents_come_and_go(rng, tmp_path, dtype):
    contents, other = drawn(rng, (7, 9), dtype), drawn(rng, (7, 9), dtype)
    with gf.Graph() as g:
        w = gf.Variable(contents, name="w", trainable=False)
        y = gf.astype(w, gf.float32)
    with gf.Session(g) as first, gf.Session(g) as second:
        first[w] = other
        same(first[w], other)
        same(second[w], contents)
        first.save(tmp_path / "w.safetensors")
        second.restore(tmp_path / "w.safetensors")
        same(second.run(w), other)
        second.load_state_dict(first.state_dict() | {"w": contents})
        same(second.state_dict()["w"], contents)
        np.testing.assert_array_equal(second.run(y), contents.astype(np.float32))
        with pytest.raises(gf.ShapeError):
            first[w] = contents[:3]
    for again in (pickle.loads(pickle.dumps(g)), copy.deepcopy(g)):
        with gf.Session(again) as session:
            same(session["w"], contents)


def test_bodies_of_loops_and_branches(rng):
    contents = drawn(rng, (9, 9), "int4")
    x = rng.standard_normal((1, 9)).astype(np.float32)

    def scanned(w, x):
        return gf.scan(lambda c, r: (c + r @ gf.astype(w, gf.float32), r), x, x[None])[0]

    def repeated(w, x):
        return gf.fori_loop(0, 3, lambda i, c: gf.tanh(c @ gf.astype(w, gf.float32)), x)

    def chosen(w, x):
        return gf.cond(
            gf.sum(x) > 0, lambda: gf.astype(w, gf.float32), lambda: gf.astype(w.T, gf.float32)
        )

    for f in (scanned, repeated, chosen):
        compared(f, contents, [x])


@pytest.mark.parametrize(
    "how",
    [
        {"verify": "values"},
        {"verify": "first-run"},
        {"debug": True},
        {"check_finite": True},
        {"threads": 1},
        {"memory_limit": "1MiB"},
        {"precision": "mixed-bf16"},
    ],
    ids=str,
)
def test_sessions(rng, how, monkeypatch):
    if "memory_limit" in how:
        monkeypatch.setenv("GRAPHFW_JIT", "1")  # only plans of compiled code keep it
    contents, x = drawn(rng, (9, 33), "int4"), rng.standard_normal((3, 9)).astype(np.float32)
    compared(lambda w, x: x @ (gf.astype(w, gf.float32) * 2), contents, [x], **how)


def test_sizes_that_a_run_finds_out(rng):
    contents = drawn(rng, (9, 33), "uint4")
    compared(lambda w: gf.nonzero(gf.astype(w, gf.int32))[0], contents)


def test_recalled_plans(monkeypatch, rng, tmp_path):
    monkeypatch.setenv("GRAPHFW_CACHE", str(tmp_path))
    tmp_path.chmod(0o700)
    contents, x = drawn(rng, (9, 33), "int4"), rng.standard_normal((1, 9)).astype(np.float32)
    for _ in range(2):
        compared(lambda w, x: x @ gf.astype(w, gf.float32), contents, [x])


def test_threads(rng):
    """Runs that read go on while others write."""
    contents = drawn(rng, (33, 35), "int4")
    x = np.ones((1, 33), np.float32)
    with gf.Graph() as g:
        w = gf.Variable(contents, name="w", trainable=False)
        fed = gf.placeholder((1, 33), name="x")
        y = gf.sum(fed @ gf.astype(w, gf.float32))
        flip = gf.update(w, w[::-1])
    wanted = contents.astype(np.float32).sum()
    with gf.Session(g) as session, ThreadPoolExecutor(4) as pool:
        reads = [pool.submit(session.run, y, {fed: x}) for _ in range(200)]
        writes = [pool.submit(session.run, flip) for _ in range(100)]
        assert {float(one.result()) for one in reads} == {float(wanted)}
        for one in writes:
            one.result()
        same(session[w], contents)
