"""`Variable`, a named value that outlives a run, and `Update`, its new contents at a run's end."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from graphfw.errors import ArgumentError, DTypeError, GraphError, ShapeError
from graphfw.hints.calls import explained
from graphfw.ir import ambient, concrete
from graphfw.ir.arrays import to_array
from graphfw.ir.dim import Dim
from graphfw.ir.dtype import DType, DTypeLike, as_dtype
from graphfw.ir.functions import F
from graphfw.ir.graph import Graph, current_graph
from graphfw.ir.in_place import NotInPlace
from graphfw.ir.literal import Array
from graphfw.ir.model_graph import ModelGraph, Origin, new_origin, variable_graph
from graphfw.ir.op import SOURCE
from graphfw.ir.shape import int_or_none
from graphfw.ir.shared_ops import shared
from graphfw.ir.sources import VariableOp
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import TensorType
from graphfw.ir.walk import ancestors
from graphfw.loc import Loc, capture, name_fix
from graphfw.utils.records import record

RESERVED = "session/"
"""The prefix of the names that checkpoints have for a session's own entries."""

Initializer: TypeAlias = Callable[..., Any]
"""Called as `initializer(shape, dtype)` when a session starts; returns a tensor or an array."""

INITIALIZERS: dict[str, Initializer] = {}
"""The initialisers that come with graphfw, for `parse` to know what their names stand for."""


@record
class Filled:
    """An initialiser: one number everywhere."""

    value: float

    def __call__(self, shape: tuple[int, ...], dtype: DType) -> Tensor:
        """Return a tensor of the number."""
        return F.full(shape, self.value, dtype=dtype)


INITIALIZERS["Filled"] = Filled

_set = object.__setattr__


class Variable(NotInPlace, Tensor):
    """A value that lives in the session from run to run: a weight, a counter, a running mean.

    It is a tensor: use it in expressions. Every read in a run sees the contents at the run's start;
    `gf.update` gives it new contents at the run's end. One that is made outside of any graph has
    its contents in a session of its own: `v.numpy()` returns them, `v.assign` replaces them.

    Args:
        initial: An array, a constant tensor, or an initialiser that is called with shape and dtype;
            None where the contents are loaded from a checkpoint or assigned before the first run.
        name: Its name in checkpoints; made from the layer or the scope when there is none.
        trainable: Whether optimisers may change it.
        shape: With an initialiser or None, the shape: ints.
        dtype: The dtype. By default an array keeps its own, but for float64 and complex128, which
            NumPy makes unasked: they become the default dtype, as initialisers do.

    Raises:
        GraphError: The name is taken, or `initial` depends on a placeholder
            or a variable.
        ArgumentError: `shape` is missing with an initialiser or None; the name begins with
            "session/", or is no string.
        ShapeError: `shape` has a dim that is not known, or is not that of the array.
        DTypeError: The array's elements are no numbers, or don't fit the dtype.

    >>> import graphfw as gf
    >>> with gf.Graph() as g:
    ...     count = gf.Variable(0, name="count")
    ...     tick = gf.update(count, count + 1)
    >>> with gf.Session(g) as session:
    ...     _ = session.run([tick, tick])
    ...     int(session[count])
    1
    """

    __slots__ = (
        "_namer",
        "initial",
        "is_frozen",
        "is_named",
        "is_transposed",
        "origin",
        "trainable",
    )

    _namer: Callable[[], str]

    initial: Array | Tensor | Initializer | None

    is_named: bool
    """Whether its name was given by `name=`, and not made from a layer or the scope."""

    origin: Origin | None
    """The seed and the key of its initial contents, where these don't follow from its name."""

    is_transposed: bool
    """Whether it is a layer's, and PyTorch's layer has the transposed matrix."""

    is_frozen: bool
    """Whether training steps that are described from now on leave it, though it is trainable."""

    @explained
    def __init__(
        self,
        initial: Any,
        name: str | None = None,
        trainable: bool = True,
        *,
        shape: Sequence[int] | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        given: Array | Tensor | Initializer | None
        is_outside = current_graph().is_ambient
        graph = variable_graph()
        loc = graph.provenance or capture(ambient.current_scope.get())
        resolved = None if dtype is None else as_dtype(dtype)
        if isinstance(initial, Tensor):
            _check_initial(initial, loc)
            given = initial if resolved is None else initial.astype(resolved)
            kind = given.type
        elif callable(initial) and not hasattr(initial, "__array__"):
            if shape is None:
                raise ArgumentError(
                    "Variable: an initialiser needs to know the shape",
                    at=loc,
                    fix="pass shape=(…), or an array instead of the initialiser",
                )
            given = initial
            kind = TensorType(resolved or ambient.get_default_dtype(), _static(shape, loc))
        elif initial is None:
            if shape is None:
                raise ArgumentError(
                    "Variable: None is no initial value",
                    at=loc,
                    fix="pass an array, a number or an initialiser; "
                    "or a shape, for contents that are loaded or assigned",
                )
            given = None
            kind = TensorType(resolved or ambient.get_default_dtype(), _static(shape, loc))
        else:
            array = to_array(initial, resolved) if resolved else _in_default_dtype(initial, loc)
            given = array.copy()
            given.flags.writeable = False
            kind = TensorType(as_dtype(array.dtype), array.shape)
        if shape is not None and tuple(shape) != kind.shape:
            raise ShapeError(
                f"Variable: shape={tuple(shape)} but the initial value is {kind}",
                at=loc,
                fix="leave shape out: an initial value that is no initialiser has its own",
            )
        full = _full_name(graph, name, loc)
        # Quickly, for these attributes exist: see `Tensor.__setattr__`.
        _set(self, "initial", given)
        _set(self, "trainable", trainable)
        _set(self, "is_named", name is not None)
        _set(self, "is_transposed", False)
        _set(self, "origin", new_origin() if is_outside else None)
        _set(self, "is_frozen", False)
        _set(self, "_namer", full.__str__)  # fewer objects than a function takes
        node = Node(shared(VariableOp, kind.shape, kind.dtype), (), (kind,), loc, "", graph)
        super().__init__(node)
        node.adopt_outputs((self,))
        graph.append(node, (self,))
        graph.variables.append(self)
        graph._name_variable(self)

    @property
    def name(self) -> str:
        """The name: `mlp.fc2.weight`."""
        return self._namer()

    @property
    def is_trained(self) -> bool:
        """Whether optimisers change it: it is trainable, and not frozen."""
        return self.trainable and not self.is_frozen

    def rename(self, namer: Callable[[], str]) -> None:
        """Take the name from now on from a function: a layer's path is known only later."""
        _set(self, "_namer", namer)
        _set(self, "is_named", False)
        self.node.graph._name_variable(self)

    def _own_state(self) -> Any:
        """Return the attributes that a copy gets, and the name."""
        own = self.initial, self.trainable, self.is_frozen, self.is_transposed
        return *own, self.is_named, self.origin, self.name

    def _restore(self, node: Node, index: int, state: Any) -> None:
        """Become the output of a node again, with what `_own_state` returned."""
        super()._restore(node, index, state)
        self.initial, self.trainable, self.is_frozen, self.is_transposed = state[:4]
        self.is_named, self.origin, name = state[4:]
        if isinstance(self.initial, np.ndarray):
            self.initial.flags.writeable = False
        self._namer = lambda: name

    def _copied(self) -> Variable:
        """Make a variable in the open graph that begins with what this one begins with."""
        if isinstance(self.node.graph, ModelGraph):
            again, arguments = self._with_contents()
            return again(*arguments)
        graph = current_graph().root
        names = (f"{self.name}_copy{number or ''}" for number in itertools.count())
        name = next(one for one in names if graph._variable_named(one) is None)
        initial = self.initial
        if callable(initial) and not isinstance(initial, (Tensor, InitialOf)):
            initial = InitialOf(initial, lambda: self.name)
        shape = _static(self.shape, self.node.loc)
        with ambient.override(ambient.current_scope, ""):
            made = Variable(initial, name, self.trainable, shape=shape, dtype=self.dtype)
        made.is_transposed, made.is_frozen = self.is_transposed, self.is_frozen
        return made

    def _with_contents(self) -> tuple[Callable[..., Variable], tuple[Any, ...]]:
        """Return a function, and arguments, that make a variable with the present contents."""
        graph = self.node.graph
        assert isinstance(graph, ModelGraph)
        own = self.trainable, self.is_frozen, self.is_transposed
        return _made_with, (graph.session[self], self.name if self.is_named else None, *own)

    @explained
    def assign(self, value: Any) -> None:
        """Replace the contents of a variable that was made outside of any graph.

        Args:
            value: An array of the variable's shape; dtypes convert as those of feeds.

        Raises:
            ShapeError, DTypeError: It does not fit.
            GraphError: The variable is one of a graph, or a graph is being built.

        >>> import graphfw as gf
        >>> count = gf.Variable([1.0, 2.0])
        >>> count.assign([3.0, 4.0])
        >>> count.numpy()
        array([3., 4.], dtype=float32)
        """
        graph = self.node.graph
        if not current_graph().is_ambient:
            raise GraphError(
                f'"{self.name}" is assigned to while a graph is built',
                operands=[concrete.describe("variable", self)],
                fix="write gf.update(variable, value), which each run does",
            )
        if not isinstance(graph, ModelGraph):
            raise GraphError(
                f'"{self.name}" has its contents in sessions',
                operands=[concrete.describe("variable", self)],
                fix="write session[variable] = value",
            )
        graph.session[self] = value

    def __repr__(self) -> str:
        kind = "" if self.trainable else ", trainable=False"
        kind += ", frozen" if self.is_frozen else ""
        text = f'<Variable "{self.name}" {self.type}{kind}'
        contents = self.node.graph.contents_of(self)
        if contents is None:
            return f"{text}>"
        return f"{text}\n{np.array2string(contents, separator=', ')}>"


def _made_with(
    contents: Array, name: str | None, trainable: bool, is_frozen: bool, is_transposed: bool
) -> Variable:
    """Make a variable with contents: in the graph that is open, or outside of graphs."""
    with ambient.override(ambient.current_scope, ""):
        if current_graph().is_ambient:
            dtype = as_dtype(contents.dtype)
            made = Variable(None, name, trainable, shape=contents.shape, dtype=dtype)
            made.assign(contents)
        else:
            made = Variable(contents, name, trainable)
    made.is_frozen, made.is_transposed = is_frozen, is_transposed
    return made


def _full_name(graph: Graph, name: str | None, loc: Loc) -> str:
    if name is None:
        return graph.unique(ambient.join_scope(ambient.current_scope.get(), "variable"))
    full = ambient.join_scope(ambient.current_scope.get(), name)
    if full.startswith(RESERVED):
        raise ArgumentError(
            f'Variable: the name "{full}" begins with "{RESERVED}"',
            why="such names are those of a session's own entries in checkpoints",
            at=loc,
            fix="choose another name",
        )
    other = graph._variable_named(full)
    if other is not None:
        raise GraphError(
            f'a variable named "{full}" exists already',
            operands=[concrete.describe("first", other)],
            at=loc,
            fix=name_fix(other.node.loc, loc),
        )
    return full


def _static(shape: Any, loc: Loc) -> tuple[int, ...]:
    if type(shape) is tuple and all([type(dim) is int and dim >= 0 for dim in shape]):
        return shape  # quickly, what is right
    if not isinstance(shape, Sequence) or isinstance(shape, str):
        raise ShapeError(
            f"Variable: shape={shape!r} is not a sequence of dims",
            at=loc,
            fix=f"write ({shape!r},)",
        )
    if any(isinstance(dim, (Dim, str)) or dim is None for dim in shape):
        raise ShapeError(
            f"Variable: the shape {tuple(shape)} is not known when the session starts",
            at=loc,
            fix="a variable has a fixed size: use ints",
        )
    sizes = [int_or_none(dim) for dim in shape]
    if any(size is None or size < 0 for size in sizes):
        raise ShapeError(
            f"Variable: the shape {tuple(shape)} is not made of sizes",
            at=loc,
            fix="use ints that are not negative",
        )
    return tuple([size for size in sizes if size is not None])


def _in_default_dtype(value: Any, loc: Loc) -> Array:
    """Return an array; float64 and complex128, which NumPy makes unasked, in the default dtype.

    Raises:
        DTypeError: A number is beyond the default dtype.
    """
    array = to_array(value)
    default = ambient.get_default_dtype()
    if array.dtype == np.float64:
        wanted = default
    elif array.dtype == np.complex128 and default.itemsize <= 4:
        wanted = as_dtype("complex64")
    else:
        return array
    with np.errstate(over="ignore"):
        made = array.astype(wanted.dtype)
    if (np.isinf(made) & ~np.isinf(array)).any():
        raise DTypeError(
            f"Variable: a number of the {array.dtype.name} array is beyond {wanted.name}, the "
            "default dtype",
            at=loc,
            fix=f"pass dtype=gf.{array.dtype.name}",
        )
    return made


def _check_initial(initial: Tensor, loc: Loc) -> None:
    for node in ancestors([initial]):
        if SOURCE in node.op.traits and node.op.name != "constant":
            raise GraphError(
                f"Variable: the initial value depends on a {node.op.name}, "
                "which has no value when the session starts",
                operands=[concrete.describe("from", node.outputs[0])],
                at=loc,
                fix="use an array, a constant, or an initialiser such as gf.nn.init.zeros",
            )
    if not initial.type.is_static:
        raise GraphError(
            f"Variable: the size of its initial value {initial.type} is not fixed",
            at=loc,
            fix="give its dims numbers",
        )


class InitialOf:
    """An initialiser: the value that another variable begins with.

    An initialiser draws by the name of its variable, so the other's name is used.

    Args:
        initial: The other variable's initialiser.
        namer: Returns the other's name, which a layer's path may still change.
    """

    def __init__(self, initial: Initializer, namer: Callable[[], str]) -> None:
        self._initial = initial
        self._namer = namer

    def __call__(self, shape: tuple[int, ...], dtype: DType) -> Any:
        """Return the contents that the other variable's initialiser makes."""
        with ambient.override(ambient.current_scope, self._namer()):
            return self._initial(shape, dtype)

    def __getstate__(self) -> tuple[Initializer, str]:
        return self._initial, self._namer()

    def __setstate__(self, state: tuple[Initializer, str]) -> None:
        self._initial, name = state
        self._namer = lambda: name

    def __repr__(self) -> str:
        return f"InitialOf({self._namer()!r})"


class Update:
    """A promise that variables get new values at the end of a run: fetch it to make it happen.

    Attributes:
        pairs: The variables with their new values.
        loc: Where it was made.
    """

    __slots__ = ("__weakref__", "graph", "loc", "pairs")

    def __init__(self, pairs: Sequence[tuple[Variable, Tensor]], graph: Graph, loc: Loc) -> None:
        self.pairs = tuple(pairs)
        self.graph = graph
        self.loc = loc
        graph.updates.append(self)

    def settle(self, pairs: Sequence[tuple[Variable, Tensor]], graph: Graph) -> None:
        """Leave the body that it was made in, for the graph around it."""
        self.pairs = tuple(pairs)
        self.graph = graph
        graph.updates.append(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise DTypeError(
            "an Update is neither a tensor nor a number",
            fix="fetch it beside the results: session.run([y, update], feeds); "
            "the functions of loops and branches return tensors",
        )

    def __copy__(self) -> Update:
        return self  # immutable once it is made

    def __deepcopy__(self, memo: dict[int, Any]) -> Update:
        graph = self.graph
        if id(graph) not in memo and graph._is_one_open():
            return self
        copied: Graph = copy.deepcopy(graph, memo)
        return copied.updates[_number_of(self)]

    def __reduce__(self) -> tuple[Any, ...]:
        return _update_of, (self.graph, _number_of(self))

    def __repr__(self) -> str:
        names = ", ".join(f'"{v.name}"' for v, _ in self.pairs[:4])
        more = ", …" if len(self.pairs) > 4 else ""
        return f"<Update of {names}{more} at {self.loc.short()}>"


def _number_of(update: Update) -> int:
    return update.graph.updates.index(update)


def _update_of(graph: Graph, number: int) -> Update:
    return graph.updates[number]
