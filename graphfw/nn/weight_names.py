"""Names of weights of other people's models, turned into a model's own by a table or a function."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeAlias, cast

from graphfw import io
from graphfw.errors import ArgumentError, CheckpointError, a_type, did_you_mean

Names: TypeAlias = "Mapping[str, str | None] | Callable[[str], str | None]"
"""A table from the begins of names to those of other names, or a function from name to name.

`{i}` in a begin stands for one component of a name, and in the other for the same. None leaves
entries out. Where several begins fit, that of the most components counts.
"""

_SLOT = re.compile(r"\{([^{}]*)\}")


class _Row(NamedTuple):
    """A row of a table.

    Attributes:
        begin: The begin of names.
        pattern: What matches a whole name that has it.
        target: What is written instead of the begin; None where such names are left out.
    """

    begin: str
    pattern: re.Pattern[str]
    target: str | None


def renamed(what: str, state: Mapping[str, Any], names: Names | None) -> dict[str, Any]:
    """Return entries with other names, without those that are left out.

    Raises:
        ArgumentError: The table has a row that is none, or one that fits no name.
        CheckpointError: Two entries get one name.
    """
    if names is None:
        return dict(state)
    if isinstance(names, io.NameTable):
        rename: Callable[[str], str | None] = _Table(what, names.aliases | names).rename
    else:
        rename = names if callable(names) else _Table(what, names, state).rename
    found: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name, value in state.items():
        other = rename(name)
        if other is None:
            continue
        if not isinstance(other, str):
            raise ArgumentError(
                f'{what}: names gives {a_type(other)} for "{name}"', fix="give a name, or None"
            )
        if other in found:
            raise CheckpointError(
                f'{what}: names gives "{other}" for "{origins[other]}" and for "{name}"',
                fix="leave one of them out: give None for its name",
            )
        found[other], origins[other] = value, name
    return found


def rename_with(what: str, names: Names | None) -> Callable[[str], str | None]:
    """Return a table as a function from name to name, whether or not its rows fit any.

    Raises:
        ArgumentError: The table has a row that is none.
    """
    if names is None:
        return lambda name: name
    return names if callable(names) else _Table(what, names).rename


def inverted(what: str, names: Names | None) -> Names | None:
    """Return a table that is read from right to left, or a function as it is.

    Raises:
        ArgumentError: Two rows have one right side.
    """
    if names is None or callable(names):
        return names
    inverse: dict[str, str | None] = {}
    for theirs, own in _checked(what, names).items():
        if own is None:
            continue
        if own in inverse:
            raise ArgumentError(
                f'{what}: names gives "{own}" for "{inverse[own]}" and for "{theirs}"',
                fix="leave one of these rows out",
            )
        inverse[own] = theirs
    return io.NameTable(inverse) if isinstance(names, io.NameTable) else inverse


def depth_of(what: str, names: Names | None) -> Callable[[str], int]:
    """Return a function that says how many components of a name a table speaks of, 0 for none.

    Raises:
        ArgumentError: The table has a row that is none.
    """
    if names is None or callable(names):
        return lambda name: 0
    return _Table(what, names).depth


def renaming(table: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function that renames by a table; names that no row fits stay."""
    return cast("Callable[[str], str]", _Table("renaming", table).rename)  # it leaves none out


class _Table:
    """The rows of a table, those with the longest begins first.

    Args:
        what: The function that was called.
        names: The table.
        known: The names of which each row is to fit one; None where they are not known yet.
    """

    def __init__(
        self, what: str, names: Mapping[str, str | None], known: Collection[str] | None = None
    ) -> None:
        rows = [_row(what, begin, target) for begin, target in _checked(what, names).items()]
        self._rows = sorted(rows, key=lambda row: (-_components(row.begin), row.begin.count("{")))
        for row in rows if known is not None else ():
            if not any(row.pattern.fullmatch(name) for name in known or ()):
                begins = {_first(name, _components(row.begin)) for name in known or ()}
                raise ArgumentError(
                    f'{what}: names has "{row.begin}", and no entry begins so',
                    fix=did_you_mean(row.begin, sorted(begins)) or "leave that row out",
                )

    def rename(self, name: str) -> str | None:
        """Return another name, the same one where no row fits, or None to leave the entry out."""
        for row in self._rows:
            match = row.pattern.fullmatch(name)
            if match is not None:
                begin = None if row.target is None else _filled(row.target, match)
                return None if begin is None else ".".join(filter(None, (begin, match["rest"])))
        return name

    def depth(self, name: str) -> int:
        """Return the number of components of the begin that counts for a name."""
        fitting = (row for row in self._rows if row.pattern.fullmatch(name))
        return max((_components(row.begin) for row in fitting), default=0)


def _filled(target: str, match: re.Match[str]) -> str:
    """Return the right side of a row with the components of a name that the left side has found."""
    return _SLOT.sub(lambda slot: match[f"of_{slot[1]}"], target)


def _checked(what: str, names: Any) -> Mapping[str, str | None]:
    if not isinstance(names, Mapping):
        raise ArgumentError(
            f"{what}: names is {a_type(names)}",
            fix='pass a dict, as in names={"encoder.layer.{i}": "layers.{i}"}, a table of '
            "gf.io.names_of, or a function",
        )
    for begin, target in names.items():
        if not isinstance(begin, str) or not isinstance(target, str | None):
            raise ArgumentError(
                f"{what}: names has the row {begin!r}: {target!r}",
                fix="write the begin of a name on the left, and another or None on the right",
            )
    return names


def _row(what: str, begin: str, target: str | None) -> _Row:
    slots = _SLOT.findall(begin)
    unknown = [slot for slot in _SLOT.findall(target or "") if slot not in slots]
    wrong = [slot for slot in slots if not slot.isidentifier()]
    if unknown or wrong or len(set(slots)) < len(slots):
        slot = (unknown or wrong or slots)[0]
        raise ArgumentError(
            f'{what}: names has the row "{begin}": "{target}", whose {{{slot}}} is '
            + ("not on the left" if unknown else "no name" if wrong else "there twice"),
            fix='write each once on the left, as in names={"encoder.layer.{i}": "layers.{i}"}',
        )
    literal = re.split(r"\{[^{}]*\}", begin)
    pattern = re.escape(literal[0])
    for slot, text in zip(slots, literal[1:], strict=True):
        pattern += f"(?P<of_{slot}>[^.]+)" + re.escape(text)
    rest = r"(?:\.(?P<rest>.+))?" if begin else "(?P<rest>.+)"
    return _Row(begin, re.compile(pattern + rest, re.DOTALL), target)


def _components(begin: str) -> int:
    return begin.count(".") + 1 if begin else 0


def _first(name: str, components: int) -> str:
    return ".".join(name.split(".")[:components])
