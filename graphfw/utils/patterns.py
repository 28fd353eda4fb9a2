"""Choices of names by patterns."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase

from graphfw.errors import ArgumentError, GraphfwError, did_you_mean

_SHOWN = 12
"""The number of ends of names that a fix lists at most."""


@dataclass(frozen=True, slots=True)
class NameChoice:
    """A choice of names by patterns.

    A pattern is a name, a scope ("encoder" has "encoder.0.weight"), or a name with * and ?.

    Attributes:
        only: Patterns of which one must fit; all names where there is none.
        ignore: Patterns of which none may fit.
        option: The argument that `only` was passed as, for errors.
    """

    only: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    option: str = "only"

    def chosen(self, names: Collection[str], of: str, error: type[GraphfwError]) -> set[str]:
        """Return the chosen names.

        Args:
            names: All names.
            of: A description of what has them, for errors, as in "variable of MLP".
            error: The class of errors.

        Raises:
            GraphfwError: A pattern fits none of the names; of the class that was passed.
        """
        for pattern in (*(self.only or ()), *self.ignore):
            if not any(_fits(pattern, name) for name in names):
                option = "ignore" if pattern in self.ignore else self.option
                fix = _near(pattern, names)
                raise error(f'{option}="{pattern}" fits no {of}', fix=fix)
        taken = names if self.only is None else [n for n in names if fits_one(self.only, n)]
        return {name for name in taken if not fits_one(self.ignore, name)}


def name_choice(what: str, only: object, ignore: object, option: str = "only") -> NameChoice:
    """Return the choice that arguments describe: a pattern, several, or None for no choice.

    Args:
        what: The function that was called, for errors.
        only: Patterns of what is chosen.
        ignore: Patterns of what is left out.
        option: The argument that `only` was passed as.

    Raises:
        ArgumentError: One is something else.

    >>> choice = name_choice("restore", ["encoder", "*.bias"], "encoder.0")
    >>> names = ["encoder.0.bias", "encoder.1.bias", "head.weight", "head.bias"]
    >>> sorted(choice.chosen(names, "variable", ArgumentError))
    ['encoder.1.bias', 'head.bias']
    """
    taken = None if only is None else _patterns(what, option, only)
    left_out = () if ignore is None else _patterns(what, "ignore", ignore)
    return NameChoice(taken, left_out, option)


def _patterns(what: str, option: str, value: object) -> tuple[str, ...]:
    patterns = [value] if isinstance(value, str) else value
    if isinstance(patterns, Collection) and all(isinstance(p, str) and p for p in patterns):
        return tuple(patterns)
    raise ArgumentError(
        f"{what}: {option}={value!r} is no pattern",
        fix=f'give names, scopes or names with *, as in {option}=["encoder", "*.bias"]',
    )


def fits_one(patterns: Collection[str], name: str) -> bool:
    """Return whether one of several patterns fits a name."""
    return any(_fits(pattern, name) for pattern in patterns)


def _fits(pattern: str, name: str) -> bool:
    return name == pattern or name.startswith(f"{pattern}.") or fnmatchcase(name, pattern)


def _near(pattern: str, names: Collection[str]) -> str:
    """Return the fix for a pattern that fits nothing."""
    scopes = _with_scopes(names)
    if any(_fits(f"*.{pattern}", name) for name in scopes):
        return f'write "*.{pattern}", which fits it in every scope'
    near = did_you_mean(pattern, sorted(scopes))
    if near:
        return near
    ends = sorted({name.rpartition(".")[2] for name in names} - {""})  # "" is the whole model
    shown = ", ".join(ends[:_SHOWN]) + (", …" if len(ends) > _SHOWN else "")
    return f"give a name, a scope, or a name with *; names end in {shown or 'nothing'}"


def _with_scopes(names: Collection[str]) -> set[str]:
    """Return names and the scopes in them."""
    split = [name.split(".") for name in names]
    return {".".join(words[:end]) for words in split for end in range(1, len(words) + 1)}
