"""The vector math library: its results against exact ones, at random and at difficult points."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from llvmlite import binding

from graphfw.ir.dtype import ALL, DType, float32, float64
from graphfw.ops.numerics.library import FUNCTIONS
from graphfw.runtime.kernels.ir import Axis, Buffer, InnerLoop, Kernel, Load, Param, Store
from graphfw.runtime.kernels.primitives import PRIMITIVES
from graphfw.runtime.kernels.scalars import Scalars
from graphfw.runtime.numpy_executor.codegen import BASE, host, mathlib
from graphfw.runtime.numpy_executor.codegen.registers import register, vector
from graphfw.runtime.numpy_executor.machine import machine
from tests.support.cuda_kernels import CUDA
from tests.support.kernels import at, run

Array = np.ndarray[Any, Any]


def loop(function: str, dtype: DType, result: DType, arity: int, lanes: int) -> str:
    """A module with `run(n, out, in0, in1)`, which applies a function to n * lanes elements."""
    library = mathlib.library([(function, dtype, lanes)])
    kind, out = vector(register(dtype), lanes), vector(register(result), lanes)
    each = range(arity)
    lines = [
        *library.declarations.values(),
        library.definitions,
        f"define void @run(i64 %n, ptr %out, {', '.join(f'ptr %in{i}' for i in each)}) {{",
        "entry:",
        "br label %loop",
        "loop:",
        "%i = phi i64 [ 0, %entry ], [ %next, %loop ]",
        f"%at = mul i64 %i, {lanes}",
        *[f"%p{i} = getelementptr {register(dtype)}, ptr %in{i}, i64 %at" for i in each],
        *[f"%x{i} = load {kind}, ptr %p{i}, align 1" for i in each],
        f"%y = call {out} @{mathlib.symbol(function, dtype, lanes)}"
        f"({', '.join(f'{kind} %x{i}' for i in each)})",
        f"%to = getelementptr {register(result)}, ptr %out, i64 %at",
        f"store {out} %y, ptr %to, align 1",
        "%next = add i64 %i, 1",
        "%again = icmp slt i64 %next, %n",
        "br i1 %again, label %loop, label %done",
        "done:",
        "ret void",
        "}",
    ]
    return "\n".join(lines)


@functools.cache
def compiled(function: str, dtype: DType, lanes: int) -> Callable[..., Array]:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    result = float32 if function == "narrow" else dtype
    arity = PRIMITIVES[function].arity
    module = binding.parse_assembly(loop(function, dtype, result, arity, lanes))
    module.verify()
    target = binding.Target.from_default_triple().create_target_machine(
        cpu=machine().cpu,
        features=machine().features,
        opt=2,
    )
    options = binding.create_pipeline_tuning_options(speed_level=2)
    builder = binding.create_pass_builder(target, options)
    builder.getModulePassManager().run(module, builder)
    engine = binding.create_mcjit_compiler(module, target)
    engine.finalize_object()
    run = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * (arity + 1))(
        engine.get_function_address("run")
    )

    def call(*xs: Array) -> Array:
        size = xs[0].size
        padded = -(-size // lanes) * lanes
        operands = [np.resize(np.ascontiguousarray(x, dtype.dtype), padded) for x in xs]
        out = np.empty(padded, result.dtype)
        run(padded // lanes, out.ctypes.data, *[x.ctypes.data for x in operands])
        return out[:size]

    call.engine = engine  # type: ignore[attr-defined]  # which owns the code
    call.run = run  # type: ignore[attr-defined]  # the same
    call.module = module
    return call


NUMPY: dict[str, Callable[..., Array]] = {n: p.reference for n, p in PRIMITIVES.items()}

both = pytest.mark.parametrize("dtype", [float32, float64], ids=str)
every = pytest.mark.parametrize("name", list(mathlib.ULP))


def points(dtype: DType, size: int, rng: np.random.Generator) -> Array:
    """Numbers of all sizes, about half of them from where functions change."""
    bits = np.dtype(f"i{dtype.itemsize}")
    info = np.iinfo(bits)
    quarter_turns = rng.integers(-60000, 60000, size) * (np.pi / 2)
    drawn = [
        rng.integers(info.min, info.max, 2 * size, bits, endpoint=True).view(dtype.dtype),
        rng.uniform(-1, 1, 2 * size),
        rng.uniform(-5, 5, 2 * size),
        rng.uniform(-110, 110, size),
        rng.uniform(-750, 750, size),
        1 + rng.normal(size=size) * 10.0 ** rng.uniform(-12, 0, size),
        quarter_turns,
        rng.normal(size=size) * 10.0 ** rng.uniform(-30, 30, size),
    ]
    with np.errstate(over="ignore"):
        return np.concatenate([x.astype(dtype.dtype) for x in drawn])


def arguments(name: str, dtype: DType, size: int) -> list[Array]:
    rng = np.random.default_rng()
    xs = [points(dtype, size, rng) for _ in range(PRIMITIVES[name].arity)]
    for x in xs:
        rng.shuffle(x)
    if name == "pow":  # more powers of all sizes
        half = xs[0].size // 2
        with np.errstate(all="ignore"):
            base = np.abs(xs[0][:half]).astype(np.float64)
            xs[1][:half] = rng.uniform(-800, 800, half) / np.log(base)
    return xs


def exact(name: str, xs: list[Array]) -> tuple[Array, Array]:
    """The results, finite ones, in more than float64: rounded to float64, and what is missing."""
    of = {
        "log2": lambda x: mpmath.log(x, 2),
        "ndtr": mpmath.ncdf,
        "pow": mpmath.power,
    }.get(name) or getattr(mpmath, name)
    with mpmath.workprec(140):
        results = [of(*map(mpmath.mpf, values)) for values in np.transpose(xs).tolist()]
        near = [float(result) for result in results]
        rest = [float(a - b) for a, b in zip(results, near, strict=True)]
    return np.array(near), np.array(rest)


def spacing(x: Array, dtype: DType) -> Array:
    """The distance of the numbers of a dtype around x."""
    digits, least = (53, -1074) if dtype is float64 else (24, -149)
    return np.ldexp(1.0, np.maximum(np.frexp(x)[1] - digits, least))


@pytest.mark.exhaustive(every=2)
@both
@every
def test_errors_are_within_the_bounds(name: str, dtype: DType) -> None:
    double = dtype is float64
    xs = arguments(name, dtype, 40 if double else 4000)
    with np.errstate(all="ignore"):
        ys = compiled(name, dtype, 64 // dtype.itemsize)(*xs).astype(np.float64)
        near = NUMPY[name](*[x.astype(np.float64) for x in xs])
        wanted = near.astype(dtype.dtype)
    special = ~np.isfinite(wanted)
    # At the edge of overflow the nearest number and the next one are both within the bound.
    edge = np.isfinite(ys) != np.isfinite(wanted)
    assert np.all(np.abs(ys[edge]) >= np.finfo(dtype.dtype).max)
    np.testing.assert_array_equal(ys[special & ~edge], wanted[special & ~edge])
    zero = wanted == 0
    np.testing.assert_array_equal(np.signbit(ys[zero]), np.signbit(wanted[zero]))
    inside = ~special & ~edge & (~zero if double else True)
    near, rest = near[inside], 0.0
    if double:
        near, rest = exact(name, [x[inside] for x in xs])
    errors = np.abs((ys[inside] - near) - rest) / spacing(near, dtype)
    worst = int(np.argmax(errors))
    assert errors[worst] <= mathlib.ULP[name][double], [x[inside][worst] for x in xs]
    assert inside.sum() > 100


@both
@every
def test_special_numbers(name: str, dtype: DType) -> None:
    info = np.finfo(dtype.dtype)
    ends = [info.max, info.smallest_normal, info.smallest_subnormal]
    sizes = [0.0, np.inf, *ends, 0.5, 1.0, 2.0, 3.0, 1e5, 1e10]
    x = np.array([np.nan, *sizes, *[-size for size in sizes]], dtype.dtype)
    xs = [x] if PRIMITIVES[name].arity == 1 else [g.ravel() for g in np.meshgrid(x, x)]
    with np.errstate(all="ignore"):
        wanted = NUMPY[name](*[x.astype(np.float64) for x in xs]).astype(dtype.dtype)
    found = compiled(name, dtype, 64 // dtype.itemsize)(*xs)
    plain = np.isfinite(wanted) & (wanted != 0)
    np.testing.assert_array_equal(found[~plain], wanted[~plain])
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(wanted[numbers]))
    bound = np.ceil(mathlib.ULP[name][dtype is float64]) + 1
    distance = np.abs(found[plain].astype(np.float64) - wanted[plain].astype(np.float64))
    assert np.all(distance <= bound * spacing(wanted[plain], dtype))


@pytest.mark.exhaustive(every=2)
@both
@every
def test_a_lane_depends_on_itself_alone(name: str, dtype: DType) -> None:
    xs = arguments(name, dtype, 50)
    wanted = compiled(name, dtype, 16)(*xs)
    for lanes in (1, 3):
        np.testing.assert_array_equal(compiled(name, dtype, lanes)(*xs), wanted)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", [d for d in ALL if d.is_integer], ids=str)
@pytest.mark.parametrize("name", ["floor_divide", "remainder", "pow"])
def test_integers(name: str, dtype: DType) -> None:
    rng = np.random.default_rng()
    info = np.iinfo(dtype.dtype)
    ends = np.array([info.min, info.max, 0, 1, 2], dtype.dtype)
    wide = rng.integers(info.min, info.max, (2, 5000), dtype.dtype, endpoint=True)
    narrow = rng.integers(max(info.min, -6), 7, (2, 5000)).astype(dtype.dtype)
    grid = [g.ravel() for g in np.meshgrid(np.concatenate([ends, 0 - ends]), ends - ends[3])]
    x = np.concatenate([wide[0], wide[0], narrow[0], narrow[0], grid[0]])
    y = np.concatenate([wide[1], narrow[1], narrow[1], wide[1], grid[1]])
    with np.errstate(all="ignore"):
        wanted = PRIMITIVES[name].reference(x, y)
    for lanes in (1, 64 // dtype.itemsize):
        np.testing.assert_array_equal(compiled(name, dtype, lanes)(x, y), wanted)


@both
@pytest.mark.parametrize("name", ["floor_divide", "remainder"])
def test_whole_quotients_of_floats_are_exact(name: str, dtype: DType) -> None:
    rng = np.random.default_rng()
    x, y = arguments(name, dtype, 2000)
    tenths = rng.integers(-50, 50, (2, 5000)).astype(dtype.dtype) * dtype.dtype.type(0.1)
    specials = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 0.1, 3, -3], dtype.dtype)
    grid = [g.ravel() for g in np.meshgrid(specials, specials)]
    x, y = np.concatenate([x, tenths[0], grid[0]]), np.concatenate([y, tenths[1], grid[1]])
    with np.errstate(all="ignore"):
        wanted = PRIMITIVES[name].reference(x, y)
    found = compiled(name, dtype, 64 // dtype.itemsize)(x, y)
    np.testing.assert_array_equal(found, wanted)
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(wanted[numbers]))


def test_narrow_prepares_a_second_rounding() -> None:
    rng = np.random.default_rng()
    ends = [0, -0.0, np.inf, -np.inf, np.nan, 65519.999, 65520, 1e300, 1e-300, 2.0**-25, 2.99e-8]
    x = np.concatenate([ends, rng.normal(size=20000) * 10.0 ** rng.uniform(-9, 5, 20000)])
    with np.errstate(over="ignore"):
        narrowed = compiled("narrow", float64, 8)(x)
        np.testing.assert_array_equal(narrowed, PRIMITIVES["narrow"].reference(x, None))
        np.testing.assert_array_equal(narrowed.astype(np.float16), x.astype(np.float16))


def test_the_table_has_all_functions_that_are_not_exact() -> None:
    exact_ones = {"floor_divide", "remainder", "narrow"}
    library = {name for name, primitive in PRIMITIVES.items() if primitive.source == "library"}
    # Those with loops are written from their references, whose errors `tests/ops` bounds.
    assert set(mathlib.ULP) == library - exact_ones - set(FUNCTIONS)


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("target", [host(), BASE, CUDA], ids=lambda target: target.name)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_with_loops_are_the_reference(name: str, target: Any) -> None:
    rng = np.random.default_rng()
    xs = [10.0 ** rng.uniform(-2, 1.5, 301) for _ in range(FUNCTIONS[name].arity)]
    xs[0][:3] = 0.0, np.inf, np.nan
    if "beta" in name:
        xs[2] = rng.uniform(0, 1, 301)
    buffers = [Buffer(float64, n == len(xs)) for n in range(len(xs) + 1)]
    here = at(j=1)
    value = Scalars().call(name, *[Load(float64, n, here) for n in range(len(xs))])
    body = (InnerLoop((Store(len(xs), here, value),)),)
    axes = (Axis("j", Param(0)),)
    kernel = Kernel("rows", (), axes, 1, None, tuple(buffers), 1, body)
    found = np.ones(301)
    assert run(kernel, [*xs, found], [301], target=target) == 0
    wanted = PRIMITIVES[name].reference(*xs)
    np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-13)


def test_a_library_has_everything_once() -> None:
    uses = [("sin", float32, 16), ("cos", float32, 16), ("sin", float32, 16), ("pow", float64, 8)]
    library = mathlib.library(uses)
    text = "\n".join([*library.declarations.values(), library.definitions])
    with binding.parse_assembly(text) as module:
        module.verify()
    assert library.definitions.count("define internal <16 x float> @math.sin.float32.16(") == 1
    assert {"sinf", "cosf", "llvm.fma.v16f32", "llvm.fma.v8f64"} < set(library.declarations)
