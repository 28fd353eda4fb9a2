"""Ops of one element, `Op.scalar`, against ops of arrays, `Op.eval`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from graphfw.ir.dtype import ALL, DType, bfloat16, bool_, float16, float32, float64, int8
from graphfw.ir.op import ELEMENTWISE, Op
from graphfw.ir.shape import Requirement
from graphfw.ops.elementwise.cast import AsType
from graphfw.runtime.kernels.complex_numbers import Pair
from graphfw.runtime.kernels.ir import Call, Const, Expr
from graphfw.runtime.kernels.primitives import PRIMITIVES
from graphfw.runtime.kernels.scalars import Scalars
from tests.support.grouped import grouped
from tests.support.samples import OWN

Array = np.ndarray[Any, np.dtype[Any]]

REAL = [dtype for dtype in ALL if not dtype.is_complex]

NO_NATIVE_FORM = frozenset({"nextafter"})

COMPOSED = {"logaddexp": 4, "rsqrt": 2, "sigmoid": 4, "softplus": 4}
"""Ops whose elements are written in another way than `eval`, or rounded less often: ULP."""


FIELDS: dict[str, list[tuple[int, ...]]] = {
    "betainc": [(), (1, 0), (0, 1)],
    "gammainc": [(), (True,), (False, 1)],
    "polygamma": [(1,)],
}
"""Attributes of ops that have some, for each form that they have in kernels."""


class Given(Expr):
    """An input in place of a load: its elements are known."""

    def __init__(self, elements: Array, dtype: DType) -> None:
        super().__init__(dtype)
        self.__dict__["elements"] = elements


def given(x: Array, dtype: DType) -> Expr:
    return Given(x.astype(np.float32), float32) if dtype.is_low_precision else Given(x, dtype)


def interpret(expr: Expr, known: dict[int, Array] | None = None) -> Array:
    """Compute an expression by the primitives' references, and check its dtypes.

    `known` has what is computed already, by identity: expressions share parts.
    """
    known = {} if known is None else known
    if id(expr) not in known:
        known[id(expr)] = _interpreted(expr, known)
    return known[id(expr)]


def _interpreted(expr: Expr, known: dict[int, Array]) -> Array:
    if isinstance(expr, Given):
        return expr.elements  # type: ignore[attr-defined,no-any-return]  # an Elements
    if isinstance(expr, Const):
        return np.asarray(expr.value, expr.dtype.dtype)
    if isinstance(expr, Pair):
        real, imag = [interpret(component, known) for component in (expr.real, expr.imag)]
        whole = np.empty(np.broadcast_shapes(real.shape, imag.shape), expr.dtype.dtype)
        whole.real, whole.imag = real, imag
        return whole
    assert isinstance(expr, Call)
    primitive = PRIMITIVES[expr.function]
    args = [interpret(arg, known) for arg in expr.args]
    assert len(args) == primitive.arity
    extra = (expr.dtype.dtype,) if primitive.result == "cast" else ()
    result = np.asarray(primitive.reference(*args, *extra))
    assert result.dtype == expr.dtype.dtype, expr.function
    return result


def elements(dtype: DType, rng: np.random.Generator, size: int = 301) -> Array:
    """Small and large numbers, and special ones."""
    if dtype.is_bool:
        return rng.random(size) < 0.5
    if dtype.is_integer:
        info = np.iinfo(dtype.dtype)
        low = rng.integers(max(info.min, -5), 6, size // 2)
        special = np.array([info.min, info.max, 0, 1], dtype.dtype)
        wide = rng.integers(info.min, info.max, size - size // 2 - 4, dtype.dtype, endpoint=True)
        return np.concatenate([low.astype(dtype.dtype), special, wide])
    specials = [0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, 1.5, 2.5, -0.5, 1, -1, 3, -3]
    drawn = rng.normal(size=size - len(specials)) * 10.0 ** rng.uniform(-3, 3, size - len(specials))
    return np.concatenate([specials, drawn]).astype(dtype.dtype)


def assert_equal(a: Array, b: Array) -> None:
    """Assert equality; not all of NumPy's tests know bfloat16."""
    assert a.dtype == b.dtype
    if a.dtype.name == "bfloat16":
        a, b = a.astype(np.float32), b.astype(np.float32)
    np.testing.assert_array_equal(a, b)
    if a.dtype.kind == "f" and a.dtype.itemsize > 2:  # of two zeros float16's maximum has the first
        numbers = ~np.isnan(b)
        np.testing.assert_array_equal(np.signbit(a[numbers]), np.signbit(b[numbers]))


def ulp(dtype: DType) -> float:
    return {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23}.get(dtype.name, 2.0**-52)


def is_inexact(op: Op) -> bool:
    """Whether it is a function of the library that is not exact."""
    exact = op.name in ("floor_divide", "remainder")
    return op.name in PRIMITIVES and PRIMITIVES[op.name].source == "library" and not exact


# Of ops that own bodies each instance has traits of its own.
ELEMENTWISE_OPS = {
    name: op_class
    for name, op_class in sorted(OWN.items())
    if isinstance(op_class.traits, frozenset) and ELEMENTWISE in op_class.traits
}


def instances() -> Iterator[tuple[Op, tuple[DType, ...]]]:
    """Every elementwise op with every combination of dtypes that it takes."""
    for name, op_class in ELEMENTWISE_OPS.items():
        if op_class is AsType or name in NO_NATIVE_FORM:
            continue
        for op, dtype in itertools.product([op_class(*f) for f in FIELDS.get(name, [()])], REAL):
            inputs = (bool_, dtype, dtype) if name == "where" else (dtype,) * len(op.labels)
            try:
                op.dtype(*inputs)
            except Requirement:
                continue
            yield op, inputs


@grouped("instance", instances(), lambda instance: instance[0].name)
def test_scalar_is_eval(instance: tuple[Op, tuple[DType, ...]], rng: np.random.Generator) -> None:
    op, dtypes = instance
    xs = [elements(dtype, rng) for dtype in dtypes]
    for x in xs[1:]:
        rng.shuffle(x)
    with np.errstate(all="ignore"):
        wanted = op.eval(np, *xs)
        k = Scalars()
        result = op.scalar(k, *[given(x, d) for x, d in zip(xs, dtypes, strict=True)])
        found = np.broadcast_to(interpret(k.cast(result, op.dtype(*dtypes))), wanted.shape)
        assert found.dtype == wanted.dtype
        error = COMPOSED.get(op.name, 0)
        if not error and dtypes[0].is_low_precision and is_inexact(op):
            error = 1  # NumPy's functions of float16 are not exactly those of float32, rounded
        if error:
            a, b = found.astype(np.float64), wanted.astype(np.float64)
            np.testing.assert_allclose(a, b, rtol=error * ulp(dtypes[0]), atol=1e-7)
        else:
            assert_equal(found, wanted)


@pytest.mark.parametrize("to", REAL, ids=str)
@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_casts_are_astype(dtype: DType, to: DType) -> None:
    x = elements(dtype, np.random.default_rng())
    if dtype.is_floating and to.is_integer:  # what does not fit depends on the machine
        x = x[np.isfinite(x) & (np.abs(x.astype(np.float64)) < np.iinfo(to.dtype).max)]
        x = np.abs(x) if to.kind == "uint" else x
    with np.errstate(all="ignore"):
        result = AsType(to).scalar(Scalars(), given(x, dtype))
        found = interpret(Scalars().cast(result, to))
        assert_equal(found, x.astype(to.dtype))


def test_float64_is_rounded_to_float16_once() -> None:
    halfway = 1 + 2.0**-11
    x = np.array([halfway + 2.0**-40, halfway, -halfway - 2.0**-40, 65519.999, 65520, 2.0**-26])
    with np.errstate(over="ignore"):
        found = interpret(Scalars().cast(given(x, float64), float16))
        np.testing.assert_array_equal(found, x.astype(np.float16))
        assert (found != x.astype(np.float32).astype(np.float16)).any()


def test_which_ops_have_a_native_form() -> None:
    k, x = Scalars(), Const(float32, 1.0)
    without = {
        name
        for name, op_class in ELEMENTWISE_OPS.items()
        if name in NO_NATIVE_FORM
        and op_class.scalar(op_class(*[1] * len(op_class.fields)), k, x) is None
    }
    assert without == NO_NATIVE_FORM
    assert len(ELEMENTWISE_OPS) > 60


def test_numbers_take_the_dtype_of_the_other_operand() -> None:
    k = Scalars()
    for x in (Const(float32, 2.0), Const(int8, 2)):
        call = k.add(1, x)
        assert isinstance(call, Call)
        assert [arg.dtype for arg in call.args] == [x.dtype, x.dtype]
        assert k.lt(x, 3).dtype is bool_


@pytest.mark.parametrize("dtype", [float32, float64, int8], ids=str)
def test_squares_are_products(dtype: DType) -> None:
    k, x = Scalars(), Expr(dtype)
    assert (k.pow(x, 2).function, k.pow(x, 2).args) == ("mul", (x, x))
    assert k.pow(x, 3).function == k.pow(2, x).function == "pow"


def test_mistakes_are_refused() -> None:
    k = Scalars()
    with pytest.raises(TypeError, match="operands of"):
        k.add(Const(float32, 1.0), Const(float64, 1.0))
    with pytest.raises(AttributeError, match="no primitive function 'sinc'"):
        k.sinc(Const(float32, 1.0))


def test_16_bits_go_through_float32() -> None:
    k, x = Scalars(), Const(float64, 1.0)
    steps = []
    for expr in (k.cast(x, bfloat16), k.cast(x, float16), k.cast(Const(int8, 1), float16)):
        names = []
        while isinstance(expr, Call):
            names.append((expr.function, expr.dtype.name))
            expr = expr.args[0]
        steps.append(names)
    assert steps == [
        [("cast", "bfloat16"), ("cast", "float32")],
        [("cast", "float16"), ("narrow", "float32")],
        [("cast", "float16"), ("cast", "float32")],
    ]


def test_every_primitive_is_used() -> None:
    """A primitive that no op is made of does not pay for itself."""
    used: set[str] = {"narrow", "bits"}  # of which casts are made
    for op, dtypes in instances():
        pending = [op.scalar(Scalars(), *[Const(d, 0) for d in dtypes])]
        seen = {}  # what many calls share is looked at once
        while pending:
            expr = pending.pop()
            if isinstance(expr, Call) and id(expr) not in seen:
                seen[id(expr)] = expr
                used.add(expr.function)
                pending.extend(expr.args)
    assert set(PRIMITIVES) - used == {"cast"} - used
