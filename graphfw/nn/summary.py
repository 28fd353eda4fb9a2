"""`Module.summary`: a table of the layers of a model, with what they return in a call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Number
from typing import Any, NamedTuple

from graphfw.ir import ambient
from graphfw.ir.dim import Dim
from graphfw.ir.graph import Graph
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import TensorType
from graphfw.ir.variable import Variable
from graphfw.ir.views import number, table
from graphfw.nn.interface import ModuleInterface
from graphfw.ops.creation.inputs import placeholder
from graphfw.ops.specs import is_pair, read
from graphfw.utils import nest


class LayerSummary(NamedTuple):
    """A layer in a `ModuleSummary`.

    Attributes:
        path: Where it stands, as in the names of its variables: `model.encoder.fc1`.
        kind: Its class.
        output: The types of what it returns in the first call, nested like that; None where it is
            not called, or returns no tensor.
        calls: The number of times that it is called.
        parameters: The number of elements of its variables, without those of its submodules. A
            variable of several layers counts in the first.
        trained: The number of these that are trained.
    """

    path: str
    kind: str
    output: Any
    calls: int
    parameters: int
    trained: int


class ModuleSummary:
    """The layers of a model with what they return in a call: the result of `Module.summary`.

    Attributes:
        rows: A `LayerSummary` for the model, its submodules, theirs, and so on.
        parameters: The number of elements of all variables.
        trained: The number of these that are trained.
    """

    def __init__(self, rows: Sequence[LayerSummary]) -> None:
        self.rows = tuple(rows)
        self.parameters = sum([row.parameters for row in rows])
        self.trained = sum([row.trained for row in rows])

    def __repr__(self) -> str:
        lines = [
            (row.path, row.kind, _output_text(row), number(row.parameters), number(row.trained))
            for row in self.rows
        ]
        lines.append(("total", "", "", number(self.parameters), number(self.trained)))
        return table(("layer", "class", "output", "parameters", "trained"), lines, left=3)


class _Aside(Graph):
    """A graph whose nodes take tensors of other graphs, which know nothing of it."""

    def reads(self, tensor: Tensor) -> bool:
        return not tensor.graph.is_ambient

    def succeeds(self, other: Graph) -> bool:
        del other
        return True


def summarised(
    module: ModuleInterface, graph: Graph, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> ModuleSummary:
    """Return the summary of a call of a module of a graph: see `Module.summary`."""
    # By id: a class of the user's may compare.
    outputs: dict[int, list[Any]] = {id(m): [] for m in module.modules()}

    def note(called: ModuleInterface, result: Any) -> None:
        if id(called) in outputs:  # others are made by the call, and gone after it
            outputs[id(called)].append(_types(result))

    with (
        _restored(module),
        _Aside(opset=graph.opset),
        ambient.override(ambient.current_scope, ""),
        ambient.override(ambient.call_watcher, note),
    ):
        given = [_argument(value, f"x{i}") for i, value in enumerate(args)]
        module(*given, **{name: _argument(value, name) for name, value in kwargs.items()})
        return ModuleSummary([*_rows(module, outputs)])


def _rows(module: ModuleInterface, outputs: Mapping[int, Sequence[Any]]) -> Iterator[LayerSummary]:
    counted: set[int] = set()
    for submodule in module.modules():
        named = submodule._held_variables()
        own = [v for name, v in named if "." not in name and id(v) not in counted]
        counted.update(map(id, own))
        found = outputs.get(id(submodule), [])
        yield LayerSummary(
            submodule.path,
            type(submodule).__name__,
            found[0] if found else None,
            len(found),
            sum([_size(v) for v in own]),
            sum([_size(v) for v in own if v.is_trained]),
        )


def _size(variable: Variable) -> int:
    size = variable.type.size
    assert isinstance(size, int)  # a variable has a fixed size
    return size


@contextmanager
def _restored(module: ModuleInterface) -> Iterator[None]:
    """Give modules back the attributes that they have now, and plain containers what they hold.

    A `forward` may keep tensors there, and those of this call belong to no graph of the user's.
    """
    attributes = [(vars(m), dict(vars(m))) for m in module.modules()]
    values = [value for _, before in attributes for value in before.values()]
    lists = [(value, list(value)) for value in values if isinstance(value, list)]
    dicts = [(value, dict(value)) for value in values if isinstance(value, dict)]
    try:
        yield
    finally:
        for now, before in (*attributes, *dicts):
            for name in now.keys() - before.keys():
                del now[name]
            now.update(before)
        for found, contents in lists:
            found[:] = contents


def _argument(value: Any, name: str) -> Any:
    """Return an argument of the call, with placeholders where it has types."""
    if isinstance(value, Tensor):
        return value
    if _is_shape(value):
        return placeholder(value, name=name)
    if isinstance(value, TensorType) or is_pair(value) or hasattr(value, "__array__"):
        return read("summary", value, name, placeholder)
    if isinstance(value, Mapping):
        return {key: _argument(one, f"{name}_{key}") for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        made = [_argument(one, f"{name}_{i}") for i, one in enumerate(value)]
        return made if isinstance(value, list) else getattr(type(value), "_make", tuple)(made)
    return value


def _is_shape(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(
        [d is None or isinstance(d, (str, Dim, Number)) for d in value]
    )


def _types(result: Any) -> Any:
    """Return a nested result with types in place of its tensors, and None in place of the rest."""
    leaves = nest.leaves(result)
    return nest.packer(result)(iter([t.type if isinstance(t, Tensor) else None for t in leaves]))


def _output_text(row: LayerSummary) -> str:
    if not row.calls:
        return "not called"
    return f"{row.output} × {row.calls}" if row.calls > 1 else str(row.output)
