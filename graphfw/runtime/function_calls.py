"""Calls of a `gf.function`: the arguments sorted out, what was built for them, and what is run."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from graphfw.ir.tensor import Tensor
from graphfw.ir.training_modes import TrainingModes
from graphfw.ir.variable import Update
from graphfw.runtime.builds import FunctionGraph
from graphfw.runtime.plan import Plan
from graphfw.utils.nest import packer


class FunctionCall(NamedTuple):
    """The arguments of one call.

    Attributes:
        key: What is equal for calls that one build may serve.
        kinds: The entries of it that dtypes and the values of other arguments make.
        bound: The arguments by their parameters.
        leaves: What stands in them, and whether it is an array.
        names: What to call the arrays.
        arrays: The arrays.
        dims: For each dim of each array the number of its size among `sizes`; None for 1.
        sizes: The different sizes but 1.
    """

    key: Hashable
    kinds: Hashable
    bound: inspect.BoundArguments
    leaves: list[tuple[Any, bool]]
    names: list[str]
    arrays: list[Any]
    dims: tuple[tuple[int | None, ...], ...]
    sizes: tuple[int, ...]

    def sizes_of(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """Return the sizes of some numbers."""
        return tuple([self.sizes[number] for number in numbers])

    def lists_of_numbers(self) -> list[str]:
        """Return the names of the arguments that are lists where arrays may have been meant."""
        arguments = self.bound.arguments.items()
        return [name for name, value in arguments if isinstance(value, list) and _is_numbers(value)]

    def applied(self, fn: Callable[..., Any], tensors: Sequence[Tensor]) -> Any:
        """Call a function with tensors in the place of the arrays."""
        rest = iter(tensors)
        values = iter([next(rest) if is_array else value for value, is_array in self.leaves])
        arguments = self.bound.arguments
        bound = inspect.BoundArguments(self.bound.signature, OrderedDict())
        for name, value in arguments.items():
            bound.arguments[name] = packer(value)(values)
        return fn(*bound.args, **bound.kwargs)


def _is_numbers(value: object) -> bool:
    """Return whether something is a number or a list of such, however nested."""
    if isinstance(value, list):
        return all(map(_is_numbers, value))
    return isinstance(value, int | float | complex)


class TracedFunction(NamedTuple):
    """The result of calling the Python function.

    Attributes:
        graph: The graph that it has built.
        fixed: The numbers of the sizes that it is for only.
        feeds: The placeholders.
        returned: What the function has returned.
        results: The leaves of that.
    """

    graph: FunctionGraph
    fixed: tuple[int, ...]
    feeds: list[Tensor]
    returned: Any
    results: list[Tensor | Update | None]


class Ready(NamedTuple):
    """A build that can be run.

    Attributes:
        plan: Yields the results that are not None, then what happens besides.
        slots: For each leaf of the result its index among the values that the plan computes, or
            None where it has no value; None where the leaves are the first values.
        pack: Puts the leaves into the structure that the function returned.
        modes: Which modules it serves for training, and which for evaluation.
    """

    plan: Plan
    slots: list[int | None] | None
    pack: Callable[[Iterator[Any]], Any]
    modes: TrainingModes

    def is_joined(self) -> bool:
        """Return whether its session's variables belong to another session now."""
        return self.plan._runs.is_joined

    def packed(self, values: Sequence[Any]) -> Any:
        """Return the function's result, from the values that the plan has computed."""
        if self.slots is None:
            return self.pack(iter(values))
        return self.pack(iter([None if slot is None else values[slot] for slot in self.slots]))


def flatten(value: Any, name: str, leaves: list[tuple[str, Any]]) -> Hashable:
    """Collect what stands in a structure, with names, and return what equal structures share."""
    if isinstance(value, Mapping):
        children = tuple([flatten(v, f"{name}_{k}", leaves) for k, v in value.items()])
        return "dict", tuple([(type(k), k) for k in value]), children
    if isinstance(value, (list, tuple)):
        return type(value), *[flatten(v, f"{name}_{i}", leaves) for i, v in enumerate(value)]
    leaves.append((name, value))
    return None
