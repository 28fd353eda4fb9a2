"""Mixed precision, the policy: which operations compute in 16 bits, and what users say instead.

Each op says so itself, by its `mixed_precision`. The kinds are those of PyTorch's autocast
(https://docs.pytorch.org/docs/stable/amp.html, "CUDA Op-Specific Behavior"): sums of products are
"narrow", they gain by 16 bits and add up in float32 all the same; what moves, compares, selects, or
makes one element of a few by plain arithmetic "follows" its inputs; everything else, and whatever
says nothing, needs float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple, TypeAlias, get_args

from graphfw.errors import ArgumentError, a_type, did_you_mean
from graphfw.ir.dtype import DType, DTypeLike, as_dtype, bfloat16, float16, float32
from graphfw.ir.graph import Graph
from graphfw.ir.op import nested
from graphfw.ir.tensor import Node
from graphfw.ops.creation.inputs import AssertShape, IdentityOp, StopGradient
from graphfw.ops.shape.flip_roll import Flip
from graphfw.ops.shape.movement import BroadcastTo, PermuteDims, Reshape
from graphfw.utils.records import record

MixedName: TypeAlias = Literal["mixed-bf16", "mixed-fp16"]
"""The kinds of mixed precision."""

_DTYPES: Mapping[str, DType] = {"mixed-bf16": bfloat16, "mixed-fp16": float16}


VIEWS = (AssertShape, BroadcastTo, Flip, IdentityOp, PermuteDims, Reshape, StopGradient)
"""Ops that only rename elements: as good before a conversion as after it."""


def is_wide_operand(node: Node, number: int) -> bool:
    """Return whether an operation in 16 bits takes one of its operands in float32."""
    wide, labels = node.op.wide_operands, node.op.labels
    return bool(wide) and number < len(labels) and labels[number] in wide


class Override(NamedTuple):
    """A user's choice for some operations.

    Attributes:
        pattern: A glob over names and paths of layers.
        dtype: What they compute in.
    """

    pattern: str
    dtype: DType

    def names(self, node: Node) -> bool:
        """Return whether it speaks of what a node makes, by its name."""
        return any(tensor.name and self.speaks_of(tensor.name) for tensor in node.outputs)

    def fits(self, node: Node) -> bool:
        """Return whether it speaks of a node: by its name, or by a layer that it is in."""
        return any(map(self.speaks_of, _names(node)))

    def speaks_of(self, name: str) -> bool:
        """Return whether it fits a name."""
        return fnmatchcase(name, self.pattern)


@record
class Policy:
    """The precision in which a session computes what is described in float32.

    Attributes:
        name: "mixed-bf16" or "mixed-fp16".
        low: The dtype of 16 bits.
        overrides: What users say; of several that fit a node, the last.
    """

    name: str
    low: DType
    overrides: tuple[Override, ...] = ()

    def said(self, node: Node) -> Override | None:
        """Return the user's override for a node, if there is one."""
        return next((one for one in reversed(self.overrides) if one.fits(node)), None)

    def check(self, graph: Graph) -> None:
        """See that each override speaks of something.

        Raises:
            ArgumentError: One does not; near names are in the error.
        """
        if not self.overrides:
            return
        known = dict.fromkeys(name for node in _all_nodes(graph.nodes) for name in _names(node))
        for one in self.overrides:
            if not any(map(one.speaks_of, known)):
                pattern = one.pattern
                known.pop("", None)
                some = ", ".join([*known][:8]) + (", …" if len(known) > 8 else "")
                raise ArgumentError(
                    f"precision_overrides: nothing in this graph has a name or a layer {pattern!r}",
                    fix=did_you_mean(pattern, known, cutoff=0.4)
                    or (f"there are: {some}" if known else "name layers with gf.name_scope"),
                )


def checked_policy(precision: object, overrides: object) -> Policy | None:
    """Return the policy that a session is asked for; None where everything is as described.

    Raises:
        ArgumentError: There is no such precision, or the overrides are none.
        DTypeError: An override's dtype is none.
    """
    names = get_args(MixedName)
    if precision is None:
        if overrides is not None:
            raise ArgumentError(
                "precision_overrides: the session's precision is not mixed",
                fix=f'give it one: precision="{names[0]}"',
            )
        return None
    if not isinstance(precision, str) or precision not in names:
        near = did_you_mean(str(precision), names)
        raise ArgumentError(
            f"precision={precision!r} is no precision of sessions",
            fix=near or f"there are: {', '.join(names)}, None",
        )
    low = _DTYPES[precision]
    if overrides is not None and not isinstance(overrides, Mapping):
        raise ArgumentError(
            f"precision_overrides is {a_type(overrides)}, not a dict",
            fix='write {"decoder.*": "float32"}',
        )
    said = (overrides or {}).items()
    return Policy(precision, low, tuple([_override(key, value, low) for key, value in said]))


def _override(pattern: object, like: DTypeLike, low: DType) -> Override:
    if not isinstance(pattern, str):
        raise ArgumentError(
            f"precision_overrides: {pattern!r} is no name",
            fix='write the name of a tensor, a variable or a layer: "decoder.*"',
        )
    dtype = as_dtype(like)
    if dtype not in (float32, low):
        raise ArgumentError(
            f"precision_overrides: {pattern!r} can't be {dtype.name} here",
            fix=f'say "float32" or "{low.name}"',
        )
    return Override(pattern, dtype)


def _names(node: Node) -> Iterator[str]:
    """Yield the names of what a node makes, and of the layers that it is in: "" where it has none.

    So `*` fits every node.
    """
    if not node.name and not node.loc.layer:
        yield ""
    yield from {tensor.name: None for tensor in node.outputs if tensor.name}
    layer = node.loc.layer
    while layer:
        yield layer
        layer = layer.rpartition(".")[0]


def _all_nodes(nodes: Sequence[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        for body in nested(node.op.values):
            yield from _all_nodes(body.nodes)
