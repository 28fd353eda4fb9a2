"""`vmap`: a function of one example as a function of many."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphfw.errors import ArgumentError, AxisError, GraphError, ShapeError, a_type, counted
from graphfw.hints.calls import explained
from graphfw.ir.body import Body, closed, trace
from graphfw.ir.concrete import describe
from graphfw.ir.dim import Dim, DimLike
from graphfw.ir.functions import F
from graphfw.ir.graph import current_graph
from graphfw.ir.literal import PYTHON_SCALARS
from graphfw.ir.modes import as_called, unintercepted
from graphfw.ir.shape import Requirement, normalize_axis
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import TensorType
from graphfw.ops.args import as_tensor, is_whole
from graphfw.ops.batching import MappedAxis
from graphfw.ops.composed import callback, demand, demand_one_of
from graphfw.ops.control.effects import carrying, happens
from graphfw.utils import nest

RANDOMNESS = ("different", "same", "error")


@explained
def vmap(
    fn: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0, *, randomness: str = "different"
) -> Callable[..., Any]:
    """Return a function that applies `fn` along an axis of its arguments, to all at once.

    `fn` is called once, with tensors that lack that axis. Each op that it uses becomes one op for
    all examples; what does not depend on them is computed once. It may use tensors from around it,
    loops and branches, `gf.grad`, and `vmap` again; and gradients flow through the result. Names
    that `fn` gives are those of what all examples have there, with the examples along axis 0.

    Args:
        fn: Takes tensors, or nested tuples, lists and dicts of them, and returns such.
        in_axes: The axis of each positional argument along which the examples lie: an int for all,
            None for an argument that all examples share, or a tuple with an entry an argument,
            each of which may be nested like the argument. Keyword arguments lie along axis 0.
        out_axes: Where the axis is put in the results: an int, None for a result that is the same
            for all examples, or nested like the result.
        randomness: What random draws inside are: "different" in each example, the "same" in all,
            or an "error".

    Returns:
        A function of the same arguments.  [*A with N at in_axes] … -> [*B with N at out_axes] …

    Raises:
        ArgumentError: `randomness` is something else. When called: `in_axes` or `out_axes` doesn't
            fit the structure, nothing is mapped, a result is no tensor, a result with out_axes=None
            differs, or there is a draw where it is an error.
        ShapeError: When called: arguments have different sizes along the axis.
        AxisError: When called: an axis is out of range.
        GraphError: When called: an op has no batch rule.

    >>> import graphfw as gf
    >>> gf.vmap(gf.matmul, in_axes=(0, None))(gf.asarray([[1, 2], [3, 4]]), gf.asarray([1, 1]))
    Tensor([3, 7], dtype=int64)

    The gradient of each example:

    >>> w = gf.asarray([1.0, 2.0])
    >>> gf.vmap(lambda x: gf.grad(gf.sum(w * x) ** 2, w))(gf.asarray([[1.0, 0.0], [1.0, 1.0]]))
    Tensor([[2., 0.],
            [6., 6.]], dtype=float32)
    """
    fn = callback("vmap", "fn", fn, "fn(*args)")
    demand_one_of("vmap", "randomness", randomness, RANDOMNESS)

    @functools.wraps(fn)
    @unintercepted
    def mapped(*args: Any, **kwargs: Any) -> Any:
        leaves = [_taken(leaf) for leaf in _arguments(in_axes, args, kwargs)]
        pack = nest.packer((args, kwargs))
        fronts = [leaf.front for leaf in leaves if leaf.front is not None]
        returned: list[Any] = []

        def one(*tensors: Tensor) -> list[Tensor]:
            rest = iter(tensors)
            positional, named = pack(
                iter([x.value if x.front is None else next(rest) for x in leaves])
            )
            returned.append(as_called(fn)(*positional, **named))
            return [_result(leaf) for leaf in nest.leaves(returned[-1]) if leaf is not None]

        mapped_axis = MappedAxis(_common_size(leaves), randomness)
        kinds = [TensorType(t.dtype, t.shape[1:]) for t in fronts]
        traced = trace("vmap", one, kinds)
        (body,), captures = closed(*carrying(traced))
        flags = [*[True] * len(fronts), *[False] * len(captures)]
        # What has a name can be fetched, although no result needs it.
        named = [node.outputs[0] for node in traced.graph.nodes if node.name]
        whole = Body(body.parameters, (*body.outputs, *named))
        outputs, batched = mapped_axis.through(whole, (*fronts, *captures), flags, keeps_names=True)
        _check(mapped_axis)
        found = zip(outputs[: len(body.outputs)], batched, strict=False)
        results = _spread("out_axes", out_axes, returned[-1], "result")
        made = [
            None if leaf.value is None else _with_mapped_axis(mapped_axis, leaf, *next(found))
            for leaf in results
        ]
        happens([token for token, _ in found])
        values = tuple([tensor for tensor in made if tensor is not None])
        current_graph().evaluations += [
            one._replace(results=values) for one in traced.graph.evaluations
        ]
        return nest.packer(returned[-1])(iter(made))

    return mapped


class _Leaf(NamedTuple):
    """One tensor of the arguments or the results.

    Attributes:
        label: Where it stands, as errors name it.
        value: It.
        axis: Where the examples are.
        front: It as a tensor with the examples along axis 0; None for what is not mapped.
    """

    label: str
    value: Any
    axis: int | None
    front: Tensor | None = None


def _arguments(in_axes: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[_Leaf]:
    if isinstance(in_axes, (tuple, list)):
        demand(
            len(in_axes) == len(args),
            (
                f"vmap: in_axes has {counted(len(in_axes), 'entry', 'entries')} for "
                f"{counted(len(args), 'argument')}"
            ),
            fix="give each positional argument one entry; keyword arguments lie along axis 0",
        )
    else:
        in_axes = [in_axes] * len(args)
    for number, (axes, arg) in enumerate(zip(in_axes, args, strict=True)):
        yield from _spread("in_axes", axes, arg, f"args[{number}]")
    for name, arg in kwargs.items():
        yield from _spread("in_axes", 0, arg, name)


def _spread(what: str, axes: Any, value: Any, label: str) -> Iterator[_Leaf]:
    """Yield the leaves of a nested structure with their axes; `axes` may be less nested."""
    is_axis = axes is None or is_whole(axes)
    children: dict[Any, Any] | None = None
    if isinstance(value, Mapping):
        children = dict(value)
    elif isinstance(value, (tuple, list)):
        children = dict(enumerate(value))
    if is_axis:
        own = dict.fromkeys(children or (), axes)
    elif isinstance(axes, Mapping):
        own = dict(axes)
    elif isinstance(axes, (tuple, list)):
        own = dict(enumerate(axes))
    else:
        own = {}
    fits = is_axis if children is None else own.keys() == children.keys()
    demand(
        fits,
        f"vmap: {what} {axes!r} does not fit {label}, {a_type(value)}"
        + (f" with {counted(len(children), 'entry', 'entries')}" if children is not None else ""),
        fix="use an int, None, or the nesting of what it is for",
    )
    if children is None:
        yield _Leaf(label, value, axes)
        return
    for key, child in children.items():
        yield from _spread(what, own[key], child, f"{label}[{key!r}]")


def _taken(leaf: _Leaf) -> _Leaf:
    """Return an argument with its examples along axis 0, if it is mapped."""
    if leaf.axis is None or leaf.value is None:
        return leaf
    tensor = as_tensor(leaf.value)
    fix = "pass in_axes=None for it, if all examples share it"
    whole, _, key = leaf.label.rpartition("[")
    if isinstance(leaf.value, PYTHON_SCALARS) and "[" in whole and key[:-1].isdigit():
        fix += f"; to map the numbers of {whole}, pass gf.asarray({whole})"
    demand(
        tensor.ndim > 0,
        f"vmap: {leaf.label} is a scalar, which has no axis to map",
        {leaf.label: tensor},
        fix=fix,
        error=ShapeError,
    )
    return leaf._replace(front=F.moveaxis(tensor, _axis("in_axes", leaf, tensor, tensor.ndim), 0))


def _axis(what: str, leaf: _Leaf, tensor: Tensor, ndim: int) -> int:
    assert leaf.axis is not None
    try:
        return normalize_axis(leaf.axis, ndim)
    except Requirement as failed:
        raise AxisError(
            f"vmap: {what}: {failed.message}, those of {leaf.label}",
            operands=[describe(leaf.label, tensor)],
            fix=failed.fix,
        ) from None


def _common_size(leaves: Sequence[_Leaf]) -> DimLike:
    """Return how many examples there are, where all arguments say the same."""
    mapped = [(leaf, leaf.front) for leaf in leaves if leaf.front is not None]
    demand(
        bool(mapped),
        "vmap: nothing is mapped: no argument has an axis of examples",
        fix="give in_axes an int for one argument at least",
    )
    first, front = mapped[0]
    for leaf, other in mapped[1:]:
        if other.shape[0] == front.shape[0]:
            continue
        is_open = isinstance(front.shape[0], Dim) or isinstance(other.shape[0], Dim)
        raise ShapeError(
            f"vmap: {first.label} has {front.shape[0]} examples along axis {first.axis}, and "
            f"{leaf.label} {other.shape[0]} along axis {leaf.axis}",
            operands=[
                describe(first.label, as_tensor(first.value)),
                describe(leaf.label, as_tensor(leaf.value)),
            ],
            fix="if they are always equal, say so with gf.assert_shape"
            if is_open
            else "give all mapped arguments the same size, or in_axes=None for one that is shared",
        )
    return front.shape[0]


def _result(leaf: Any) -> Tensor:
    demand(
        isinstance(leaf, (Tensor, Dim, np.ndarray, *PYTHON_SCALARS)),
        f"vmap: the function returns {a_type(leaf)}, not a tensor",
        fix="return tensors, or nested tuples, lists and dicts of tensors",
    )
    return as_tensor(leaf)


def _check(mapped_axis: MappedAxis) -> None:
    """Report all nodes that could not be batched, each with its line."""
    if mapped_axis.without_rule:
        raise GraphError(
            f"vmap: no batch rule for {_names(mapped_axis.without_rule)}",
            operands=_shown(mapped_axis.without_rule),
            fix="give the op a method `batch`, or apply the function in a loop, with gf.map",
        )
    if mapped_axis.refused:
        raise ArgumentError(
            'vmap: the function draws random numbers, and randomness is "error"',
            operands=_shown(mapped_axis.refused),
            fix='say what is meant: randomness="different" or "same"',
        )


def _names(nodes: Mapping[Node, None]) -> str:
    return ", ".join(dict.fromkeys(node.op.name for node in nodes))


def _shown(nodes: Mapping[Node, None]) -> list[Any]:
    return [describe(node.op.name, node.outputs[0]) for node in nodes]


def _with_mapped_axis(
    mapped_axis: MappedAxis, leaf: _Leaf, tensor: Tensor, is_batched: bool
) -> Tensor:
    """Return a result with its examples where they are to lie."""
    if leaf.axis is None:
        demand(
            not is_batched,
            f"vmap: {leaf.label} differs from example to example, and its out_axes is None",
            {leaf.label: tensor},
            fix="give it an axis, or reduce it over the examples outside",
        )
        return tensor
    whole = mapped_axis.everywhere(tensor, is_batched)
    return F.moveaxis(whole, 0, _axis("out_axes", leaf, whole, whole.ndim))
