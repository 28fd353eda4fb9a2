"""Differences between the entries of a checkpoint and the wanted ones."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from graphfw.errors import CheckpointError, did_you_mean

_SHOWN = 8

Entry = tuple[tuple[int, ...], str]
"""Shape and dtype name of one entry, as in `((10, 64), "float32")`."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The differences between the entries of a file and the wanted ones, by name and in order.

    Attributes:
        missing: Wanted, but not in the file.
        extra: In the file, but not wanted.
        mismatched: In both, with another shape or dtype.
    """

    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    mismatched: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Restored(Mismatch):
    """The result of reading a checkpoint.

    Attributes:
        metadata: What `session.save` was given to keep beside the variables.
    """

    metadata: Mapping[str, Any] = field(default_factory=dict)


def check_entries(
    expected: Mapping[str, Entry],
    found: Mapping[str, Entry],
    *,
    source: str,
    strict: bool = True,
    ignore_extra: bool = False,
    renaming: str = "rename the entries",
    fitting: str = "",
    lacking: str = "",
) -> Mismatch:
    """Compare names, shapes and dtypes; say everything that differs in one error.

    Args:
        expected: Shape and dtype name of each entry wanted.
        found: The same of each entry there is.
        source: What messages call the location `found` comes from, such as a file's name.
        strict: Whether missing and extra entries are errors. A wrong shape or dtype always is.
        ignore_extra: Whether extra entries are none, even if strict.
        renaming: How to rename entries, for the fix.
        fitting: How to make entries of a wrong shape or dtype fit, for the fix, if it is known.
        lacking: What may make what only the extra entries have, for the fix, if it is known.

    Returns:
        What differs and is no error: the missing and the extra names, as far as they may be.

    Raises:
        CheckpointError: An error lists up to 8 names of each kind, and for a missing name the
            nearest extra one.

    >>> check_entries({"w": ((2,), "float32")}, {}, source="a.safetensors", strict=False)
    Mismatch(missing=('w',), extra=(), mismatched=())
    """
    mismatch = Mismatch(
        missing=tuple(sorted(expected.keys() - found.keys())),
        extra=tuple(sorted(found.keys() - expected.keys())),
        mismatched=tuple(
            sorted(name for name in expected.keys() & found.keys() if expected[name] != found[name])
        ),
    )
    refused = mismatch.missing or (mismatch.extra and not ignore_extra)
    if mismatch.mismatched or (strict and refused):
        raise _mismatch_error(mismatch, expected, found, source, renaming, fitting, lacking)
    return mismatch


def _mismatch_error(
    mismatch: Mismatch,
    expected: Mapping[str, Entry],
    found: Mapping[str, Entry],
    source: str,
    renaming: str,
    fitting: str,
    lacking: str,
) -> CheckpointError:
    counts = {
        "missing": len(mismatch.missing),
        "extra": len(mismatch.extra),
        "mismatched": len(mismatch.mismatched),
    }
    summary = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    lines = [f"the entries of {source!r} are not the expected ones: {summary}"]
    lines += _listing(
        "missing",
        mismatch.missing,
        lambda name: f"{_show(expected[name])}{_near_extra(name, mismatch, expected, found)}",
    )
    lines += _listing("extra", mismatch.extra, lambda name: _show(found[name]))
    lines += _listing(
        "mismatched",
        mismatch.mismatched,
        lambda name: f"expected {_show(expected[name])}, found {_show(found[name])}",
    )
    if mismatch.mismatched:
        fix = fitting or (
            "build the graph with the shapes and dtypes of the checkpoint, or load another one"
        )
    elif not mismatch.missing:
        fix = "pass ignore_extra=True to leave out what the graph does not have"
        fix = f"{lacking}; or {fix}" if lacking else fix
    else:
        fix = f"{renaming}, or pass strict=False to keep what is missing and ignore the rest"
    return CheckpointError("\n".join(lines), fix=fix)


def _listing(kind: str, names: tuple[str, ...], describe: Callable[[str], str]) -> list[str]:
    lines = [f"  {kind:<10}  {name!r}  {describe(name)}" for name in names[:_SHOWN]]
    if len(names) > _SHOWN:
        lines.append(f"  {kind:<10}  and {len(names) - _SHOWN} more")
    return lines


def _near_extra(
    name: str, mismatch: Mismatch, expected: Mapping[str, Entry], found: Mapping[str, Entry]
) -> str:
    # An extra entry that would fit is the better guess, even where another name is nearer.
    fitting = [extra for extra in mismatch.extra if found[extra] == expected[name]]
    hint = did_you_mean(name, fitting) or did_you_mean(name, mismatch.extra)
    return f"  {hint}" if hint else ""


def _show(entry: Entry) -> str:
    return f"{entry[1]}[{', '.join(map(str, entry[0]))}]"
