"""The promises of every op, checked on every op's own cases."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphfw
import graphfw.ops
from graphfw.errors import GraphfwError
from graphfw.ir.build import constant, emit, emit_all
from graphfw.ir.dim import DimLike
from graphfw.ir.dim_text import evaluate
from graphfw.ir.dtype import DType, as_dtype, bfloat16, complex128, float16, float32, float64
from graphfw.ir.graph import Graph
from graphfw.ir.op import (
    ALIAS,
    COMMUTATIVE,
    ELEMENTWISE,
    IDEMPOTENT,
    INVOLUTION,
    PURE,
    RANDOM,
    TRANSPARENT,
    Case,
    Nested,
    Op,
    Rng,
)
from graphfw.ir.parser import parse
from graphfw.ir.shape import Requirement
from graphfw.ir.sources import Placeholder
from graphfw.ir.types import TensorType
from tests.strict_xp import plain_array, strict, strict_array
from tests.support.gradcheck import check_gradients
from tests.support.grouped import Test, family, grouped
from tests.support.samples import OWN, Array, Declared, bound_type, declared, doubled

# Importing a family registers its ops; the package itself may load some of them lazily.
FAMILIES = [
    importlib.import_module(module.name)
    for module in pkgutil.walk_packages(graphfw.ops.__path__, "graphfw.ops.")
]

WITHOUT_CASES = {
    "placeholder": "given, not evaluated: tests/ir/test_graph.py",
    "variable": "given, not evaluated: tests/ir/test_variable.py",
    "constant": "holds an array: tests/ir/test_tensor.py",
    "custom_gradient": "holds a function: tests/transforms/test_custom.py",
    "connected": "exchanges arrays: tests/distributed/test_collectives.py",
    "breakpoint": "has an effect: tests/ops/test_debug.py",
    "check": "has an effect: tests/ops/test_debug.py",
    "print": "has an effect: tests/ops/test_debug.py",
    "host_call": "holds a function: tests/ops/test_host_call.py",
    "non_max_suppression": "its shape depends on values: tests/onnx/test_measuring.py",
    "nonzero": "its shape depends on values: tests/ops/test_measuring_ops.py",
    "sizes": "its shape depends on values: tests/ops/test_measuring_ops.py",
    "unique": "its shape depends on values: tests/ops/test_measuring_ops.py",
}

EPS = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2**-23, "float64": 2**-52}


def tolerance(dtype: DType) -> float:
    """The relative error let pass: a few roundings of a narrow dtype, sums of a wide one."""
    return EPS[dtype.real.name] * (4 if dtype.is_low_precision else 64)


def is_random(op_class: type[Op]) -> bool:
    return RANDOM in op_class.traits


def cases(accept: Callable[[type[Op], Case], bool]) -> Callable[[Test], Test]:
    return grouped("declared", declared(accept), family)


every = cases(lambda op, case: case.error is None)
every_bad = cases(lambda op, case: case.error is not None)
with_dims = cases(lambda op, case: case.error is None and bool(Declared(op, 0, case).symbols))
with_floats = cases(
    lambda op, case: (
        case.error is None
        and not is_random(op)
        and any(t.dtype.is_inexact for t in Declared(op, 0, case).types)
    )
)
with_single = cases(
    lambda op, case: (
        case.error is None
        and not is_random(op)
        and any(t.dtype is float32 for t in Declared(op, 0, case).types)
    )
)
differentiable = cases(
    lambda op, case: (
        case.error is None
        and case.smooth
        and op.vjp is not None
        and any(t.dtype.is_inexact for t in Declared(op, 0, case).types)
    )
)
with_inputs = cases(lambda op, case: case.error is None and bool(case.types))


def check_types(values: tuple[Any, ...], types: tuple[TensorType, ...]) -> None:
    assert [TensorType(as_dtype(v.dtype), v.shape) for v in values] == list(types)


def check_close(
    actual: tuple[Any, ...], expected: tuple[Any, ...], rtol: float | None = None
) -> None:
    """Compare outputs: integers and bools exactly, floats to the precision of `actual`."""
    for value, wanted in zip(actual, expected, strict=True):
        assert value.shape == wanted.shape
        dtype = as_dtype(value.dtype)
        if not dtype.is_inexact:
            np.testing.assert_array_equal(value, wanted)
            continue
        wide = complex128.dtype if dtype.is_complex else float64.dtype
        value, wanted = np.asarray(value, wide), np.asarray(wanted, wide)
        allowed = tolerance(dtype) if rtol is None else rtol
        finite = np.abs(wanted[np.isfinite(wanted)])
        scale = max(1.0, finite.max()) if finite.size else 1.0
        np.testing.assert_allclose(value, wanted, rtol=allowed, atol=allowed * scale)


def check_equal(actual: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    for value, wanted in zip(actual, expected, strict=True):
        assert value.dtype == wanted.dtype
        np.testing.assert_array_equal(value, wanted, strict=True)


# Types.


@every
def test_inferred_type_is_evaluated_type(declared: Declared, rng: np.random.Generator):
    sample = declared.bound()
    inferred = sample.inferred()
    symbolic = declared.op.infer(*declared.types)
    assert tuple(bound_type(t, declared.sizes) for t in symbolic) == inferred
    check_types(sample.evaluate(np, *sample.draw(rng)), inferred)


@with_dims
def test_dims_of_size_0_and_1(declared: Declared, rng: np.random.Generator):
    """Shapes accepted for a symbol work for every size, or are refused once it is known."""
    names = sorted(declared.symbols)
    changes = [{name: size} for name in names for size in (0, 1)]
    changes += [dict.fromkeys(names, size) for size in (0, 1)]
    symbolic = declared.op.infer(*declared.types)
    for change in changes:
        sizes = {**declared.sizes, **change}
        try:
            sample = declared.bound(sizes)
            inferred = sample.inferred()
        except (Requirement, ZeroDivisionError):
            continue
        assert tuple(bound_type(t, sizes) for t in symbolic) == inferred
        try:
            values = sample.evaluate(np, *sample.draw(rng))
        except IndexError as error:
            if "out of range" not in str(error):
                raise
            continue  # The case's indices are for its own sizes.
        check_types(values, inferred)


@pytest.mark.exhaustive
@with_single
@pytest.mark.parametrize("narrow", [float16, bfloat16], ids=str)
def test_low_precision(declared: Declared, narrow: DType, rng: np.random.Generator):
    original = declared.bound()
    sample = original.with_dtypes(lambda d: narrow if d is float32 else d)
    try:
        inferred = sample.inferred()
    except (Requirement, GraphfwError):
        return
    inputs = sample.draw(rng)
    values = sample.evaluate(np, *inputs)
    check_types(values, inferred)
    wide = [a.astype(np.float32) if as_dtype(a.dtype) is narrow else a for a in inputs]
    check_close(values, original.evaluate(np, *wide))


@cases(
    lambda op, case: (
        case.error is None
        and not is_random(op)
        and bool(Declared(op, 0, case).symbols)
        and any(t.dtype is float32 for t in Declared(op, 0, case).types)
    )
)
def test_low_precision_does_not_add_up_errors(declared: Declared, rng: np.random.Generator):
    """With dims long enough that adding in bfloat16 would show."""
    try:
        original = declared.bound(dict.fromkeys(declared.symbols, 800))
        sample = original.with_dtypes(lambda d: bfloat16 if d is float32 else d)
        original.inferred()
        sample.inferred()
    except (Requirement, GraphfwError):
        return
    inputs = sample.draw(rng)
    wide = [a.astype(np.float32) if as_dtype(a.dtype) is bfloat16 else a for a in inputs]
    check_close(sample.evaluate(np, *inputs), original.evaluate(np, *wide))


@pytest.mark.smoke
@with_floats
def test_value_agrees_with_float64(declared: Declared, rng: np.random.Generator):
    sample = declared.bound()
    wide = sample.with_dtypes(doubled)
    inputs = sample.draw(rng)
    expected = wide.evaluate(
        np, *[a.astype(t.dtype.dtype) for a, t in zip(inputs, wide.types, strict=True)]
    )
    check_types(expected, wide.inferred())
    check_close(sample.evaluate(np, *inputs), expected)


# Gradients.


@differentiable
def test_gradients(declared: Declared, rng: np.random.Generator):
    sample = declared.bound().with_dtypes(doubled, fields=True)
    xs = [constant(array) for array in sample.draw(rng)]
    leaves = [x for x in xs if x.dtype in (float64, complex128)]
    for y in emit_all(sample.op, *xs):
        if y.dtype in (float64, complex128):
            check_gradients(y, leaves, rng)


# Implementations.


@every
def test_eval_uses_what_cupy_has(declared: Declared, rng: np.random.Generator):
    sample = declared.bound()
    inputs = sample.draw(rng)
    on_device = sample.evaluate(strict, *map(strict_array, inputs))
    expected = sample.evaluate(np, *inputs)
    check_close(tuple(map(plain_array, on_device)), expected)


@pytest.mark.gpu
@every
def test_cupy_gives_what_numpy_gives(declared: Declared, rng: np.random.Generator):
    import cupy

    sample = declared.bound()
    inputs = sample.draw(rng)
    if sample.op.name == "searchsorted":
        inputs[0].sort()  # where others would be inserted nobody says
    on_device = sample.evaluate(cupy, *map(cupy.asarray, inputs))
    check_close(tuple(map(cupy.asnumpy, on_device)), sample.evaluate(np, *inputs))


@with_inputs
def test_inputs_are_left_alone(declared: Declared, rng: np.random.Generator):
    """Writing to an input would raise; without ALIAS the result has memory of its own."""
    sample = declared.bound()
    inputs = sample.draw(rng)
    before = [a.tobytes() for a in inputs]
    for array in inputs:
        array.flags.writeable = False
    values = sample.evaluate(np, *inputs)
    assert [a.tobytes() for a in inputs] == before
    if ALIAS not in sample.op.traits:
        for value in values:
            assert not any(np.shares_memory(value, a) for a in inputs), "aliases, without ALIAS"


@with_inputs
def test_any_strides(declared: Declared, rng: np.random.Generator):
    sample = declared.bound()
    inputs = sample.draw(rng)
    expected = sample.evaluate(np, *inputs)
    for layout in (_transposed, _reversed, _spread):
        check_close(sample.evaluate(np, *map(layout, inputs)), expected)


def _transposed(array: Array) -> Array:
    """The same values in column-major order."""
    return np.array(array, order="F")


def _reversed(array: Array) -> Array:
    """The same values with negative strides."""
    backwards = (slice(None, None, -1),) * array.ndim
    return array[backwards].copy()[backwards]


def _spread(array: Array) -> Array:
    """The same values with gaps between them."""
    room = np.zeros(tuple(2 * dim for dim in array.shape), array.dtype)
    every_other = (slice(None, None, 2),) * array.ndim
    room[every_other] = array
    return room[every_other]


# Traits.


@cases(lambda op, case: case.error is None and PURE in op.traits)
def test_pure_ops_repeat_themselves(declared: Declared, rng: np.random.Generator):
    sample = declared.bound()
    inputs = sample.draw(rng)
    check_equal(sample.evaluate(np, *inputs), sample.evaluate(np, *inputs))


@cases(lambda op, case: case.error is None and COMMUTATIVE in op.traits)
def test_commutative_ops_commute(declared: Declared, rng: np.random.Generator):
    sample = declared.bound()
    a, b = sample.draw(rng)
    # Not to the last bit: NumPy's complex products round once less for one of the parts.
    check_close(sample.evaluate(np, a, b), sample.evaluate(np, b, a))


@cases(lambda op, case: not case.error and {IDEMPOTENT, INVOLUTION, TRANSPARENT} & op.traits)
def test_ops_that_rules_drop_change_nothing(declared: Declared, rng: np.random.Generator):
    sample = declared.bound()
    inputs = tuple(sample.draw(rng))
    values = sample.evaluate(np, *inputs)
    if TRANSPARENT in sample.op.traits:
        check_equal(values, inputs[: len(values)])
    if INVOLUTION in sample.op.traits:
        check_equal(sample.evaluate(np, *values), inputs)
    if IDEMPOTENT in sample.op.traits and len(inputs) == 1:
        check_equal(sample.evaluate(np, *values), values)
    elif IDEMPOTENT in sample.op.traits:
        check_equal(sample.evaluate(np, inputs[0], inputs[0]), inputs[:1])


@cases(lambda op, case: case.error is None and ELEMENTWISE in op.traits and bool(case.types))
def test_elementwise_ops_treat_elements_alike(declared: Declared, rng: np.random.Generator):
    """Moving the elements of all inputs moves those of the outputs, and does nothing else."""
    sample = declared.bound()
    inputs = sample.draw(rng)
    shape = np.broadcast_shapes(*(a.shape for a in inputs))
    full = [np.array(np.broadcast_to(a, shape)) for a in inputs]
    order = rng.permutation(full[0].size)
    moved = [a.reshape(-1)[order] for a in full]
    values = tuple(np.asarray(v) for v in sample.evaluate(np, *full))
    assert all(v.shape == shape for v in values)
    expected = tuple(v.reshape(-1)[order] for v in values)
    # The last bit may depend on whether NumPy takes its vector loop.
    check_close(sample.evaluate(np, *moved), expected)


@cases(lambda op, case: case.error is None and is_random(op))
def test_random_ops_draw_from_their_rng(declared: Declared, rng: np.random.Generator):
    sample = declared.bound()
    assert "key" in sample.op.fields
    inputs = sample.draw(rng)
    first = sample.evaluate(np, *inputs)
    check_equal(sample.evaluate(np, *inputs), first)
    if sum(t.size for t in sample.inferred()) >= 8:
        for other in (Rng(8, 3), Rng(7, 4)):
            again = sample.evaluate(np, *inputs, rng=other)
            assert any(not np.array_equal(a, b) for a, b in zip(first, again, strict=True))


# Cost.


@every
def test_cost_is_what_moves(declared: Declared, rng: np.random.Generator):
    sample = declared.bound()
    cost = sample.op.cost(sample.inferred(), *sample.types)
    inputs = sample.draw(rng)
    values = sample.evaluate(np, *inputs)
    assert cost.write_bytes == sum(v.nbytes for v in values)
    # An op reads its inputs whole, or, as a gather does, indices and as much as it writes.
    whole = sum(a.nbytes for a in inputs)
    indices = sum(a.nbytes for a in inputs[1:] if a.dtype.kind in "iu")
    assert cost.read_bytes in (whole, cost.write_bytes + indices)
    assert cost.flops >= 0
    symbolic = declared.op.cost(declared.op.infer(*declared.types), *declared.types)
    assert tuple(evaluate(count, declared.sizes) for count in symbolic) == tuple(cost)


# Errors.


@every_bad
def test_refuses(declared: Declared):
    case = declared.case
    with Graph():
        inputs = [emit(Placeholder(t.shape, t.dtype)) for t in declared.types]
        with pytest.raises(case.error, match=case.match) as caught:  # type: ignore[arg-type]  # of bad cases
            emit_all(declared.op, *inputs)
    text = str(caught.value)
    assert text.startswith(f"{declared.op_class.name}: ")
    assert Path(__file__).name in text
    shown = [str(t) in text for t in declared.types]
    assert all(shown) if len(shown) <= 2 else any(shown)
    assert len(text.splitlines()) <= 6
    assert caught.value.fix


# Records.


@every
def test_ops_are_records(declared: Declared):
    op = declared.op
    same = declared.op
    assert op == same
    assert hash(op) == hash(same)
    assert repr(op) == repr(same)
    assert repr(op).startswith(type(op).__name__ + "(")
    assert all(f"{name}=" in repr(op) for name in op.fields)
    assert op != object()
    for field in (*op.fields, "anything"):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(op, field, 1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'unheard_of'"):
        type(op)(**declared.case.fields, unheard_of=1)


@every
def test_fields_are_canonical(declared: Declared):
    """Fields are compared, hashed and printed: plain immutable values only."""
    todo = list(declared.op.values)
    while todo:
        value = todo.pop()
        if isinstance(value, tuple):
            todo += value
        else:
            plain = int | float | complex | bool | str | DType | DimLike | Nested | None
            assert isinstance(value, plain), f"{value!r} in a field"
            assert not isinstance(value, np.generic), f"{value!r} in a field"


def test_ops_with_other_fields_differ():
    for op_class in OWN.values():
        ops = [op_class(**case.fields) for case in op_class.cases()]
        for a in ops:
            for b in ops:
                assert (a == b) == (repr(a) == repr(b))


@every
def test_text_round_trips(declared: Declared):
    with Graph() as graph:
        inputs = [emit(Placeholder(t.shape, t.dtype)) for t in declared.types]
        emit_all(declared.op, *inputs)
    text = str(graph)
    again = parse(text, constants=graph.constants())
    assert str(again) == text
    assert again.nodes[-1].op == declared.op


# The registry and the source.


def test_every_op_has_a_case():
    without = {op.name for op in OWN.values() if not any(case.error is None for case in op.cases())}
    assert without == set(WITHOUT_CASES), "give each op an ok(...) case"


def test_every_op_says_its_gradient():
    for op_class in OWN.values():
        said = [base for base in op_class.__mro__ if "vjp" in base.__dict__]
        assert said, op_class
        assert op_class.vjp is None or callable(op_class.vjp)


def test_every_op_has_labels_and_a_docstring():
    for op_class in OWN.values():
        assert op_class.__doc__, op_class
        accepted = [c for c in op_class.cases() if c.error is None]
        takes = {len(case.types) for case in accepted}
        if len(takes) == 1 and op_class.name not in WITHOUT_CASES:
            code = op_class.shape.__code__
            variadic = code.co_flags & 0x04
            assert variadic or len(op_class.labels) == takes.pop(), op_class


def test_families_list_their_functions():
    for module in FAMILIES:
        names = getattr(module, "__all__", [])
        assert len(set(names)) == len(names), module.__name__
        for name in names:
            assert getattr(module, name).__doc__, f"{module.__name__}.{name}"
