"""Calls of a `gf.function`: their arguments, the build for them, and the plan that they run."""

from __future__ import annotations

import inspect
import re
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from graphfw.errors import ArgumentError, a_type
from graphfw.hints.calls import shown_arguments
from graphfw.ir.dim import DimLike
from graphfw.ir.graph import Graph
from graphfw.ir.tensor import Tensor
from graphfw.ir.training_modes import TrainingModes
from graphfw.ir.variable import Update
from graphfw.passes.short_products import sizes_to_know
from graphfw.runtime.builds import FunctionGraph
from graphfw.runtime.plan import Plan
from graphfw.utils.nest import packer


class FunctionCall(NamedTuple):
    """The arguments of one call.

    Attributes:
        key: A key that is equal for calls that one build may serve.
        kinds: The component of the key that depends on dtypes, and on values of other arguments.
        bound: The arguments by their parameters.
        leaves: The values in the arguments, each with whether it is an array.
        names: The names of the arrays.
        arrays: The arrays.
        dims: For each dim of each array the index of its size in `sizes`; None for 1.
        sizes: The different sizes, without 1.
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
        """Return the sizes at some indices."""
        return tuple([self.sizes[number] for number in numbers])

    def sizes_to_know(self, build: TracedFunction) -> tuple[int, ...]:
        """Return the indices of sizes with which a build would compile to faster code.

        Of the first dim of arrays alone they are none: it is the batch's.
        """
        inner = {number for own in self.dims for number in own[1:]}
        numbers = {
            dim: number
            for own, tensor in zip(self.dims, build.feeds, strict=True)
            for number, dim in zip(own, tensor.shape, strict=True)
            if number is not None and number in inner
        }
        sizes = {dim: self.sizes[number] for dim, number in numbers.items()}
        return tuple(sorted([numbers[dim] for dim in sizes_to_know(build.graph, sizes)]))

    def dims_in(self, graph: Graph, fixed: Sequence[int]) -> dict[int, DimLike]:
        """Return dims by the index of their size: the sizes at the indices `fixed`, and symbols.

        A symbol has the name of the first argument with the size: `_x_0` for dim 0 of `x`.
        """
        hints: dict[int, str] = {}
        for name, own in zip(self.names, self.dims, strict=True):
            for axis, number in enumerate(own):
                if number is not None:
                    hints.setdefault(number, f"{_word(name)}_{axis}")
        return {
            number: size if number in fixed else graph.fresh_symbol(hints[number])
            for number, size in enumerate(self.sizes)
        }

    def lists_of_numbers(self) -> list[str]:
        """Return the names of arguments that are lists of numbers, perhaps in place of arrays."""
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


def _word(name: str) -> str:
    """Return the name of an argument, or of an array in it, as the start of a symbol's name."""
    is_word = name.isidentifier() and unicodedata.is_normalized("NFKC", name)
    word = name if is_word else re.sub(r"\W", "_", name, flags=re.ASCII)  # as of the key "a b"
    return word.lstrip("_") or "size"


def _is_numbers(value: object) -> bool:
    """Return whether something is a number or a list of such, however nested."""
    if isinstance(value, list):
        return all(map(_is_numbers, value))
    return isinstance(value, int | float | complex)


class TracedFunction(NamedTuple):
    """The result of calling the Python function.

    Attributes:
        graph: The graph that it has built.
        fixed: The indices of the sizes that it requires.
        feeds: The placeholders.
        returned: The function's result.
        results: The leaves of the result.
    """

    graph: FunctionGraph
    fixed: tuple[int, ...]
    feeds: list[Tensor]
    returned: Any
    results: list[Tensor | Update | None]

    @property
    def slots(self) -> list[int | None]:
        """The index of each leaf among those that are tensors; None for the others."""
        numbers = count()
        return [next(numbers) if isinstance(leaf, Tensor) else None for leaf in self.results]


class Ready(NamedTuple):
    """A build that can be run.

    Attributes:
        plan: The plan, which returns what the function returned in its structure.
        modes: The modes of modules, training or evaluation, that it serves.
    """

    plan: Plan
    modes: TrainingModes

    def is_joined(self) -> bool:
        """Return whether its session's variables belong to another session now."""
        return self.plan._runs.is_joined


def unbound_fix(signature: inspect.Signature, args: Sequence[Any]) -> str:
    """Return the fix for a call whose arguments don't fit: a batch may have to be unpacked."""
    names = list(signature.parameters)
    batch = args[0] if len(args) == 1 else None
    if isinstance(batch, Mapping) and {*names} <= {*batch}:
        return "unpack the dict, for its entries are the arguments: write **batch"
    if isinstance(batch, (list, tuple)) and len(batch) == len(names):
        return "unpack the batch, for its elements are the arguments: write *batch"
    return shown_arguments(signature)


def flatten(value: Any, name: str, leaves: list[tuple[str, Any]]) -> Hashable:
    """Collect the leaves of a structure with names, and return a key of the structure."""
    if isinstance(value, Mapping):
        children = tuple([flatten(v, f"{name}_{k}", leaves) for k, v in value.items()])
        return "dict", tuple([(type(k), k) for k in value]), children
    if isinstance(value, (list, tuple)):
        return type(value), *[flatten(v, f"{name}_{i}", leaves) for i, v in enumerate(value)]
    leaves.append((name, value))
    return None


def static_key(argument: str, value: Any) -> Hashable:
    """Return a key of an argument that is no array, equal for the values that one build serves.

    Raises:
        ArgumentError: The value can't be hashed.
    """
    if isinstance(value, (float, complex)):
        return type(value), repr(value)  # -0.0 is not 0.0, and NaN is NaN
    try:
        hash(value)
    except TypeError:
        raise ArgumentError(
            f"{argument} is {a_type(value)}, neither an array nor hashable",
            fix="pass an array, or a value that can be the key of a dict",
        ) from None
    return type(value), value  # 1 == True, but they are two values
