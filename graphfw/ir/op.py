"""Operations: the `Op` base class, its registry, and the samples that test it."""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from functools import partial
from importlib import import_module
from inspect import Parameter, Signature
from typing import (
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    TypeAlias,
    TypeVar,
    dataclass_transform,
    get_origin,
)

from graphfw.errors import GraphError, GraphfwError, ShapeError, did_you_mean
from graphfw.hints.calls import raise_refusal
from graphfw.ir.dim import Dim, DimLike, symbols_of
from graphfw.ir.dim_text import evaluate
from graphfw.ir.dtype import DType, float32
from graphfw.ir.shape import Requirement
from graphfw.ir.types import TensorType
from graphfw.loc import known_names
from graphfw.utils.records import record


class Trait(enum.Enum):
    """A fact about an op that passes and executors ask for."""

    # Members are singletons, asked for once per node and pass: Enum hashes their names, slowly.
    __hash__ = object.__hash__

    PURE = "the same inputs give the same outputs: may be merged, folded, dropped"
    ELEMENTWISE = "output element i depends on the inputs' elements i after broadcasting only"
    COMMUTATIVE = "the two inputs may be swapped"
    IDEMPOTENT = "of one input: f(f(x)) is f(x); of two: f(x, x) is x"
    INVOLUTION = "f(f(x)) is x"
    TRANSPARENT = "it yields its first inputs as they are, and is nothing to a run"
    ALIAS = "the result may share memory with an input"
    RANDOM = "`eval` takes rng=Rng(…); the op has a field `key`"
    SOURCE = "a value from outside: placeholder, variable, constant"
    EFFECT = "`eval` does more than give a result: it is done in runs only, never ahead of them"
    LOOSE = "whether borderline values fail, and where NaN goes, may differ from what `eval` does"
    MEASURES = "a run finds out the sizes of the symbols in its fields: see `ops/data_dependent/`"
    COLLECTIVE = "all processes of a mesh take part, once in each run, in one order"


PURE = Trait.PURE
ELEMENTWISE = Trait.ELEMENTWISE
COMMUTATIVE = Trait.COMMUTATIVE
IDEMPOTENT = Trait.IDEMPOTENT
INVOLUTION = Trait.INVOLUTION
TRANSPARENT = Trait.TRANSPARENT
ALIAS = Trait.ALIAS
RANDOM = Trait.RANDOM
SOURCE = Trait.SOURCE
EFFECT = Trait.EFFECT
LOOSE = Trait.LOOSE
MEASURES = Trait.MEASURES
COLLECTIVE = Trait.COLLECTIVE

MixedKind: TypeAlias = Literal["wide", "narrow", "follows", "passes"]
"""The rule by which mixed precision chooses an op's dtype: see `Op.mixed_precision`."""

NONDIFF = None
"""The `vjp` of an op that no gradient flows through."""


class Cost(NamedTuple):
    """The work and traffic of one execution; symbolic where the shapes are."""

    flops: DimLike
    read_bytes: DimLike
    write_bytes: DimLike


class Rng(NamedTuple):
    """The seed, step and lane that a random op draws from, besides its own key.

    Attributes:
        seed: The session's.
        step: The run's.
        iteration_key: In a loop, a number of 64 bits that stands for the iterations it is in; else
            0.
    """

    seed: int
    step: int
    iteration_key: int = 0

    def fold(self, iteration: int) -> Rng:
        """Return the random state of one iteration of a loop.

        By the finaliser of SplitMix64 (G. L. Steele, D. Lea, C. H. Flood, "Fast splittable
        pseudorandom number generators", OOPSLA 2014).
        """
        mixed = (self.iteration_key + (iteration + 1) * 0x9E3779B97F4A7C15) & _WORD
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _WORD
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _WORD
        return self._replace(iteration_key=mixed ^ mixed >> 31)


NO_RNG = Rng(0, 0)
"""The generator of ops that draw nothing."""

_WORD = 2**64 - 1


class Nested(abc.ABC):
    """A value of a field that is a graph: see `ir.body.Body`."""

    @property
    @abc.abstractmethod
    def symbols(self) -> frozenset[str]:
        """The names of the symbolic dims."""

    @abc.abstractmethod
    def bind(self, sizes: Mapping[str, int]) -> Any:
        """Return it with numbers in the place of the dims."""


def nested(value: Any) -> Iterator[Any]:
    """Yield the graphs in a value of a field."""
    if isinstance(value, Nested):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from nested(item)


@record
class Case:
    """A sample for an op's contract tests: see `ok` and `bad`."""

    types: tuple[str, ...]
    fields: Mapping[str, Any]
    sizes: Mapping[str, int] = field(default_factory=dict)
    domain: tuple[float, float] = (-2.0, 2.0)
    ints: tuple[int, int] = (0, 4)
    smooth: bool = True
    diagonal: float = 0.0
    match: str = ""
    error: type[GraphfwError] | None = None


def ok(
    *types: str,
    sizes: Mapping[str, int] | None = None,
    domain: tuple[float, float] = (-2.0, 2.0),
    ints: tuple[int, int] = (0, 4),
    smooth: bool = True,
    diagonal: float = 0.0,
    **fields: Any,
) -> Case:
    """Declare inputs that an op accepts.

    Args:
        types: The inputs' types, `"float32[3, n]"`.
        sizes: What the symbolic dims stand for when the case runs (others are 3).
        domain: The open interval that floats are drawn from.
        ints: The half-open interval that integers are drawn from.
        smooth: False where the gradient can't be checked numerically.
        diagonal: What is added to the diagonals of matrices, to keep them far from singular.
        fields: The op's fields.
    """
    return Case(types, fields, sizes or {}, domain, ints, smooth, diagonal)


def bad(*types: str, match: str, error: type[GraphfwError] = ShapeError, **fields: Any) -> Case:
    """Declare inputs that an op refuses, with a part of the message."""
    return Case(types, fields, match=match, error=error)


REGISTRY: dict[str, type[Op]] = {}

OpClass = TypeVar("OpClass", bound="type[Op]")


class _Fields:
    """The signature of making an op: its fields."""

    def __get__(self, op: Op | None, cls: type[Op]) -> Signature:
        parameters: list[Parameter] = []
        kind: Any = Parameter.POSITIONAL_OR_KEYWORD
        for name in cls.fields:
            default = cls._defaults.get(name, Parameter.empty)
            if default is Parameter.empty and parameters and parameters[-1].default is not default:
                kind = Parameter.KEYWORD_ONLY  # as far as `inspect` can say it
            parameters.append(Parameter(name, kind, default=default))
        return Signature(parameters)


Inferred: TypeAlias = dict[tuple[int, ...], tuple[tuple[TensorType, ...], tuple[TensorType, ...]]]
"""The inputs' and the outputs' types, by the ids of the inputs' types, which entries keep alive."""

_set = object.__setattr__
_INFERRED = 64
"""The number of lists of inputs' types for which an op remembers the outputs' types."""


@dataclass_transform(frozen_default=True)
class Op:
    """The base of all operations.

    A subclass declares, in one place, every fact about the operation. Its annotated attributes are
    its fields: parameters that are fixed when the graph is built. Two ops of one class with equal
    fields are equal.

    `shape`, `dtype`: the type rule, from the inputs' shapes and dtypes; state conditions with
    `require`. An op with `multiple = True` returns tuples from both, one entry an output.
    `eval(xp, *arrays)`: the reference result, with `xp` NumPy or CuPy; RANDOM ops get `rng=`.
    `vjp(ct, y, *inputs)`: the cotangents of the inputs, tensors in and tensors out: a tensor, None,
    or a function that makes one when it is needed; or `vjp = NONDIFF` for the op as a whole. With
    `multiple`, `ct` and `y` are tuples.
    `linear`: "jointly" if the op is linear in all its float inputs together, "each" if in each of
    them only: forward mode applies it to the tangents. Where it says nothing, forward mode takes
    the `vjp` of an elementwise op as it is, and transposes others.
    `jvp(tangents, y, *inputs)`: the outputs, made anew together with their tangents, and these;
    None stands for a tangent of zeros. Only ops that own bodies need it.
    `batch(lanes, batched, *inputs)`: the op for many inputs at once, the lanes (`ops/batching.py`):
    tensors in and tensors out. Inputs that are `batched` have the lanes as axis 0, and so must all
    outputs. Elementwise ops need no rule; None says that there is none.
    `mixed_precision`: how sessions of mixed precision choose the dtype of an op that is described
    in float32. "wide" computes in float32; "narrow" in 16 bits, with operands that are converted
    but for those that `wide_operands` names by their labels; "follows" in the widest dtype of its
    inputs; "passes" has each output in the dtype of the input of its number.
    `cost(outputs, *inputs)`: from types.
    `remainders`: the outputs, by number, that hold what rounding took from others: another order of
    the same sums gives others, so `gf.bisect` does not compare them.
    What compilers ask: `scalar(k, *elements)`, where one element of the result is a function of one
    of each input after broadcasting: that function, of the primitives that `k` has. `combine`, for
    reductions: what joins two elements. `source_index(index, x, y)`, for ops that only rename
    elements: which element of the input the element `index` of the output is, given the shapes of
    both; as `ir.affine` expressions, or None where it is no affine function.
    `earlier_fields`: names of fields in texts that earlier versions wrote, and the present names.
    `cases()`: samples from which the contract tests are made.
    """

    __signature__ = _Fields()

    name: ClassVar[str] = ""
    traits: ClassVar[frozenset[Trait]] = frozenset({PURE})
    multiple: ClassVar[bool] = False
    fields: ClassVar[tuple[str, ...]] = ()
    earlier_fields: ClassVar[dict[str, str]] = {}
    labels: ClassVar[tuple[str, ...]] = ()
    remainders: ClassVar[tuple[int, ...]] = ()
    _defaults: ClassVar[dict[str, Any]] = {}
    _inferred: ClassVar[Inferred | None]

    # The rules have the inputs as their parameters, so their signatures differ from op to op.
    shape: ClassVar[Callable[..., Any]]
    dtype: ClassVar[Callable[..., Any]]
    eval: ClassVar[Callable[..., Any]]
    vjp: ClassVar[Callable[..., Any] | None]
    jvp: ClassVar[Callable[..., Any] | None] = None
    linear: ClassVar[Literal["", "jointly", "each"]] = ""
    batch: ClassVar[Callable[..., Any] | None] = None
    mixed_precision: ClassVar[MixedKind] = "wide"
    wide_operands: ClassVar[frozenset[str]] = frozenset()
    scalar: ClassVar[Callable[..., Any] | None] = None
    combine: ClassVar[str] = ""
    source_index: ClassVar[Callable[..., Any] | None] = None

    def __init_subclass__(cls) -> None:
        own = [name for name, kind in cls.__annotations__.items() if not _is_of_class(kind)]
        cls.fields = (*cls.fields, *(n for n in own if n not in cls.fields))
        cls._defaults = {**cls._defaults, **{n: cls.__dict__[n] for n in own if n in cls.__dict__}}
        cls._inferred = None if cls.fields else {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        fields = self.fields
        if not kwargs and len(args) == len(fields):  # quickly, as most ops are made
            for name, value in zip(fields, args, strict=True):
                _set(self, name, value)  # into `__dict__` it would make that: one object more
            return
        values = dict(zip(fields, args, strict=False))
        fits = len(args) <= len(fields) and kwargs.keys().isdisjoint(values)
        values.update(kwargs)
        values = {**self._defaults, **values}
        fits = fits and values.keys() == set(fields)
        values = {name: values.get(name) for name in fields}
        if not fits:
            raise_refusal(TypeError(), type(self), args, kwargs)
        for name, value in values.items():
            _set(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    @property
    def title(self) -> str:
        """The op's name in errors of a run."""
        return self.name

    @property
    def values(self) -> tuple[Any, ...]:
        """The fields' values, in order."""
        return tuple([getattr(self, name) for name in self.fields])

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return type(self) is type(other) and self.values == other.values

    def __hash__(self) -> int:
        return hash((self.name, self.values))

    def __reduce__(self) -> tuple[Any, ...]:
        return _op_of, (type(self).__module__, self.name, self.values)

    def __repr__(self) -> str:
        inside = ", ".join(f"{n}={getattr(self, n)!r}" for n in self.fields)
        return f"{type(self).__name__}({inside})"

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        """Return the outputs' types. This is the only type rule; nobody overrides it.

        Raises:
            Requirement: The inputs don't fit.
        """
        return self._infer(types)

    def _infer(self, types: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        """Do as `infer` does; most often the types are known."""
        inferred = self._inferred
        if inferred is None:
            return self._outputs(types)
        # Nodes also share the tuple: each object is work to collect.
        key = tuple(map(id, types))
        known = inferred.get(key)
        if known is None:
            if len(inferred) >= _INFERRED:
                inferred.clear()
            known = inferred[key] = types, self._outputs(types)
        return known[1]

    def _outputs(self, types: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        shape = self.shape(*[t.shape for t in types])
        dtype = self.dtype(*[t.dtype for t in types])
        if self.multiple:
            return tuple(TensorType(d, s) for d, s in zip(dtype, shape, strict=True))
        for kind in types:
            if kind.dtype is dtype and kind.shape == shape:
                return (kind,)
        return (TensorType(dtype, shape),)

    def kernel(self, xp: Any, *dtypes: DType) -> Callable[..., Any]:
        """Return the function to run for inputs of these dtypes: `eval`, or a faster equivalent."""
        del dtypes
        return partial(self.eval, xp)

    def guess(self, *types: TensorType) -> tuple[TensorType, ...]:
        """Return likely output types where the rule failed, to go on looking for mistakes."""
        guessed = types[0] if types else TensorType(float32, ())
        if not self.multiple:
            return (guessed,)
        # One half of the rule failed; the other still knows how many outputs there are.
        with suppress(Requirement, GraphfwError):
            return (guessed,) * len(self.dtype(*[t.dtype for t in types]))
        with suppress(Requirement, GraphfwError):
            return (guessed,) * len(self.shape(*[t.shape for t in types]))
        return (guessed,)

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        """Return the cost of one execution: by default one operation an output element."""
        flops: DimLike = 0
        written: DimLike = 0
        for output in outputs:
            flops = flops + output.size
            written = written + output.nbytes
        read: DimLike = 0
        for tensor in inputs:
            read = read + tensor.nbytes
        return Cost(flops, read, written)

    @staticmethod
    def cases() -> Iterator[Case]:
        """Yield the samples that the contract tests are made from."""
        return iter(())

    @property
    def symbols(self) -> frozenset[str]:
        """The names of the symbolic dims in the fields."""
        return frozenset().union(*(_symbols(value) for value in self.values))

    def bind(self, sizes: Mapping[str, int]) -> Op:
        """Return the op with the symbolic dims in its fields replaced by numbers."""
        if not self.symbols:
            return self
        return type(self)(*(_bound(value, sizes) for value in self.values))


def infer_as(op: Op, known: Inferred) -> None:
    """Let an op look there first when it infers types, and remember there."""
    _set(op, "_inferred", known)


def _op_of(module: str, name: str, values: tuple[Any, ...]) -> Op:
    """Return the op that `pickle` has taken apart; an op outside of graphfw is imported first."""
    import_module(module)
    return lookup(name)(*values)


def _is_of_class(annotation: object) -> bool:
    """Return whether an annotation, or its text, is `ClassVar`, whatever `typing` is called."""
    if isinstance(annotation, str):
        return annotation.partition("[")[0].rpartition(".")[2] == "ClassVar"
    return ClassVar in (annotation, get_origin(annotation))


def _symbols(value: object) -> frozenset[str]:
    if isinstance(value, Dim):
        return symbols_of(value)
    if isinstance(value, Nested):
        return value.symbols
    if isinstance(value, tuple):
        return frozenset().union(*(_symbols(item) for item in value))
    return frozenset()


def _bound(value: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(value, Dim):
        return evaluate(value, sizes)
    if isinstance(value, Nested):
        return value.bind(sizes)
    if isinstance(value, tuple):
        return tuple(_bound(item, sizes) for item in value)
    return value


_RULES = {
    "shape": "def shape(self, x): return x",
    "dtype": "def dtype(self, x): return x",
    "eval": "def eval(self, xp, x): … for NumPy and CuPy",
    "vjp": "def vjp(self, ct, y, x): …, or vjp = gf.extend.NONDIFF for none",
}
"""The rules that every op has, as they are written for one input."""


def op(name: str) -> Callable[[OpClass], OpClass]:
    """Register an op class under a name, after checking that no fact is missing."""

    def register(cls: OpClass) -> OpClass:
        missing = [fact for fact in ("shape", "dtype", "eval", "vjp") if not hasattr(cls, fact)]
        if missing:
            raise GraphError(
                f"op {name!r} does not say its {', '.join(missing)}",
                fix="; ".join([f"write {_RULES[fact]}" for fact in missing]),
            )
        if name in REGISTRY:
            raise GraphError(f"an op named {name!r} exists already: {REGISTRY[name].__name__}")
        cls.name = name
        cls.labels = cls.labels or labels_of(cls)
        REGISTRY[name] = cls
        known_names.add(name)
        return cls

    return register


def labels_of(cls: type[Op]) -> tuple[str, ...]:
    """Return the operands' names: those of the shape rule's parameters."""
    code = cls.shape.__code__
    return tuple(code.co_varnames[1 : code.co_argcount])


def lookup(name: str) -> type[Op]:
    """Return the op class of a name.

    Raises:
        GraphError: There is none.
    """
    if name not in REGISTRY:
        raise GraphError(
            f"there is no op named {name!r}",
            fix=did_you_mean(name, REGISTRY) or "import the module that registers it first",
        )
    return REGISTRY[name]
