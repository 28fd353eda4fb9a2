"""Elementwise ops as rows: `unary(...)` and `binary(...)` make an op class and a public function.

Where a public function does more than its row, `unary_op` and `binary_op` make the op class only.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypedDict, Unpack

from graphfw.errors import DTypeError, counted
from graphfw.ir.build import applied
from graphfw.ir.dtype import DType, bool_, complex64, int32
from graphfw.ir.functions import OVERRIDABLE, F, public
from graphfw.ir.op import (
    ELEMENTWISE,
    NONDIFF,
    PURE,
    Case,
    MixedKind,
    Op,
    Trait,
    bad,
    ok,
    op,
)
from graphfw.ir.shape import Requirement, broadcast
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import TensorLike, as_tensor, inexact, promoted_two
from graphfw.ops.dtypes import complex_of, require_one_dtype

if not TYPE_CHECKING:  # which would take a module with `__getattr__` to have every name

    def __getattr__(name):
        """Return the public function of a row, which `pickle` looks up where it was made."""
        if name in OVERRIDABLE:
            return OVERRIDABLE[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


Vjp: TypeAlias = Callable[..., Any]
"""`(ct, y, *inputs) -> cotangent`, before it is summed to the input's shape.

Where a finite input can have an infinite slope, the rule says `F.chain_multiply(ct, slope)` or
`F.chain_divide(ct, divisor)`: they keep a cotangent of 0, of a branch not taken, from becoming NaN.
"""

KINDS: dict[str, Callable[[DType], bool]] = {
    "any": lambda d: True,
    "numeric": lambda d: d.is_integer or d.is_inexact,
    "real": lambda d: d.is_integer or d.is_floating,
    "real or bool": lambda d: d.is_integer or d.is_floating or d.is_bool,
    "integer": lambda d: d.is_integer,
    "integer or bool": lambda d: d.is_integer or d.is_bool,
    "floating-point": lambda d: d.is_floating,
    "complex": lambda d: d.is_complex,
    "floating-point or complex": lambda d: d.is_inexact,
}
"""The values of a row's `accepts`."""

FLOATS_ONLY = ("floating-point", "floating-point or complex")
"""The words of ops whose public functions convert integers to the default dtype."""

SAMPLE_DTYPE = {"integer": "int32", "integer or bool": "int32", "complex": "complex64"}
"""The dtype that the tests draw for each of `KINDS`; float32 for those that are not here."""


class Elementwise(Op):
    """The base of the rows: what they share.

    Class attributes are a row's facts; see `unary` and `binary`.
    """

    traits = frozenset({PURE, ELEMENTWISE})
    accepts: ClassVar[str] = "numeric"
    result: ClassVar[str] = "same"
    widen: ClassVar[bool] = True
    function: ClassVar[Callable[..., Any]]
    native: ClassVar[Callable[..., Any] | None] = None
    ufunc: ClassVar[str] = ""
    rules: ClassVar[Sequence[Vjp | None]] = ()
    samples: ClassVar[tuple[Case, ...]] = ()

    def shape(self, *shapes: Shape) -> Shape:
        return broadcast(*shapes)

    def dtype(self, *dtypes: DType) -> DType:
        first = dtypes[0]
        for dtype in dtypes:
            if not KINDS[self.accepts](dtype):
                message = f"wants {counted(self.accepts, 'tensor')}, not {dtype.name}"
                raise Requirement(message, fix=_dtype_fix(self.accepts, dtype), error=DTypeError)
            if dtype is not first:
                require_one_dtype(first, dtype)
        if self.result == "bool":
            return bool_
        if self.result == "complex":
            return complex_of(first)
        return first.real if self.result == "real" else first

    def eval(self, xp: Any, *xs: Any) -> Any:
        function = type(self).function
        if xs[0].dtype.name != "bfloat16" or not self.widen:
            return xp.asarray(function(xp, *xs))
        # Array modules have few loops for bfloat16; in float32 one operation rounds the same.
        result = xp.asarray(function(xp, *[x.astype(xp.float32) for x in xs]))
        return result.astype(xs[0].dtype) if result.dtype == xp.float32 else result

    def scalar(self, k: Any, *xs: Any) -> Any:
        native = type(self).native
        return None if native is None else native(k, *xs)

    def kernel(self, xp: Any, *dtypes: DType) -> Callable[..., Any]:
        ufunc: Callable[..., Any] | None = getattr(xp, self.ufunc, None) if self.ufunc else None
        if ufunc is None or (dtypes[0].name == "bfloat16" and self.widen):
            return super().kernel(xp, *dtypes)
        return ufunc

    @classmethod
    def cases(cls) -> Iterator[Case]:
        return iter(cls.samples)


def _dtype_fix(accepts: str, dtype: DType) -> str:
    """Say what to do with a tensor of a dtype that an op refuses."""
    if dtype.is_bool:
        return "convert it: gf.astype(x, gf.int32); masks combine with &, | and ~"
    if dtype.is_complex:
        return "take gf.real(x), gf.imag(x) or gf.abs(x)"
    if accepts == "complex":
        return "convert it: gf.astype(x, gf.complex64)"
    if accepts.startswith("integer"):
        return "convert it: gf.astype(x, gf.int32)"
    return "convert it: gf.astype(x, gf.float32)"


def _vjp(self: Elementwise, ct: Tensor, y: Tensor, *xs: Tensor) -> tuple[Any, ...]:
    """Apply a row's rules, each only when its input's gradient is wanted."""

    def entry(rule: Vjp, x: Tensor) -> Callable[[], Tensor]:
        return lambda: F.sum_to(rule(ct, y, *xs), x.shape)

    return tuple(
        [
            entry(rule, x) if rule and x.dtype.is_inexact else None
            for rule, x in zip(self.rules, xs, strict=True)
        ]
    )


def _make(
    name: str,
    labels: tuple[str, ...],
    doc: str,
    rules: Sequence[Vjp | None] | None,
    xp: str | Callable[..., Any] | None,
    scalar: str | Callable[..., Any] | None,
    facts: dict[str, Any],
) -> type[Elementwise]:
    function = xp if callable(xp) else _of_module(xp or name)
    native = _primitive(scalar or name) if isinstance(scalar, str) else scalar
    facts |= {
        "__doc__": doc,
        "labels": labels,
        "function": staticmethod(function),
        "native": staticmethod(native) if native else None,
        "ufunc": "" if callable(xp) else xp or name,
        "rules": rules or (None,) * len(labels),
        "vjp": NONDIFF if rules is None else _vjp,
    }
    return op(name)(type(name.title().replace("_", ""), (Elementwise,), facts))


def _of_module(name: str) -> Callable[..., Any]:
    return lambda xp, *xs: getattr(xp, name)(*xs)


def _primitive(name: str) -> Callable[..., Any]:
    return lambda k, *xs: k.call(name, *xs)


class RowOptions(TypedDict, total=False):
    """The options of a row.

    Attributes:
        xp: The name of the array module's function, or `f(xp, *xs)`; default: the same name.
        scalar: The name of the primitive function of kernels that it is, or `f(k, *xs)`; default:
            the same name; None where compiled code has none.
        accepts: A key of `KINDS`. Where only inexact tensors are accepted, the public function
            converts integers to the default dtype.
        result: "same", "bool", "real" (of a complex tensor) or "complex" (of two real ones).
        domain: The interval that the tests draw from.
        smooth: False where a numerical gradient is no check.
        samples: Further cases.
        traits: Those beside PURE and ELEMENTWISE.
        mixed_precision: See `Op`; comparisons, whose result is bool, follow their inputs.
    """

    xp: str | Callable[..., Any] | None
    scalar: str | Callable[..., Any] | None
    accepts: str
    result: str
    domain: tuple[float, float]
    smooth: bool
    samples: Sequence[Case]
    traits: Iterable[Trait]
    mixed_precision: MixedKind


class BinaryOptions(RowOptions, total=False):
    """The options of a row of two tensors.

    Attributes:
        widen: Whether bfloat16 is computed in float32.
        ints: The interval that the tests draw integers from.
    """

    widen: bool
    ints: tuple[int, int]


def unary_op(
    name: str,
    *,
    doc: str,
    vjp: Vjp | None,
    xp: str | Callable[..., Any] | None = None,
    scalar: str | Callable[..., Any] | None = "",
    accepts: str = "floating-point or complex",
    result: str = "same",
    domain: tuple[float, float] = (-2.0, 2.0),
    smooth: bool = True,
    samples: Sequence[Case] = (),
    traits: Iterable[Trait] = (),
    mixed_precision: MixedKind = "wide",
) -> type[Elementwise]:
    """Declare an elementwise op of one tensor, without a public function: see `unary`."""
    accepted = KINDS[accepts]
    kind = SAMPLE_DTYPE.get(accepts, "float32")
    cases = [ok(f"{kind}[3, n]", domain=domain, smooth=smooth)]
    if accepted(complex64) and kind != "complex64":
        cases.append(ok("complex64[2, 3]", domain=domain, smooth=smooth))
    if accepted(int32) and kind != "int32":
        cases.append(ok("int32[4]"))
    cases.append(
        ok("bool[3]")
        if accepted(bool_)
        else bad("bool[3]", match=f"wants {counted(accepts, 'tensor')}, not bool", error=DTypeError)
    )
    facts = {
        "accepts": accepts,
        "result": result,
        "samples": (*cases, *samples),
        "traits": Elementwise.traits.union(traits),
        "mixed_precision": "follows" if result == "bool" else mixed_precision,
    }
    return _make(name, ("x",), doc, None if vjp is None else (vjp,), xp, scalar, facts)


def unary(
    name: str,
    *,
    doc: str,
    vjp: Vjp | None,
    shortcut: Callable[[Tensor], Tensor | None] | None = None,
    **options: Unpack[RowOptions],
) -> Callable[[TensorLike], Tensor]:
    """Declare an elementwise op of one tensor.

    Args:
        name: Its name, and that of the public function.
        doc: The public function's docstring.
        vjp: `(ct, y, x) -> cotangent of x`, or NONDIFF.
        shortcut: The public function's result for tensors that need no such op, else None.
        options: See `RowOptions`.
    """
    return unary_function(unary_op(name, doc=doc, vjp=vjp, **options), shortcut=shortcut)


def unary_function(
    cls: type[Elementwise], *, shortcut: Callable[[Tensor], Tensor | None] | None = None
) -> Callable[[TensorLike], Tensor]:
    """Declare the public function of an op of one tensor that other modules know by its class."""
    row = cls()

    def function(x: TensorLike, /) -> Tensor:
        tensor = x if isinstance(x, Tensor) else as_tensor(x)
        if shortcut is not None and (done := shortcut(tensor)) is not None:
            return done
        return applied(row, (_convertible(row, tensor),), (tensor,))[0]

    return public(_named(function, cls.name, _documented(cls)))


def binary_op(
    name: str,
    *,
    doc: str,
    vjp: tuple[Vjp | None, Vjp | None] | None,
    xp: str | Callable[..., Any] | None = None,
    scalar: str | Callable[..., Any] | None = "",
    accepts: str = "numeric",
    result: str = "same",
    widen: bool = True,
    domain: tuple[float, float] = (-2.0, 2.0),
    ints: tuple[int, int] = (1, 5),
    smooth: bool = True,
    samples: Sequence[Case] = (),
    traits: Iterable[Trait] = (),
    mixed_precision: MixedKind = "wide",
) -> type[Elementwise]:
    """Declare an elementwise op of two tensors, without a public function: see `binary`."""
    accepted = KINDS[accepts]
    kind = SAMPLE_DTYPE.get(accepts, "float32")

    def sample(*types: str) -> Case:
        return ok(*types, domain=domain, ints=ints, smooth=smooth)

    cases = [sample(f"{kind}[3, n]", f"{kind}[3, n]"), sample(f"{kind}[3, 1]", f"{kind}[n]")]
    if accepted(int32):
        cases.append(sample("int32[4]", "int32[]"))
    if accepted(complex64):
        cases.append(sample("complex64[2]", "complex64[2]"))
    cases += [
        bad(f"{kind}[3, 4]", f"{kind}[3, 5]", match="shapes don't broadcast"),
        bad(f"{kind}[batch]", f"{kind}[5]", match="a symbolic dim broadcasts with 1"),
        bad(f"{kind}[2]", "int8[2]", match="wants", error=DTypeError),
        ok("bool[3]", "bool[3]")
        if accepted(bool_)
        else bad(
            "bool[3]", "bool[3]", match=f"wants {counted(accepts, 'tensor')}", error=DTypeError
        ),
    ]
    facts = {
        "accepts": accepts,
        "result": result,
        "widen": widen,
        "samples": (*cases, *samples),
        "traits": Elementwise.traits.union(traits),
        "mixed_precision": "follows" if result == "bool" else mixed_precision,
    }
    return _make(name, ("x1", "x2"), doc, vjp, xp, scalar, facts)


def binary(
    name: str,
    *,
    doc: str,
    vjp: tuple[Vjp | None, Vjp | None] | None,
    **options: Unpack[BinaryOptions],
) -> Callable[[TensorLike, TensorLike], Tensor]:
    """Declare an elementwise op of two tensors, which broadcast and promote.

    Args:
        name: Its name, and that of the public function.
        doc: The public function's docstring.
        vjp: For each input `(ct, y, x1, x2) -> cotangent` in the broadcast shape, or NONDIFF.
        options: See `BinaryOptions`.
    """
    return binary_function(binary_op(name, doc=doc, vjp=vjp, **options))


def binary_function(cls: type[Elementwise]) -> Callable[[TensorLike, TensorLike], Tensor]:
    """Declare the public function of an op of two tensors that other modules know by its class."""
    row = cls()
    wants_floats = row.accepts in FLOATS_ONLY

    def function(x1: TensorLike, x2: TensorLike, /) -> Tensor:
        if wants_floats:
            return apply(row, x1, x2)
        return applied(row, promoted_two(row.name, x1, x2), (x1, x2))[0]

    errors = "ShapeError: The shapes don't broadcast."
    return public(_named(function, cls.name, _documented(cls, errors)))


def apply(row: Elementwise, x1: TensorLike, x2: TensorLike) -> Tensor:
    """Apply an op of two tensors as its public function does: promote, convert integers, emit."""
    a, b = promoted_two(row.name, x1, x2)
    return applied(row, (_convertible(row, a), _convertible(row, b)), (x1, x2))[0]


def _convertible(row: Elementwise, x: Tensor) -> Tensor:
    """Convert an integer tensor for ops that want floats; bools stay, and the type rule refuses."""
    return inexact(x) if row.accepts in FLOATS_ONLY and x._type.dtype.is_integer else x


def _named(function: Callable[..., Tensor], name: str, doc: str) -> Callable[..., Tensor]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def _documented(cls: type[Elementwise], *others: str) -> str:
    """Return a docstring with the errors that a row's function raises."""
    kind = () if cls.accepts == "any" else ("DTypeError: A tensor is of another kind.",)
    raises = (*kind, *others)
    text = inspect.cleandoc(cls.__doc__ or "")
    return "\n    ".join([f"{text}\n\nRaises:", *raises]) if raises else text
