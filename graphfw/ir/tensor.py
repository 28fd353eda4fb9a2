"""`Node`, one application of an op, and `Tensor`, the symbolic value that users hold."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from graphfw.errors import ConcreteValueError, DTypeError, type_text
from graphfw.hints.calls import explained
from graphfw.hints.devices import executor_for
from graphfw.hints.names import raise_unknown, raise_unmade, raise_unset
from graphfw.ir import concrete
from graphfw.ir.at import At
from graphfw.ir.dim import Dim, DimLike
from graphfw.ir.dtype import DType, DTypeLike
from graphfw.ir.functions import CALLED, OVERRIDABLE
from graphfw.ir.numpy_calls import CalledByNumPy
from graphfw.ir.op import Op
from graphfw.ir.operators import Operators, typed
from graphfw.ir.types import Shape, TensorType
from graphfw.ir.unset import Unset, UnsetTensor, serials
from graphfw.loc import Loc

if TYPE_CHECKING:
    from graphfw.ir.graph import Graph


class Node(Unset):
    """One application of an op to inputs; immutable.

    Attributes:
        op: What it does.
        inputs: The tensors it is applied to.
        types: The outputs' types.
        loc: Where the user made it.
        name: The name the user gave it, or "".
        graph: The graph it was made in. Compiled graphs share untouched nodes with it.
        serial: Its index in the order in which nodes are made.
    """

    __slots__ = ()

    def __new__(
        cls,
        op: Op,
        inputs: tuple[Tensor, ...],
        types: tuple[TensorType, ...],
        loc: Loc,
        name: str,
        graph: Graph,
    ) -> Node:
        """Make a node."""
        self = Unset()
        self.op = op
        self.inputs = inputs
        self.types = types
        self.loc = loc
        self.name = name
        self.graph = graph
        self.serial = next(serials)
        self._outputs = ()
        self.__class__ = Node
        return self  # type: ignore[return-value]  # now it is one

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("nodes are immutable: passes rebuild")

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The tensors it yields, always the same objects while anybody holds them.

        Outside any graph a node refers to its outputs weakly, so that they are collected as soon as
        the user drops them; in a graph, which keeps its nodes, they stay.
        """
        held = self._outputs
        if isinstance(held, Tensor):
            return (held,)
        if held and not self.graph.is_ambient:
            return held
        kept = [ref() for ref in held] or [None] * len(self.types)
        outputs = tuple([Tensor(self, i) if t is None else t for i, t in enumerate(kept)])
        if any([t is None for t in kept]):
            self.adopt_outputs(outputs)
        return outputs

    def make_outputs(self) -> tuple[Tensor, ...]:
        """Make the objects that stand for the outputs of a new node."""
        if len(self.types) == 1 and not self.graph.is_ambient:  # quickly, as most are
            tensor = UnsetTensor()
            tensor.node = self
            tensor.index = 0
            tensor._type = self.types[0]
            tensor._value = None
            tensor.__class__ = Tensor
            _set_outputs(self, tensor)
            return (tensor,)  # type: ignore[return-value]  # now it is one
        outputs = tuple([Tensor(self, i) for i in range(len(self.types))])
        self.adopt_outputs(outputs)
        return outputs

    def adopt_outputs(self, outputs: tuple[Tensor, ...]) -> None:
        """Say which objects stand for the outputs; only for those that make nodes."""
        if self.graph.is_ambient:
            _set_outputs(self, tuple([weakref.ref(t) for t in outputs]))
        else:
            _set_outputs(self, outputs[0] if len(outputs) == 1 else outputs)

    def __copy__(self) -> Node:
        return self  # immutable

    def __deepcopy__(self, memo: dict[int, Any]) -> Node:
        return copy.deepcopy(self.outputs[0], memo).node

    def __reduce__(self) -> tuple[Any, ...]:
        return _node_of, (self.outputs[0],)

    def __repr__(self) -> str:
        return f"<Node {self.op.name} at {self.loc.short()}>"


_set_outputs = vars(Unset)["_outputs"].__set__


def _node_of(output: Tensor) -> Node:
    return output.node


class Tensor(UnsetTensor, Operators, CalledByNumPy):
    """A symbolic value: an output of a node, with a shape and a dtype that are known now.

    Operators and methods make further nodes. A tensor has a value only when a session runs, unless
    it depends on constants only: then `t.numpy()`, `float(t)`, `bool(t)`, `print(t)` compute it.

    >>> import graphfw as gf
    >>> with gf.Graph() as g:
    ...     x = gf.placeholder(("batch", 3), name="x")
    ...     y = x * 2 + 1
    >>> y.shape, y.dtype
    ((batch, 3), graphfw.float32)
    >>> float(gf.asarray(2.0) * 3)
    6.0
    """

    __slots__ = ()

    def __init__(self, node: Node, index: int = 0) -> None:
        if not isinstance(node, Node):
            raise_unmade("Tensor", "gf.asarray")
        _set_node(self, node)
        _set_index(self, index)
        if index < len(node.types):  # else `verify` says so
            _set_type(self, node.types[index])
        _set_value(self, None)

    # Copies.

    def __copy__(self) -> Tensor:
        return self  # immutable

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        # Where a graph is open a copy is for that graph. Elsewhere it has a graph of its own.
        graph = self.node.graph
        if id(graph) not in memo and (graph.is_ambient or graph._is_one_open()):
            return self._copied()
        return graph._counterpart(self, copy.deepcopy(graph, memo))

    def __reduce__(self) -> tuple[Any, ...]:
        return self.node.graph._reduced(self)

    def _copied(self) -> Tensor:
        """Return a copy for the graph that is open."""
        return self

    def _own_state(self) -> Any:
        """Return the state that `_restore` needs besides the node; for subclasses."""

    def _restore(self, node: Node, index: int, state: Any) -> None:
        """Become an output of a node again, with what `_own_state` returned."""
        del state
        Tensor.__init__(self, node, index)

    # What it is.

    @property
    def type(self) -> TensorType:
        """The dtype and the shape."""
        return self._type

    @property
    def shape(self) -> Shape:
        """The dims: ints, or symbolic `Dim`s."""
        return self._type.shape

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return self._type.dtype

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self._type.shape)

    @property
    def size(self) -> DimLike:
        """The number of elements."""
        return self._type.size

    @property
    def name(self) -> str:
        """The name the user gave it, or ""."""
        name = self.node.name
        return name if not name or len(self.node.types) == 1 else f"{name}:{self.index}"

    @property
    def graph(self) -> Graph:
        """The graph it was made in."""
        return self.node.graph

    @property
    def device(self) -> str:
        """Always "graph": where it is computed is chosen by the session."""
        return "graph"

    @explained
    def to_device(self, device: str, /, *, stream: object = None) -> Tensor:
        """Return the tensor itself: a graph belongs to no device."""
        if device != "graph" or stream is not None:
            raise ConcreteValueError(
                f"a tensor is on no device: to_device({device!r})",
                fix=executor_for(device) or "choose the executor: gf.Session(g, executor=…)",
            )
        return self

    if not TYPE_CHECKING:  # which reports unknown attributes only where this is hidden from it

        def __getattr__(self, name: str) -> Any:
            raise_unknown(self, "Tensor", name)

        def __setattr__(self, name: str, value: Any) -> None:
            try:
                object.__setattr__(self, name, value)
            except AttributeError:  # what others have, such as `requires_grad`, or a property
                if hasattr(type(self), name):
                    raise_unset(self, "Tensor", name)
                raise_unknown(self, "Tensor", name)

    # Values, where there is one.

    @explained
    def numpy(self) -> np.ndarray[Any, Any]:
        """Return the value, read-only.

        Raises:
            ConcreteValueError: The tensor depends on something that only a session knows, or the
                default executor is "meta", which computes nothing.
            MemoryLimitError: There is not so much memory.
        """
        return concrete.value_for_user(self, ".numpy()")

    @explained
    def item(self) -> Any:
        """Return the value of a tensor with one element as a Python scalar."""
        return self._scalar(".item()").item()

    def _scalar(self, what: str) -> np.ndarray[Any, Any]:
        value = concrete.value_for_user(self, what)
        if value.size != 1:
            raise ConcreteValueError(
                f"{what} wants one element: this tensor is {self.type}",
                fix="reduce it first, for example with gf.any, gf.all or gf.sum",
            )
        return value.reshape(())

    def __bool__(self) -> bool:
        return bool(self._scalar("bool()"))

    def __int__(self) -> int:
        return int(self._scalar("int()"))

    def __float__(self) -> float:
        return float(self._scalar("float()"))

    def __complex__(self) -> complex:
        return complex(self._scalar("complex()"))

    def __index__(self) -> int:
        if not self.dtype.is_integer:
            raise DTypeError(
                f"only integer tensors become Python ints: this one is {self.type}",
                fix="convert it: gf.astype(x, gf.int64)",
            )
        concrete.value_of(self, "a Python int")  # under "meta", too: a shape may depend on it
        return int(self._scalar("a Python int"))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        value = concrete.value_for_user(self, "np.asarray()")
        return np.array(value, dtype=dtype) if copy else np.asarray(value, dtype=dtype)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        value = concrete.value_for_user(self, "__dlpack__()")
        options = {"stream": stream, "max_version": max_version, "dl_device": dl_device}
        given: Any = {name: value for name, value in options.items() if value is not None}
        if copy is False:
            return value.__dlpack__(copy=False, **given)
        # Few takers keep to what they may not write to.
        return value.copy().__dlpack__(**given)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __len__(self) -> int:
        return self._leading_dim("len()", "its length as a tensor is gf.dim_size(x, 0)")

    def __iter__(self) -> Iterator[Tensor]:
        count = self._leading_dim("iteration", "gf.scan and gf.map go through its elements")
        return (CALLED.getitem(self, i) for i in range(count))

    def _leading_dim(self, what: str, instead: str) -> int:
        if not self.shape:
            raise ConcreteValueError(
                f"{what} of a 0-d tensor",
                operands=[concrete.describe("x", self)],
                fix="its only element is the tensor itself; gf.expand_dims adds a dim",
            )
        leading = self.shape[0]
        if isinstance(leading, Dim):
            raise ConcreteValueError(
                f"{what} of a tensor whose length `{leading}` is not known until the graph runs",
                operands=[concrete.describe("x", self)],
                fix=f"work on the whole tensor at once; {instead}",
            )
        return leading

    def __contains__(self, item: object) -> bool:
        raise ConcreteValueError(
            "`in` looks at values, which a tensor has none of until a session runs",
            fix="use gf.any(x == value); to look for a tensor in a list compare with `is`",
        )

    __hash__ = object.__hash__

    def __str__(self) -> str:
        value = self._shown_value()
        return repr(self) if value is None else str(value)

    def __repr__(self) -> str:
        if self.node.graph.is_ambient and concrete.is_concrete(self):
            value = self._shown_value()
            if value is None:
                return f"Tensor(shape={self.shape}, dtype={self.dtype.name})"
            text = np.array2string(value, separator=", ", prefix="Tensor(")
            return f"Tensor({text}, dtype={self.dtype.name})"
        name = f'"{self.name}" ' if self.name else ""
        kind, made = type_text(str(self.type)), concrete.made_by(self.node)
        return f"<Tensor {name}{kind} from {made} at {self.node.loc.short()}>"

    def _shown_value(self) -> np.ndarray[Any, Any] | None:
        """Return the value for a text; None where there is none, or none is computed."""
        if not concrete.is_concrete(self) or not concrete.is_computed(self):
            return None
        try:
            return concrete.value_of(self, "print()")
        except MemoryError:  # its type is what there is to be shown
            return None

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        return format(self._scalar("format()").item(), spec)

    # Indexing.

    def __getitem__(self, key: Any) -> Tensor:
        return typed(OVERRIDABLE["getitem"](self, key))

    def __setitem__(self, key: Any, value: Any) -> None:
        raise ConcreteValueError(
            "tensors don't change: x[i] = v has no meaning in a graph",
            operands=[concrete.describe("x", self)],
            fix="write x = x.at[i].set(v); a variable takes it with gf.update",
        )

    @property
    def at(self) -> At:
        """The setter of elements: `x.at[key].set(values)`, `.add`, `.multiply`, `.max`, `.min`.

        >>> import graphfw as gf
        >>> gf.zeros(3).at[1:].add(2)
        Tensor([0., 2., 2.], dtype=float32)
        """
        return At(self)

    # Methods: the functions of the same names, for reading from left to right.

    @property
    def T(self) -> Tensor:
        """The transpose of a 2-d tensor."""
        return typed(CALLED.transpose_2d(self))

    @property
    def mT(self) -> Tensor:
        """The last two dims exchanged."""
        return typed(CALLED.matrix_transpose(self))

    @explained
    def astype(self, dtype: DTypeLike) -> Tensor:
        """Convert the elements: `gf.astype`."""
        return typed(CALLED.astype(self, dtype))

    @explained
    def reshape(self, *shape: Any) -> Tensor:
        """Give the elements another shape: `gf.reshape`. Takes dims or one tuple of them."""
        return typed(CALLED.reshape(self, _dims(shape)))

    @explained
    def sum(self, axis: Any = None, *, keepdims: bool = False) -> Tensor:
        """Add up along axes: `gf.sum`."""
        return typed(CALLED.sum(self, axis=axis, keepdims=keepdims))

    @explained
    def mean(self, axis: Any = None, *, keepdims: bool = False) -> Tensor:
        """Average along axes: `gf.mean`."""
        return typed(CALLED.mean(self, axis=axis, keepdims=keepdims))

    @explained
    def max(self, axis: Any = None, *, keepdims: bool = False) -> Tensor:
        """Take the largest along axes: `gf.max`."""
        return typed(CALLED.max(self, axis=axis, keepdims=keepdims))

    @explained
    def min(self, axis: Any = None, *, keepdims: bool = False) -> Tensor:
        """Take the smallest along axes: `gf.min`."""
        return typed(CALLED.min(self, axis=axis, keepdims=keepdims))

    # Tensors of its dtype.

    @explained
    def new_zeros(self, *shape: Any, dtype: DTypeLike | None = None) -> Tensor:
        """Return zeros: `gf.zeros`. Takes dims or one tuple of them; the dtype is this tensor's."""
        return typed(CALLED.zeros(_dims(shape), dtype=self.dtype if dtype is None else dtype))

    @explained
    def new_ones(self, *shape: Any, dtype: DTypeLike | None = None) -> Tensor:
        """Return ones: `gf.ones`. Takes dims or one tuple of them; the dtype is this tensor's."""
        return typed(CALLED.ones(_dims(shape), dtype=self.dtype if dtype is None else dtype))

    @explained
    def new_empty(self, *shape: Any, dtype: DTypeLike | None = None) -> Tensor:
        """Return zeros: `gf.empty`. Takes dims or one tuple of them; the dtype is this tensor's."""
        return typed(CALLED.empty(_dims(shape), dtype=self.dtype if dtype is None else dtype))

    @explained
    def new_full(self, shape: Any, fill_value: Any, *, dtype: DTypeLike | None = None) -> Tensor:
        """Return one value everywhere: `gf.full`. The dtype is this tensor's."""
        return typed(CALLED.full(shape, fill_value, dtype=self.dtype if dtype is None else dtype))


# As for `TensorType`: every node makes a tensor.
_set_node = vars(UnsetTensor)["node"].__set__
_set_index = vars(UnsetTensor)["index"].__set__
_set_type = vars(UnsetTensor)["_type"].__set__
_set_value = vars(UnsetTensor)["_value"].__set__


def _dims(shape: tuple[Any, ...]) -> Any:
    """Return the dims that a method was given, one by one or as a tuple."""
    return shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
