"""Branches, loops, sequences and optionals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import graphfw as gf
from graphfw.errors import ArgumentError, DTypeError, ShapeError, counted
from graphfw.ir.dim import DimLike
from graphfw.ir.tensor import Tensor
from graphfw.onnx.errors import OnnxError, ValueNeeded
from graphfw.onnx.fitting import alike, joined
from graphfw.onnx.node import Call, Value
from graphfw.onnx.table import reads

_MOST_TRIPS = 10_000
"""Of a loop that is written out trip by trip."""


@reads("If")
def _if(node: Call, condition: Tensor) -> tuple[Value, ...]:
    branches = node.attr("then_branch"), node.attr("else_branch")
    known = node.facts.value(condition)
    if known is not None:
        return tuple(node.subgraph(branches[0 if known.reshape(-1)[0] else 1], ()))
    then, otherwise = ((lambda g=g: tuple(node.subgraph(g, ()))) for g in branches)
    try:
        made: tuple[Value, ...] = gf.cond(gf.reshape(condition, ()), then, otherwise)
    except (ArgumentError, ShapeError) as error:
        raise ValueNeeded(
            "If: its branches don't fit one another, so which is taken must be known when the "
            f"model is loaded ({error.summary})",
            node.facts.inputs(condition),
        ) from error
    return made


# Loops


class _Open(Exception):
    """Whether a loop goes on depends on what its body computes."""


@reads("Loop")
def _loop(
    node: Call, trips: Tensor | None = None, go: Tensor | None = None, *carried: Value
) -> Any:
    body = node.attr("body")
    stacks = len(body.output) - 1 - len(carried)
    node.require(
        stacks >= 0,
        (
            f"its body has {counted(len(body.output), 'output')} for "
            f"{counted(len(carried), 'input')}"
        ),
    )
    made = _looped(node, trips, go, carried, _as_they_are)
    if made is not None:
        return made
    try:
        return _written_out(node, trips, go, list(carried), stacks)
    except ValueNeeded:
        made = _looped(node, trips, go, carried, _of_the_sizes_of)
        if made is None:
            raise
        return made


Carry: TypeAlias = Callable[[Sequence[Value], Sequence[Tensor]], tuple[Any, ...]]
"""From what a trip has made, and what it was given, to what is given to the next."""


def _as_they_are(made: Sequence[Value], state: Sequence[Tensor]) -> tuple[Any, ...]:
    return tuple(made)


def _of_the_sizes_of(made: Sequence[Value], state: Sequence[Tensor]) -> tuple[Any, ...]:
    """Assert that a trip leaves sizes as they are, where symbols don't show it."""
    return tuple(
        [alike(x, old) if isinstance(x, Tensor) else x for x, old in zip(made, state, strict=False)]
    )


def _looped(
    node: Call, trips: Tensor | None, go: Tensor | None, carried: Sequence[Value], carry: Carry
) -> tuple[Tensor, ...] | None:
    """Make one node of a loop, or return None where it can't be one."""
    if not all(isinstance(x, Tensor) for x in carried):
        return None
    try:
        if trips is not None and (go is None or _is_true(node, go)):
            return _counted(node, node.dim(trips, "the number of trips"), carried, carry)
    except (_Open, ShapeError, DTypeError, ValueNeeded):
        pass
    if len(node.attr("body").output) == 1 + len(carried):
        try:
            return _conditional(node, trips, go, carried, carry)
        except (ShapeError, DTypeError):
            pass
    return None


_GOES_ON = "whether it goes on"


def _is_true(node: Call, condition: Tensor) -> bool:
    known = node.facts.value(condition)
    return known is not None and bool(known.reshape(-1)[0])


def _counted(
    node: Call, trips: DimLike, carried: Sequence[Any], carry: Carry
) -> tuple[Tensor, ...]:
    """Make a loop whose number of trips is known before it begins."""

    def trip(state: tuple[Tensor, ...], number: Tensor) -> tuple[Any, Any]:
        on, *made = node.subgraph(node.attr("body"), (number, gf.constant(True), *state))
        if not isinstance(on, Tensor) or not _is_true(node, on):
            raise _Open
        return carry(made[: len(state)], state), tuple(made[len(state) :])

    last, stacked = gf.scan(trip, tuple(carried), gf.arange(trips, dtype=gf.int64))
    return (*last, *stacked)


def _conditional(
    node: Call, trips: Tensor | None, go: Tensor | None, carried: Sequence[Any], carry: Carry
) -> tuple[Tensor, ...]:
    """Make a loop that its body ends."""

    def goes_on(state: tuple[Tensor, ...]) -> Tensor:
        return state[1] if trips is None else gf.logical_and(state[1], state[0] < scalar(trips))

    def trip(state: tuple[Tensor, ...]) -> tuple[Value, ...]:
        on, *made = node.subgraph(node.attr("body"), state)
        return (state[0] + 1, scalar(node.tensor(on, _GOES_ON)), *carry(made, state[2:]))

    def scalar(x: Tensor) -> Tensor:
        return gf.reshape(x, ())

    start = gf.constant(True) if go is None else scalar(go)
    number = gf.constant(0)
    _, _, *last = gf.while_loop(goes_on, trip, (number, start, *carried))
    return tuple(last)


def _written_out(
    node: Call, trips: Tensor | None, go: Tensor | None, carried: list[Value], stacks: int
) -> tuple[Value, ...]:
    """Make the trips one by one: shapes or sequences change from trip to trip."""
    count = _MOST_TRIPS if trips is None else node.integer(trips, "the number of trips")
    on: Value = gf.constant(True) if go is None else go
    rows: list[list[Tensor]] = [[] for _ in range(stacks)]
    for number in range(count):
        if not node.known(node.tensor(on, _GOES_ON), _GOES_ON).reshape(-1)[0]:
            break
        if number == _MOST_TRIPS:
            raise OnnxError(f"Loop: more than {_MOST_TRIPS:,} trips can't be written out")
        on, *made = node.subgraph(node.attr("body"), (gf.constant(number), on, *carried))
        carried = made[: len(carried)]
        for row, value in zip(rows, made[len(carried) :], strict=True):
            row.append(node.tensor(value, "what it stacks"))
    if not all(rows):
        raise OnnxError("Loop: without trips the shapes of its stacks are not known")
    return (*carried, *[gf.stack(row) for row in rows])


@reads("Scan")
def _scan(node: Call, *inputs: Tensor) -> tuple[Tensor, ...]:
    if node.version > 8:
        return _scanned(node, inputs)
    if inputs[0] is not None:
        raise OnnxError("Scan: sequence_lens of opset 8 is not supported")
    made: tuple[Tensor, ...] = gf.vmap(lambda *each: _scanned(node, each))(*inputs[1:])
    return made


def _scanned(node: Call, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    body, count = node.attr("body"), node.attr("num_scan_inputs")
    node.require(
        0 < count <= len(inputs), f"num_scan_inputs is {count} of {counted(len(inputs), 'input')}"
    )
    states, sequences = inputs[: len(inputs) - count], inputs[len(inputs) - count :]
    outputs = len(body.output) - len(states)
    node.require(outputs >= 0, f"its body has {counted(len(body.output), 'output')}")
    name = "scan_input_directions" if node.version > 8 else "directions"
    backwards = node.numbers(name, (0,) * count)
    sequences = _laid(sequences, node.numbers("scan_input_axes", (0,) * count), backwards)

    def trip(state: tuple[Tensor, ...], each: tuple[Tensor, ...]) -> tuple[Any, Any]:
        made = node.subgraph(body, (*state, *each))
        return _of_the_sizes_of(made[: len(state)], state), tuple(made[len(state) :])

    last, stacked = gf.scan(trip, tuple(states), sequences)
    axes = node.numbers("scan_output_axes", (0,) * outputs)
    flips = node.numbers("scan_output_directions", (0,) * outputs)
    turned = [gf.flip(x, axis=0) if f else x for x, f in zip(stacked, flips, strict=True)]
    return (*last, *[gf.moveaxis(x, 0, a) for x, a in zip(turned, axes, strict=True)])


def _laid(
    sequences: Sequence[Tensor], axes: Sequence[int], flips: Sequence[int]
) -> tuple[Tensor, ...]:
    made = [gf.moveaxis(x, axis, 0) for x, axis in zip(sequences, axes, strict=True)]
    return tuple([gf.flip(x, axis=0) if f else x for x, f in zip(made, flips, strict=True)])


# Sequences: lists, whose lengths are known


@reads("SequenceEmpty", "SequenceConstruct")
def _sequence(node: Call, *items: Value) -> tuple[Value]:
    return (list(items),)


@reads("SequenceAt")
def _at(node: Call, items: list[Value], place: Tensor) -> Value:
    return items[_place(node, place, len(items))]


@reads("SequenceErase")
def _erase(node: Call, items: list[Value], place: Tensor | None = None) -> tuple[Value]:
    at = len(items) - 1 if place is None else _place(node, place, len(items))
    return (items[:at] + items[at + 1 :],)


@reads("SequenceInsert")
def _insert(
    node: Call, items: list[Value], item: Value, place: Tensor | None = None
) -> tuple[Value]:
    count = len(items)
    at = count if place is None else node.integer(place, "the place")
    if not -count <= at <= count:
        raise OnnxError(f"SequenceInsert: there is no place {at} in a sequence of {count}")
    at += count if at < 0 else 0
    return ([*items[:at], item, *items[at:]],)


def _place(node: Call, place: Tensor, count: int) -> int:
    at = node.integer(place, "the place")
    if not -count <= at < count:
        raise OnnxError(f"{node.op_type}: there is no place {at} in a sequence of {count}")
    return at % count


@reads("SequenceLength")
def _length(node: Call, items: list[Value]) -> Tensor:
    return gf.constant(len(items))


@reads("SplitToSequence")
def _split_to_sequence(node: Call, x: Tensor, sizes: Tensor | None = None) -> tuple[Value]:
    axis, size = node.attr("axis", 0), x.shape[node.attr("axis", 0)]
    if not isinstance(size, int):
        raise ShapeError(
            "SplitToSequence: the size of the axis must be known when the model is loaded",
            fix="say it when you load: shapes={name: (…)}",
        )
    if sizes is None:
        parts = gf.split(x, size, axis=axis)
        return (list(parts if node.attr("keepdims", 1) else (gf.squeeze(p, axis) for p in parts)),)
    lengths = node.ints(sizes, "the sizes")
    if not sizes.ndim:  # one size for all parts but the last
        lengths = tuple([min(lengths[0], size - at) for at in range(0, size, lengths[0])])
    places = [sum(lengths[: i + 1]) for i in range(len(lengths) - 1)]
    return (list(gf.split(x, places, axis=axis)) if places else [x],)


@reads("ConcatFromSequence")
def _concat_from_sequence(node: Call, items: list[Tensor]) -> Tensor:
    axis = node.attr("axis")
    if node.attr("new_axis", 0):
        return gf.stack(joined(items), axis=axis)
    return gf.concat(joined(items, node.axis(axis, items[0].ndim)), axis=axis)


@reads("SequenceMap")
def _sequence_map(node: Call, items: list[Value], *others: Value) -> tuple[Value, ...]:
    body = node.attr("body")
    rows = [
        node.subgraph(body, [item, *[o[i] if isinstance(o, list) else o for o in others]])
        for i, item in enumerate(items)
    ]
    return tuple([[row[i] for row in rows] for i in range(len(body.output))])


# Optionals: None, or the value


@reads("OptionalHasElement")
def _has_element(node: Call, x: Value = None) -> Tensor:
    return gf.constant(x is not None)


@reads("OptionalGetElement")
def _element(node: Call, x: Value) -> tuple[Value]:
    if x is None:
        raise OnnxError("OptionalGetElement: the optional has no value")
    return (x,)
