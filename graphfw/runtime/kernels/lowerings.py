"""The registry of lowerings: the functions that make native code for the nodes of an op.

A function is registered for classes of ops and one target, "numpy" or "cupy", by a decorator:
`lowers` where it makes the steps of one node, `multiplies` where it makes those of a product and of
what follows it. It is found by the class of a node's op; a derived class has a lowering of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, get_args
from weakref import WeakKeyDictionary

from graphfw.errors import ArgumentError, GraphError, a_type, did_you_mean
from graphfw.ir.op import Op
from graphfw.ir.tensor import Node
from graphfw.runtime.kernels.steps import Product, Step, View

TargetName: TypeAlias = Literal["numpy", "cupy"]

NodeSteps: TypeAlias = Callable[[Node, Sequence[View], Sequence[View], Any], Sequence[Step]]
"""`f(node, inputs, outputs, settings)`: the steps of a node, or none where it has no code."""

ProductSteps: TypeAlias = Callable[[Product, Any], Sequence[Step]]
"""`f(product, settings)`: the steps of a product and of what follows it."""

Question: TypeAlias = Callable[[Node, Any], bool]

AnySteps = TypeVar("AnySteps", bound=Callable[..., Sequence[Step]])

GROUP = "graphfw.lowerings"
"""The group of entry points by which lowerings of other packages are found, by their op's name."""


class Lowering(NamedTuple):
    """The native code of one node.

    Attributes:
        steps: The function that makes it.
        fills: Whether its steps write any view; else each output is a storage of its own.
        why_not: Says why a node has no native code; "" where that is not known.
    """

    steps: NodeSteps
    fills: bool = False
    why_not: Callable[[Node], str] | None = None


class ProductLowering(NamedTuple):
    """The native code of a product and of what follows it.

    Attributes:
        steps: The function that makes it.
        when: Whether there is code for a node.
        keeps_rows: Whether what follows may reduce the product's rows.
    """

    steps: ProductSteps
    when: Question
    keeps_rows: Question | None = None


Registered = TypeVar("Registered", Lowering, ProductLowering)

_nodes: WeakKeyDictionary[type[Op], dict[TargetName, Lowering]] = WeakKeyDictionary()
_products: WeakKeyDictionary[type[Op], dict[TargetName, ProductLowering]] = WeakKeyDictionary()
# Weak: a notebook defines an op's class again and again.


def lowers(
    *ops: type[Op],
    target: TargetName,
    fills: bool = False,
    why_not: Callable[[Node], str] | None = None,
) -> Callable[[AnySteps], AnySteps]:
    """Register a function that makes the native code of a node, for classes of ops.

    The function is called with the node, how its inputs and outputs lie in memory (a `View` each),
    and the target's settings. It returns steps, which are run in order, or none: then the node is
    computed by the op's `eval`. Plans that exist keep what they have.

    Args:
        ops: The classes.
        target: The executor that runs the code: "numpy" (LLVM) or "cupy" (CUDA).
        fills: Whether the steps write any view; else each output is a storage of its own.
        why_not: Says why a node has no native code, for reports.

    Raises:
        ArgumentError: There is no such target, or one of `ops` is no class of ops.
        GraphError: A class has another function for the target.
    """

    def register(steps: AnySteps) -> AnySteps:
        _register(_nodes, ops, target, Lowering(steps, fills, why_not))
        return steps

    return register


def multiplies(
    *ops: type[Op], target: TargetName, when: Question, keeps_rows: Question | None = None
) -> Callable[[AnySteps], AnySteps]:
    """Register a function that makes the native code of products, for classes of ops.

    Args:
        ops: The classes: of products, and of what may pool one while it is computed.
        target: As for `lowers`.
        when: `when(node, settings)`: whether the function has code for a node.
        keeps_rows: `keeps_rows(node, settings)`: whether what follows a product may reduce its
            rows; nowhere by default.
    """

    def register(steps: AnySteps) -> AnySteps:
        _register(_products, ops, target, ProductLowering(steps, when, keeps_rows))
        return steps

    return register


def lowering_of(node: Node, target: TargetName) -> Lowering | None:
    """Return the lowering of a node only, or None."""
    found = _nodes.get(type(node.op))
    return (_loaded(type(node.op)) if found is None else found).get(target)


def _loaded(cls: type[Op]) -> dict[TargetName, Lowering]:
    """Return an op's lowerings after importing the module that an entry point names for it."""
    if "." in cls.name:  # an op of another package
        # Not at the top: few programs have such ops, and reading packages' metadata is slow.
        entry_points = import_module("graphfw.runtime.entry_points")
        if cls.name in entry_points.names(GROUP):
            entry_points.load(GROUP, cls.name, "lowering", GraphError)
    return _nodes.setdefault(cls, {})  # so it is asked once


def product_lowering_of(node: Node, target: TargetName) -> ProductLowering | None:
    """Return the lowering of a node as a product, or None."""
    found = _products.get(type(node.op))
    return None if found is None else found.get(target)


def _register(
    registry: WeakKeyDictionary[type[Op], dict[TargetName, Registered]],
    ops: Sequence[type[Op]],
    target: TargetName,
    made: Registered,
) -> None:
    targets = get_args(TargetName)
    if target not in targets:
        fix = did_you_mean(target, targets) or f"there are: {', '.join(targets)}"
        raise ArgumentError(f"lowers: there is no target {target!r}", fix=fix)
    for cls in ops:
        registered: object = cls
        if not (isinstance(registered, type) and issubclass(registered, Op)):
            fix = "write the op's class: @gf.extend.lowers(Softcap, target=…)"
            raise ArgumentError(f"lowers: {a_type(registered)} is no class of ops", fix=fix)
    for cls in ops:
        known = registry.setdefault(cls, {})
        before = known.get(target)
        # The same definition may be run again, as in a notebook.
        if before is not None and _module_and_name(before.steps) != _module_and_name(made.steps):
            raise GraphError(
                f"the op {cls.name!r} has native code for {target} already: "
                f"{'.'.join(_module_and_name(before.steps))}"
            )
        known[target] = made


def _module_and_name(function: Callable[..., Any]) -> tuple[str, str]:
    return function.__module__, function.__qualname__
