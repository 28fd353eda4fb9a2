"""Ops of users' own: `op` registers a class, `apply` makes a node of it."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar, get_args

from graphfw.errors import (
    ArgumentError,
    ExecutionError,
    GraphError,
    GraphfwError,
    a_type,
    counted,
    did_you_mean,
)
from graphfw.hints.calls import explained
from graphfw.ir import op as base
from graphfw.ir.build import emit_all
from graphfw.ir.dim import Dim
from graphfw.ir.dtype import DType, as_dtype
from graphfw.ir.modes import interceptable
from graphfw.ir.op import ELEMENTWISE, REGISTRY, Op, Trait
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import TensorType
from graphfw.ops.args import TensorLike, as_tensor
from graphfw.ops.batching import changed
from graphfw.ops.data_dependent.measuring_ops import Measuring

__all__ = ["apply", "op"]

OpClass = TypeVar("OpClass", bound="type[Op]")

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")

_BEFORE_INPUTS = {"shape": 1, "dtype": 1, "eval": 2, "vjp": 3, "scalar": 2, "batch": 3}
"""The number of parameters of each rule before those of the inputs."""


@explained
def op(name: str) -> Callable[[OpClass], OpClass]:
    """Register a class as an operation: `@gf.op("mylib.softcap")`.

    The class derives from `gf.Op`, which says what it declares; its functions know nothing of
    sessions and executors. With `scalar` it is fused with its neighbours and compiled; else runs
    call its `eval`. Running the same definition again, as in a notebook, replaces the class; graphs
    that are built keep what they have.

    Args:
        name: With a dot: that of your package, and its own. Graphs' texts show it.

    Raises:
        GraphError: There is such an op, the name has no dot or is no name, or the class lacks
            something or contradicts itself.

    >>> import graphfw as gf
    >>> @gf.op("docs.softcap")
    ... class SoftCap(gf.Op):
    ...     cap: float
    ...     traits = frozenset({gf.extend.PURE, gf.extend.ELEMENTWISE})
    ...
    ...     def shape(self, x):
    ...         return x
    ...
    ...     def dtype(self, x):
    ...         gf.extend.require(x.is_floating, "wants floats", error=gf.DTypeError)
    ...         return x
    ...
    ...     def eval(self, xp, x):
    ...         return xp.tanh(x / self.cap) * self.cap
    ...
    ...     def scalar(self, k, x):
    ...         return k.mul(k.tanh(k.div(x, self.cap)), self.cap)
    ...
    ...     def vjp(self, ct, y, x):
    ...         return (ct * (1 - (y / self.cap) ** 2),)
    >>> gf.apply(SoftCap(2.0), [0.0, 100.0])
    Tensor([0., 2.], dtype=float32)
    """
    if not _NAME.fullmatch(str(name)):
        raise GraphError(
            f"op: {name!r} does not name an op of a package",
            fix='write the name of your package before it, with a dot: "mylib.softcap"',
        )
    if name.partition(".")[0] in ("graphfw", "gf"):
        raise GraphError(
            f"op: {name!r} would be one of graphfw's own", fix="use the name of your package"
        )

    def register(cls: OpClass) -> OpClass:
        _check(name, cls)
        other = REGISTRY.get(name)
        if other is not None and _origin(other) == _origin(cls):
            del REGISTRY[name]
        try:
            registered = base.op(name)(cls)
        except GraphfwError:
            if other is not None:
                REGISTRY[name] = other
            raise
        own: Any = registered
        own.shape = _checked_rule("shape", own.shape, "a tuple of ints and dims", _is_shape)
        own.dtype = _checked_rule("dtype", own.dtype, "a dtype, such as gf.float32", _is_dtype)
        own.eval = _checked(own.eval)
        if own.scalar is not None:
            own.scalar = _checked_scalar(own.scalar)
        if inspect.isfunction(own.vjp):
            own.vjp = _checked_vjp(own.vjp)
        if inspect.isfunction(own.batch) and own.batch.__module__ == own.__module__:
            own.batch = _checked_batch(own.batch)
        return registered

    return register


def _checked_rule(
    name: str, rule: Callable[..., Any], wanted: str, fits: Callable[[object], bool]
) -> Callable[..., Any]:
    """Return a type rule of an op with what it returns looked at."""
    if hasattr(rule, "checks"):
        return rule

    @functools.wraps(rule)
    def call(self: Op, *inputs: Any) -> Any:
        result = rule(self, *inputs)
        if self.multiple and isinstance(result, tuple):
            is_right = all([fits(one) for one in result])
        else:
            is_right = fits(result) and not self.multiple
        if not is_right:
            several = "a tuple of the results', each " if self.multiple else ""
            raise GraphError(
                f"{self.name}: its {name} returns {a_type(result)}: {result!r}",
                fix=f"return {several}{wanted}",
            )
        return result

    call.checks = True  # type: ignore[attr-defined]  # a mark, on a function
    return call


def _is_shape(value: object) -> bool:
    return isinstance(value, tuple) and all([isinstance(dim, (int, Dim)) for dim in value])


def _is_dtype(value: object) -> bool:
    return isinstance(value, DType)


def _checked(evaluate: Callable[..., Any]) -> Callable[..., Any]:
    """Return an op's `eval` with its results' types compared with those that its rules promise.

    Compiled code reads the results by these: it would read beyond the end of one that is too small.
    """
    if hasattr(evaluate, "checks"):  # the base class's, which does so already
        return evaluate

    @functools.wraps(evaluate)
    def call(self: Op, xp: Any, *inputs: Any, **random: Any) -> Any:
        result = evaluate(self, xp, *inputs, **random)
        results = tuple(result) if self.multiple else (result,)
        wanted = _with_sizes(self, results).infer(*map(_type, inputs))
        found = [_type(x) if hasattr(x, "dtype") else a_type(x) for x in results]
        if found != list(wanted):
            raise ExecutionError(
                f"{self.name}: its eval gives {', '.join(map(str, found))}, and "
                f"{', '.join(map(str, wanted))} is promised by its shape and dtype",
                fix="this is a mistake in the op's class",
            )
        return result

    call.checks = True  # type: ignore[attr-defined]  # a mark, on a function
    return call


def _with_sizes(op: Op, results: tuple[Any, ...]) -> Op:
    """Return an op whose dims only a run finds out with those of its results."""
    return changed(op, dims=op.measured(*results)) if isinstance(op, Measuring) else op


def _checked_vjp(vjp: Callable[..., Any]) -> Callable[..., Any]:
    """Return an op's gradient rule with what it returns looked at."""
    if hasattr(vjp, "checks"):
        return vjp

    @functools.wraps(vjp)
    def call(self: Op, ct: Any, y: Any, *inputs: Any) -> Any:
        made = vjp(self, ct, y, *inputs)
        is_tuple = isinstance(made, (tuple, list))
        entries = made if is_tuple else [made]
        kinds = ", ".join([a_type(entry) for entry in entries])
        fits = [e is None or isinstance(e, Tensor) or callable(e) for e in entries]
        if not is_tuple or len(entries) != len(inputs) or not all(fits):
            wanted = counted(len(inputs), "input")
            raise GraphError(
                f"{self.name}: its vjp returns {f'({kinds})' if is_tuple else kinds} for {wanted}",
                fix="return a tuple with a tensor, None, or a function that makes the tensor, for "
                "each input: (ct * 2,)",
            )
        return made

    call.checks = True  # type: ignore[attr-defined]  # a mark, on a function
    return call


def _checked_batch(batch: Callable[..., Any]) -> Callable[..., Any]:
    """Return an op's batch rule with what it returns looked at."""
    if hasattr(batch, "checks"):
        return batch

    @functools.wraps(batch)
    def call(self: Op, *args: Any) -> Any:
        made = batch(self, *args)
        outputs = made if isinstance(made, (tuple, list)) else (made,)
        if not all([isinstance(output, Tensor) for output in outputs]):
            kinds = ", ".join([a_type(output) for output in outputs])
            raise GraphError(
                f"{self.name}: its batch returns {kinds}",
                fix="return the tensor, or a tuple of several, with the examples as axis 0",
            )
        return made

    call.checks = True  # type: ignore[attr-defined]  # a mark, on a function
    return call


def _checked_scalar(scalar: Callable[..., Any]) -> Callable[..., Any]:
    """Return an op's `scalar` whose mistakes are reported as such."""
    if hasattr(scalar, "checks"):
        return scalar

    @functools.wraps(scalar)
    def call(self: Op, k: Any, *elements: Any) -> Any:
        try:
            result = scalar(self, k, *elements)
        except (AttributeError, TypeError, ValueError) as error:
            raise GraphError(
                f"{self.name}: its scalar fails: {error}",
                fix="use functions of k, such as k.mul(x, 2.0), and operands of one dtype",
            ) from error
        if result is None:
            return None
        wanted = self.dtype(*[x.dtype for x in elements])
        found = getattr(result, "dtype", None)
        if found is not wanted:
            raise GraphError(
                f"{self.name}: its scalar gives {found.name if found else a_type(result)}, and its "
                f"dtype says {wanted.name}",
                fix="convert it: k.cast(x, dtype); a number: k.const(1.0, dtype)",
            )
        return result

    call.checks = True  # type: ignore[attr-defined]  # a mark, on a function
    return call


def _type(x: Any) -> TensorType:
    return TensorType(as_dtype(x.dtype), x.shape)


def _origin(cls: type) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__


def _check(name: str, cls: Any) -> None:
    """See that what a class declares fits together, as far as that can be said of it alone.

    Raises:
        GraphError: It does not.
    """
    if not (isinstance(cls, type) and issubclass(cls, Op)):
        raise GraphError(
            f"op {name!r}: {cls!r} is no subclass of gf.Op", fix="derive it from gf.Op"
        )
    taken = [field for field in cls.fields if hasattr(Op, field) or field in _BEFORE_INPUTS]
    if taken:
        raise GraphError(
            f"op {name!r}: a field can't be called {taken[0]!r}, which all ops have",
            fix=f"call it {taken[0]}_",
        )
    traits: Any = cls.traits
    is_set = isinstance(traits, (set, frozenset))
    if not is_set or not all(isinstance(trait, Trait) for trait in traits):
        raise GraphError(
            f"op {name!r}: traits is {traits!r}, not a set of traits",
            fix="write traits = frozenset({gf.extend.PURE})",
        )
    _check_mixed_precision(name, cls)
    counts: dict[str, int] = {}
    for rule, before in _BEFORE_INPUTS.items():
        count = _input_count(name, cls, rule, before)
        if count is not None:
            counts[rule] = count
    for rule, count in counts.items():
        if count != counts.get("shape", count):
            raise GraphError(
                (
                    f"op {name!r}: its {rule} takes {counted(count, 'input')}, its shape "
                    f"{counts['shape']}"
                ),
                fix=f"give all rules the same inputs: {_example(cls, rule)}",
            )
    if cls.scalar is not None and ELEMENTWISE not in cls.traits:
        raise GraphError(
            f"op {name!r} has a scalar, which is of use to elementwise ops alone",
            fix="write traits = frozenset({gf.extend.PURE, gf.extend.ELEMENTWISE})",
        )
    if ELEMENTWISE in cls.traits and cls.multiple:
        raise GraphError(
            f"op {name!r} is ELEMENTWISE and has several results",
            fix="leave the trait out, or make an op of each result",
        )


def _check_mixed_precision(name: str, cls: type[Op]) -> None:
    kinds = get_args(base.MixedKind)
    if cls.mixed_precision not in kinds:
        near = did_you_mean(str(cls.mixed_precision), kinds)
        raise GraphError(
            f"op {name!r}: its mixed_precision is {cls.mixed_precision!r}",
            fix=near or f"there are: {', '.join(kinds)}",
        )
    if not cls.wide_operands:
        return
    labels = cls.labels or base.labels_of(cls)
    unknown = sorted({*cls.wide_operands} - {*labels})
    if unknown:
        raise GraphError(
            f"op {name!r}: wide_operands has {unknown[0]!r}, which its shape does not take",
            fix=did_you_mean(unknown[0], labels) or f"there are: {', '.join(labels)}",
        )


def _input_count(name: str, cls: type[Op], rule: str, before: int) -> int | None:
    """Return how many inputs a rule takes; None where it takes any number, or there is none."""
    function = inspect.getattr_static(cls, rule, None)
    if function is None:
        return None
    if not inspect.isfunction(function):
        if rule == "batch":  # a function that serves many ops
            return None
        raise GraphError(
            f"op {name!r}: its {rule} is {a_type(function)}, not a method",
            fix=f"write {_example(cls, rule)}",
        )
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return None
    count = len([p for p in parameters if p.kind is not p.KEYWORD_ONLY]) - before
    if count < 0:
        raise GraphError(
            f"op {name!r}: its {rule} has too few parameters", fix=f"write {_example(cls, rule)}"
        )
    return count


def _example(cls: type[Op], rule: str) -> str:
    """Return `def vjp(self, ct, y, x1, x2)`, for the inputs that the shape rule names."""
    shape = inspect.getattr_static(cls, "shape", None)
    names = list(inspect.signature(shape).parameters)[1:] if inspect.isfunction(shape) else ["x"]
    first = {
        "shape": [], "dtype": [], "eval": ["xp"], "vjp": ["ct", "y"], "scalar": ["k"],
        "batch": ["lanes", "batched"],
    }[rule]  # fmt: skip
    return f"def {rule}({', '.join(['self', *first, *names])})"


@interceptable
def apply(op: Op, /, *inputs: TensorLike) -> Any:
    """Apply an op of your own: check the inputs by its rules, and put it into the graph.

    Args:
        op: An instance of a class that `gf.op` registered, with its fields: `SoftCap(30.0)`.
        inputs: Tensors, or what becomes constants. They keep their dtypes: promote them before,
            where your function is to take mixed ones.

    Returns:
        The result: a tensor, or a tuple of them where the op has several.

    Raises:
        ShapeError, DTypeError, …: The op's rules refuse the inputs.
        ArgumentError: It is no op, or not registered, or takes another number of inputs.
    """
    if not isinstance(op, Op):
        what = f"the class {op.__name__}" if isinstance(op, type) else a_type(op)
        raise ArgumentError(
            f"apply: {what} is no op", fix="pass an instance, with its fields: SoftCap(30.0)"
        )
    if "name" not in vars(type(op)):
        raise ArgumentError(
            f"apply: {type(op).__name__} is not registered",
            fix=f'write @gf.op("mylib.{type(op).__name__.lower()}") above the class',
        )
    try:
        hash(op)
    except TypeError as error:
        raise ArgumentError(
            f"apply: a field of {op!r} is no constant: {error}",
            fix="write tuples for lists and arrays",
        ) from None
    try:
        inspect.signature(op.shape).bind(*inputs)
    except TypeError:
        names = ", ".join(inspect.signature(op.shape).parameters)
        raise ArgumentError(
            (
                f"{op.name}: takes {names or 'no inputs'}, and is given "
                f"{counted(len(inputs), 'input')}"
            ),
            fix="pass the op its inputs",
        ) from None
    tensors = [as_tensor(x) for x in inputs]
    outputs: tuple[Tensor, ...] = emit_all(op, *tensors, shown=inputs)
    return outputs if op.multiple else outputs[0]
