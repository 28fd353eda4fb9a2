"""Pooling and its gradients by kernels for GPUs, against the ops' own `eval`."""

import ml_dtypes
import numpy as np
import pytest

import graphfw as gf
from graphfw.ops.nn.pooling_ops import WindowArgmax, WindowMax, WindowPut, WindowSum, WindowTake
from graphfw.ops.nn.unfold import FoldWindows
from graphfw.runtime.cupy_executor.codegen import module
from graphfw.runtime.cupy_executor.convolution import pooling
from tests.support.cuda_compilers import compiled
from tests.support.hand_steps import computed

DTYPES = [
    *(np.float32, ml_dtypes.bfloat16, np.int8),
    *(
        pytest.param(dtype, marks=pytest.mark.slow)
        for dtype in (np.float64, np.float16, np.int32, np.uint16)
    ),
]

FLOATS = (gf.float32, gf.float64, gf.float16, gf.bfloat16, gf.int64)


def check(op, *arrays):
    """Compare what the kernels make of arrays with `eval`."""
    found, _ = computed(op, *arrays)
    wanted = op.eval(np, *arrays)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found.astype(np.float64), wanted.astype(np.float64))


def random_fields(rng):
    """Return the fields of an op on windows, and the shape of what they slide over."""
    rank = int(rng.integers(1, 4))
    window, strides, dilations = [tuple(map(int, rng.integers(1, 4, rank))) for _ in range(3)]
    before, after = [tuple(map(int, rng.integers(0, 3, rank))) for _ in range(2)]
    sizes = [
        max(1, (k - 1) * d + int(rng.integers(1, 7)) - b - a)
        for k, d, b, a in zip(window, dilations, before, after, strict=True)
    ]
    lead = tuple(map(int, rng.integers(0 if rng.random() < 0.1 else 1, 4, rng.integers(0, 3))))
    return (window, strides, dilations, before, after), (*lead, *sizes)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_random_arguments(dtype, rng):
    for _ in range(5):
        fields, shape = random_fields(rng)
        x = np.abs(rng.normal(size=shape) * 4).astype(dtype)
        check(WindowMax(*fields), x)
        check(WindowSum(*fields), x)
        check(WindowArgmax(*fields), x)
        number = WindowArgmax(*fields).eval(np, x)
        check(WindowTake(*fields), x, number)
        output_shape = number.shape
        y = rng.integers(0, 9, output_shape).astype(dtype)
        odd = rng.integers(-1, np.prod(fields[0]) + 1, output_shape).astype(np.int32)
        check(WindowPut(*fields, shape[len(shape) - len(fields[0]) :]), y, odd)
        rank = len(fields[0])
        lead, inside, sizes = shape[:-rank], output_shape[-rank:], shape[-rank:]
        whole = tuple(s + b + a for s, b, a in zip(sizes, *fields[3:], strict=True))
        z = rng.integers(0, 9, (*lead, *fields[0], *inside)).astype(dtype)
        check(FoldWindows(*fields[:3], whole), z)


def test_nans_and_infinities(rng):
    x = rng.choice([np.nan, -np.inf, np.inf, 0.0, 1.0], size=(2, 40)).astype(np.float32)
    fields = ((3,), (2,), (1,), (1,), (1,))
    check(WindowMax(*fields), x)
    check(WindowArgmax(*fields), x)
    check(WindowTake(*fields), x, WindowArgmax(*fields).eval(np, x))


@pytest.mark.parametrize("rank", [1, 2])
def test_training_is_that_of_the_cpu(fake, rank, rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3, *[9] * rank), name="x")
        y = gf.max_pool(x * 2, 3, stride=2, padding=1)
        y = gf.avg_pool(y, 2, stride=1, padding=1, count_include_pad=False)
        z = (
            gf.max_pool(gf.moveaxis(x, 1, -1), 2)
            if rank == 1
            else gf.fold(gf.unfold(x, 3, stride=2), (9, 9), 3, stride=2)
        )
        loss = gf.sum(y * y) + gf.sum(z * z)
        (dx,) = gf.grad(loss, [x])
    feeds = {x: rng.normal(size=(2, 3, *[9] * rank)).astype(np.float32)}
    found = []
    for name in ("numpy", "cupy"):
        with gf.Session(g, executor=name) as session:
            plan = session.compile([loss, dx], [x])
            found.append([session.executor.to_host(v) for v in plan(feeds[x])])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-4)
    assert " 0 operations by CuPy" in plan.explain()


@pytest.mark.parametrize(
    ("architecture", "wide", "dtypes"),
    [
        ("sm_80", False, (gf.float32, gf.bfloat16)),
        pytest.param("sm_90", False, FLOATS, marks=pytest.mark.slow),
        pytest.param("sm_90", True, FLOATS, marks=pytest.mark.slow),
    ],
)
def test_gpus_compilers_take_them(architecture, wide, dtypes):
    found = []
    for dtype in dtypes:
        for op in (WindowMax, WindowSum, WindowArgmax):
            result = gf.int64 if op is WindowArgmax else dtype
            found.append(pooling._reduce_code(op.name, pooling._JOINS[op], dtype, result))
        found += [make(dtype, gf.int64) for make in (pooling._take_code, pooling._put_code)]
        found += [pooling._fold_code(dtype)]
    assert compiled(module(found), architecture, wide=wide)
