"""Dtypes that numbers are only kept in: compiled, on the CPU and on a GPU, as node by node."""

import os

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.dtype import STORAGE
from tests.support.stored import numbers

every = pytest.mark.parametrize("dtype", STORAGE, ids=str)


@pytest.fixture(
    params=["numpy", "stand-in", "node by node", pytest.param("gpu", marks=pytest.mark.gpu)]
)
def executor(request, monkeypatch):
    """The executors; a GPU's also on the stand-ins, and there without kernels, too."""
    monkeypatch.setenv("GRAPHFW_JIT", "0" if request.param == "node by node" else "1")
    if request.param in ("stand-in", "node by node"):
        request.getfixturevalue("fake")
    return "numpy" if request.param == "numpy" else "cupy"


def both(g, executor, fetches, feeds):
    """Return the results node by node, and those of compiled code."""
    with gf.Session(g, debug=True) as here, gf.Session(g, executor=executor) as there:
        wanted = here.run(fetches, feeds)
        return wanted, [there.run(fetches, feeds, host=True) for _ in range(4)][-1]


def assert_same(found, wanted):
    for name, right in wanted.items():
        assert found[name].dtype == right.dtype, name
        got, right = found[name].astype(np.float32), right.astype(np.float32)
        np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-5, err_msg=name)
        there = ~np.isnan(right)
        np.testing.assert_array_equal(np.signbit(got[there]), np.signbit(right[there]), name)


@pytest.mark.exhaustive(every=2)
@every
def test_numbers_are_converted_and_moved(executor, dtype, rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 6), dtype, name="x")
        y = gf.placeholder((6, 5), name="y")
        rows = gf.placeholder((4,), gf.int64, name="rows")
        kept = gf.asarray(numbers(rng, dtype, 6))
        one = gf.asarray(np.full((3, 6), numbers(rng, dtype, 1)[0]))
        small = gf.clip(y, 0.5, 1.5)
        fetches = {
            "product": gf.nan_to_num(gf.astype(x, gf.float32) / 64) @ y,
            "written": gf.astype(small, dtype),
            "again": gf.astype(gf.astype(x, gf.float64), dtype),
            "other": gf.astype(x, STORAGE[0]),
            "complex": gf.real(gf.astype(x[:, :1], gf.complex64)) * 0 + 1,
            "turned": gf.permute_dims(x, (1, 0))[::-1, 1:],
            "joined": gf.concat([x, gf.broadcast_to(kept, (3, 6)), one], axis=0),
            "rows": gf.take(x, rows, axis=0),
            "some": gf.where(y[:, :1] > 0, gf.permute_dims(x[:5], (1, 0)), kept[:, None]),
            "equal": gf.equal(x, kept),
            "nan": gf.isnan(x),
            "finite": gf.isfinite(x),
        }
    feeds = {
        "x": numbers(rng, dtype, 7, 6),
        "y": rng.standard_normal((6, 5)).astype(np.float32),
        "rows": [6, 0, 3, 3],
    }
    wanted, found = both(g, executor, fetches, feeds)
    assert_same(found, wanted)


def test_loops_hand_them_on(executor, rng):
    dtype = STORAGE[0]
    with gf.Graph() as g:
        x = gf.placeholder((9, 5), dtype, name="x")
        start = gf.placeholder((5,), dtype, name="start")

        def iteration(carry, row):
            total = gf.astype(carry, gf.float32) + gf.astype(row, gf.float32)
            new = gf.astype(gf.clip(total, -400, 400), dtype)
            return new, new

        last, all_rows = gf.scan(iteration, start, x)
        either = gf.cond(gf.astype(start[0], gf.float32) > 0, lambda: x[0], lambda: start)
    few = rng.integers(0, 0x7E, (9, 5)).astype(np.uint8).view(dtype.dtype)
    fetches = {"last": last, "rows": all_rows, "either": either}
    wanted, found = both(g, executor, fetches, {"x": few, "start": few[4]})
    assert_same(found, wanted)


def test_python_sees_numbers(executor, capsys):
    dtype = STORAGE[0]
    kind = gf.TensorType(gf.float32, (3,))
    with gf.Graph() as g:
        x = gf.placeholder((3,), dtype, name="x")
        wide = gf.host_call(lambda a: a.astype(np.float32), kind, x)
        kept = gf.host_call(lambda a: a[::-1], gf.TensorType(dtype, (3,)), x)
        each = gf.map(
            lambda e: gf.host_call(
                lambda a: a.astype(np.float32) * 2, gf.TensorType(gf.float32, ()), e
            ),
            x,
        )
        gf.print(x)
    numbers = np.array([1, -2, 448]).astype(dtype.dtype)
    with gf.Session(g, executor=executor) as session:
        plan = session.compile({"wide": wide, "kept": kept, "each": each}, feeds=[x])
        found = plan(numbers, host=True)
        is_reported = executor == "cupy" and os.environ["GRAPHFW_JIT"] == "1"
        assert ("by NumPy, as CuPy lacks its dtypes" in plan.explain()) == is_reported
    assert "[1 -2 448]" in capsys.readouterr().out
    np.testing.assert_array_equal(found["wide"], [1, -2, 448])
    np.testing.assert_array_equal(found["kept"].astype(float), [448, -2, 1])
    np.testing.assert_array_equal(found["each"], [2, -4, 896])


def test_what_is_not_finite_is_found(executor):
    with gf.Graph() as g:
        x = gf.placeholder((2,), name="x")
        kept = gf.astype(x, "float8_e5m2")
        back = gf.astype(kept, gf.float32)
    with gf.Session(g, executor=executor, check_finite=True) as session:
        session.run([kept, back], {x: [1.0, -2.0]})
        for fetch in (kept, back):
            with pytest.raises(gf.ExecutionError, match=r"astype gives inf at index \(1,\)"):
                session.run(fetch, {x: [1.0, 1e9]})


def test_numbers_that_stay_small_are_kept_small(executor):
    """Of weights in 16 bits a turned copy may be made once; of those in 8 none in 16."""
    if os.environ["GRAPHFW_JIT"] == "0":
        pytest.skip("without kernels nothing is kept")
    sizes = {}
    for name in ("float8_e4m3fn", "bfloat16"):
        with gf.Graph() as g:
            x = gf.placeholder((1, 2048), gf.bfloat16, name="x")
            w = gf.Variable(gf.nn.init.zeros, shape=(2048, 2048), dtype=name, trainable=False)
            y = x @ gf.astype(w, gf.bfloat16).T
        with gf.Session(g, executor=executor) as session:
            plan = session.compile(y, feeds=[x])
            sizes[name] = plan.memory().of("variable", "prepared", "constant")
    assert sizes["float8_e4m3fn"] == 4 << 20 < sizes["bfloat16"]
