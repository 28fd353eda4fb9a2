"""`host_call`: a Python function of NumPy arrays inside of a graph."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from graphfw.errors import ExecutionError, GradientError, ShapeError, a_type
from graphfw.ir.arrays import fitted
from graphfw.ir.build import emit_all
from graphfw.ir.dim import Dim, DimLike, symbol
from graphfw.ir.dtype import DType, as_dtype
from graphfw.ir.functions import F, public
from graphfw.ir.graph import open_graph
from graphfw.ir.literal import PYTHON_SCALARS, Array
from graphfw.ir.op import EFFECT, PURE, Op, op
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.ops.args import TensorLike
from graphfw.ops.batching import MappedAxis, changed
from graphfw.ops.composed import demand
from graphfw.ops.control.effects import call_number
from graphfw.ops.specs import read
from graphfw.ops.structures import Structure
from graphfw.utils import nest
from graphfw.utils.records import record

__all__ = ["host_call"]


@record
class Host:
    """The user's function.

    Attributes:
        fn: It.
        pack: Puts its arguments into the structures that it takes.
        takes: What is equal for equal structures of arguments.
        gives: The structure of its results: see `_structure`.
        label: What errors call it.
    """

    fn: Callable[..., Any]
    pack: Callable[[Sequence[Any]], Any] = field(compare=False, repr=False)
    takes: Hashable
    gives: Hashable
    label: str

    def __repr__(self) -> str:
        return self.label

    def __call__(self, arrays: Sequence[Array]) -> list[Any]:
        """Call it, and return its results one by one.

        Raises:
            ExecutionError: Their structure is another than was promised.
        """
        returned = self.fn(*self.pack(arrays))
        results: list[Any] = []
        if not _collect(returned, self.gives, results):
            raise ExecutionError(
                f"{self.label} returns {_outline(returned)}, which is not built like result_types",
                fix="return arrays in the structure of result_types",
            )
        return results


@op("host_call")
class HostCall(Op):
    """Results that a Python function of the user's computes from arrays.

    Attributes:
        host: The function.
        dims: The results' shapes.
        to: The results' dtypes.
        vectorized: Whether it takes and yields any further dims in front.
        number: 0 for a pure function; else another for each call, which tells them apart.
    """

    host: Host
    dims: tuple[Shape, ...]
    to: tuple[DType, ...]
    vectorized: bool
    number: int
    traits = frozenset({EFFECT})
    multiple = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.number:
            self.__dict__["traits"] = frozenset({PURE})

    @property
    def title(self) -> str:
        return f"host_call of {self.host.label}"

    def shape(self, *inputs: Shape) -> tuple[Shape, ...]:
        return self.dims

    def dtype(self, *inputs: DType) -> tuple[DType, ...]:
        return self.to

    def eval(self, xp: Any, *inputs: Any) -> tuple[Any, ...]:
        # Copies: what the function keeps must not change later, nor what it returns.
        arrays = [np.array(x) if xp is np else xp.asnumpy(x) for x in inputs]
        results = self.host(arrays)
        return tuple(
            [xp.asarray(self._checked(number, value)) for number, value in enumerate(results)]
        )

    def _checked(self, number: int, value: Any) -> Array:
        """Return a result as an array of the type that was promised."""
        wanted = TensorType(self.to[number], self.dims[number])
        array = np.array(value)
        is_weak = isinstance(value, (*PYTHON_SCALARS, list, tuple)) and not isinstance(
            value, np.generic
        )
        fits = fitted(array, wanted.dtype) if is_weak else None
        array = array if fits is None else fits
        if array.dtype != wanted.dtype.dtype or array.shape != wanted.shape:
            which = f"result {number}" if len(self.dims) > 1 else "its result"
            found = f"{array.dtype.name}[{', '.join(map(str, array.shape))}]"
            raise ExecutionError(
                f"{self.host.label}: {which} is {found}, and {wanted} in result_types",
                fix="return arrays of the promised shapes and dtypes: array.astype(…)",
            )
        return array

    def vjp(self, ct: Any, y: Any, *inputs: Tensor) -> tuple[Any, ...]:
        def refuse() -> Tensor:
            raise GradientError(
                f"grad: the gradient of {self.host.label}, a Python function, is not known",
                fix="give it one with gf.custom_gradient, or stop there: gf.stop_gradient(x)",
            )

        return (refuse,) * len(inputs)

    def batch(
        self, mapped: MappedAxis, batched: Sequence[bool], *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        if self.vectorized:
            dims = tuple([(mapped.size, *own) for own in self.dims])
            return emit_all(changed(self, dims=dims), *mapped.all(inputs, batched))

        def one(rows: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            own = iter(rows)
            operands = [next(own) if flag else x for x, flag in zip(inputs, batched, strict=True)]
            return emit_all(self, *operands)

        rows = tuple([x for x, flag in zip(inputs, batched, strict=True) if flag])
        results: tuple[Tensor, ...] = F.map(one, rows)
        return results


@public
def host_call(
    fn: Callable[..., Any],
    result_types: Any,
    *args: TensorLike,
    pure: bool = False,
    vectorized: bool = False,
) -> Any:
    """Call a Python function when the graph runs: NumPy arrays in, NumPy arrays out.

    A run makes the call if what is fetched needs a result, and then once: a call that is not `pure`
    is never merged with another, left out though its result is needed, or made when the graph is
    compiled. In a `gf.function` it is made at each call, needed or not, unless it stands in a loop
    or a branch. There is no order among calls but that of data: pass the result of one to the next.
    What looks at a run (`check_finite` and errors, `verify`, `plan.profile`) may repeat it.

    The function gets copies, and may be called from any thread. It has no gradient: give it one
    with `gf.custom_gradient`.

    Args:
        fn: Takes as many arrays, or structures of them, as there are `args`; returns arrays in the
            structure of `result_types`. Python numbers and lists take the promised dtype.
        result_types: What it returns: a `gf.TensorType`, a pair `(shape, dtype)`, or a tensor or an
            array of the same type; or tuples, lists and dicts of these. Dims are ints or, as
            `x.shape[0]`, symbolic.
        args: Tensors, or nested structures of them.
        pure: Whether equal arguments always give equal results, and nothing else happens. Then
            equal calls may become one, and one on constants is made when the graph is compiled.
        vectorized: Whether, with more dims in front of all arguments, it returns results with these
            in front. `gf.vmap` makes one call then, otherwise one for each example.

    Raises:
        ArgumentError: `fn` can't be called, or `result_types` holds something else, or nothing.
        ShapeError: A dim of `result_types` is no size.
        GraphError: No graph is open, and it is not pure.
        ExecutionError: When run: `fn` raises, which is the error's `__cause__`; or what it returns
            is not of the promised types.
        GradientError: In `gf.grad`.

    >>> import graphfw as gf
    >>> import numpy as np
    >>> with gf.Graph() as g:
    ...     x = gf.placeholder(("n",), name="x")
    ...     y = gf.host_call(np.sort, x.type, x, pure=True)
    >>> with gf.Session(g) as session:
    ...     session.run(y, {x: [3.0, 1.0, 2.0]})
    array([1., 2., 3.], dtype=float32)
    """
    demand(callable(fn), f"host_call: fn is {a_type(fn)}, not a function", fix="pass a function")
    kinds = read("host_call", result_types, "result_types", _kind)
    types: list[TensorType] = list(nest.leaves(kinds))
    demand(
        bool(types),
        "host_call: result_types is empty, so that nothing could need the call",
        fix="let the function return something, if only its argument, and use that",
    )
    if not pure:
        open_graph("a host_call that is not pure")
    arguments = Structure.of(args)
    host = Host(fn, arguments.pack, arguments.shape, _structure(kinds), _label(fn))
    call = HostCall(
        host,
        tuple([kind.shape for kind in types]),
        tuple([kind.dtype for kind in types]),
        vectorized,
        0 if pure else call_number(),
    )
    return nest.packer(kinds)(iter(emit_all(call, *arguments.tensors)))


def _kind(shape: Sequence[Any], dtype: Any, name: str) -> TensorType:
    return TensorType(as_dtype(dtype), tuple([_dim(dim, name) for dim in shape]))


def _dim(dim: Any, name: str) -> DimLike:
    if isinstance(dim, Dim):
        return dim
    if isinstance(dim, str) and dim.isidentifier():
        return symbol(dim)
    if dim is None or isinstance(dim, str) or dim < 0:
        raise ShapeError(
            f"host_call: {dim!r} in {name} is no size",
            fix="use ints and dims of the arguments, such as x.shape[0]",
        )
    return int(dim)


def _structure(kinds: Any) -> Hashable:
    """Return the structure of nested types, for `_collect`."""
    if isinstance(kinds, dict):
        return tuple(kinds), tuple([_structure(kind) for kind in kinds.values()])
    if isinstance(kinds, (list, tuple)):
        return len(kinds), tuple([_structure(kind) for kind in kinds])
    return None


def _collect(value: Any, structure: Any, results: list[Any]) -> bool:
    """Put what stands in a structure into a list; False where the value is built otherwise.

    Where an array is promised a list is one, of numbers.
    """
    if structure is None:
        results.append(value)
        return value is not None
    keys, children = structure
    if isinstance(keys, int):
        if not isinstance(value, (list, tuple)) or len(value) != keys:
            return False
        return all([_collect(v, child, results) for v, child in zip(value, children, strict=True)])
    if not isinstance(value, dict) or value.keys() != set(keys):
        return False
    return all(
        [_collect(value[k], child, results) for k, child in zip(keys, children, strict=True)]
    )


def _outline(value: Any) -> str:
    """Return the structure of a result as text: `(array, array)`."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k!r}: {_outline(v)}' for k, v in value.items())}}}"
    if isinstance(value, (list, tuple)):
        inside = ", ".join(map(_outline, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    return "None" if value is None else "an array" if hasattr(value, "shape") else a_type(value)


def _label(fn: Callable[..., Any]) -> str:
    """Return `lookup (data.py:12)`."""
    name = getattr(fn, "__qualname__", None) or a_type(fn)
    code = getattr(fn, "__code__", None)
    if code is None:
        return str(name)
    return f"{name} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"
