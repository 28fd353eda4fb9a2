"""Feeds of batches: the columns of a batch for the placeholders of a plan, or for a function."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from graphfw.errors import ArgumentError, FeedError, GraphfwError, a_type, counted
from graphfw.ir.tensor import Tensor
from graphfw.runtime import feeding
from graphfw.runtime.functions import Function
from graphfw.runtime.plan import Plan
from graphfw.utils import nest

Feed: TypeAlias = dict[Any, Any]
"""Arrays by the placeholders of a plan, in their order; or arguments by a function's parameters."""

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Fitting(ABC):
    """Makes feeds of batches."""

    @abstractmethod
    def feed(self, batch: Any, number: int) -> Feed:
        """Return a batch as a feed.

        Args:
            batch: The batch.
            number: The number of batches before it.

        Raises:
            FeedError: It does not fit.
        """

    def begin(self, first: Feed) -> None:  # noqa: B027  (not abstract: a plan is ready)
        """Prepare for runs, with the first feed."""


class PlanFitting(Fitting):
    """Makes feeds of a plan.

    Raises:
        ArgumentError: The plan has no feeds.
    """

    def __init__(self, plan: Plan) -> None:
        if not plan.program.feeds:
            raise ArgumentError(
                "feeds: the plan has no feeds", fix="compile it with feeds=[…], the placeholders"
            )
        self._plan = plan

    def feed(self, batch: Any, number: int) -> Feed:
        """Return the arrays of a batch by placeholder; see `Fitting.feed`."""
        plan = self._plan
        try:
            return dict(zip(plan.program.feeds, plan.checked(*self._columns(batch)), strict=True))
        except FeedError as error:
            if number and "dim" in error.summary:
                error.fix = (
                    f"{error.fix}; where the last batch is smaller: drop_remainder=True, or a "
                    'placeholder with a symbolic dim, gf.placeholder(("batch", …))'
                )
            raise

    def _columns(self, batch: Any) -> Sequence[Any]:
        """Return the arrays of a batch in the order of the plan's feeds."""
        placeholders = self._plan.program.feeds
        if isinstance(batch, Mapping):
            named = zip(placeholders, self._plan.feed_names, strict=True)
            return [self._column(batch, placeholder, name) for placeholder, name in named]
        if not isinstance(batch, tuple | list):
            if len(placeholders) > 1:
                raise FeedError(
                    f"it is {a_type(batch)}, and the plan has {counted(len(placeholders), 'feed')}",
                    fix="make each batch a dict by the names of the placeholders: "
                    + ", ".join(map(feeding.label, placeholders)),
                )
            return [batch]
        if len(batch) != len(placeholders):
            raise FeedError(
                f"it has {counted(len(batch), 'array')}, and the plan has "
                f"{counted(len(placeholders), 'feed')}",
                fix="give, in this order: " + ", ".join(map(feeding.label, placeholders)),
            )
        return batch

    def _column(self, batch: Mapping[Any, Any], placeholder: Tensor, name: str) -> Any:
        for key in (placeholder, name):
            if key in batch:
                return batch[key]
        raise _missing(
            batch,
            f'"{name}"' if name else feeding.label(placeholder),
            "the placeholder: gf.placeholder(…, name=…)",
        )


class FunctionFitting(Fitting):
    """Makes feeds of a function: its arguments by name.

    Raises:
        ArgumentError: The function has no parameters that have names for calls.
    """

    def __init__(self, function: Function) -> None:
        self._function = function
        self._name = getattr(function, "__name__", "the function")
        parameters = inspect.signature(function).parameters.values()
        self._named = {p.name: p for p in parameters if p.kind in _NAMED}
        self._takes_all = any([p.kind is p.VAR_KEYWORD for p in parameters])
        unnamed = [
            p.name
            for p in parameters
            if p.kind is p.VAR_POSITIONAL or (p.kind is p.POSITIONAL_ONLY and p.default is p.empty)
        ]
        if unnamed or not (self._named or self._takes_all):
            what = f"{unnamed[0]} only by position" if unnamed else "no arguments"
            raise ArgumentError(
                f"feeds: {self._name} takes {what}",
                fix=f"give it a parameter for each array of a batch: def {self._name}(x, y)",
            )

    def begin(self, first: Feed) -> None:
        """Build the function for the first feed."""
        self._function.plan(**first)

    def feed(self, batch: Any, number: int) -> Feed:
        """Return the arrays of a batch by parameter; see `Fitting.feed`."""
        return {name: self._arrays(name, value) for name, value in self._columns(batch).items()}

    def _columns(self, batch: Any) -> dict[str, Any]:
        """Return the columns of a batch by parameter."""
        if isinstance(batch, Mapping):
            return self._by_name(batch)
        columns = batch if isinstance(batch, tuple | list) else [batch]
        needed = [name for name, p in self._named.items() if p.default is p.empty]
        if not len(needed) <= len(columns) <= len(self._named):
            raise FeedError(
                f"it has {counted(len(columns), 'array')}, and {self._name} takes "
                f"{', '.join(self._named) or 'arrays by name'}",
                fix=f"give, in this order: {', '.join(self._named)}; "
                "of whole arrays, gf.data.batches((x, y), 32) makes batches"
                if needed
                else "make each batch a dict by the names of the parameters",
            )
        return dict(zip(self._named, columns, strict=False))

    def _by_name(self, batch: Mapping[Any, Any]) -> dict[str, Any]:
        found = {
            name: batch[name]
            for name in batch
            if name in self._named or (self._takes_all and isinstance(name, str))
        }
        for name, parameter in self._named.items():
            if name not in found and parameter.default is parameter.empty:
                raise _missing(batch, f'"{name}"', f"the parameter of {self._name}")
        return found

    def _arrays(self, name: str, value: Any) -> Any:
        """Return a column with arrays of NumPy for its arrays."""
        made = [self._array(path, leaf) for path, leaf in nest.paths(value, name)]
        return nest.packer(value)(iter(made))

    def _array(self, path: str, value: Any) -> Any:
        if hasattr(value, "__cuda_array_interface__"):
            return value
        if not (hasattr(value, "__array__") or hasattr(value, "__dlpack__")):
            raise FeedError(
                f"{path} is {a_type(value)}, no array",
                fix="make an array in the data: np.asarray(…, np.float32)",
            )
        try:
            return feeding.array_of(value)
        except GraphfwError as error:
            raise FeedError(f"{path}: {error.summary}", fix=error.fix) from error.__cause__


def _missing(batch: Mapping[Any, Any], wanted: str, other: str) -> FeedError:
    """Return the error of a batch that lacks a column."""
    there = ", ".join([repr(key) for key in batch]) or "none"
    return FeedError(
        f"it has nothing for {wanted}; its names are {there}",
        fix=f"rename a column of the data, or {other}",
    )
