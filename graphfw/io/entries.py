"""Differences between the entries of a checkpoint and the wanted ones, and choices of them."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from graphfw.errors import ArgumentError, CheckpointError, did_you_mean

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


@dataclass(frozen=True, slots=True)
class EntryChoice:
    """A choice of entries by patterns of their names.

    A pattern is a name, a scope ("encoder" has "encoder.0.weight"), or a name with * and ?.

    Attributes:
        only: Patterns of which one must fit; all entries where there is none.
        ignore: Patterns of which none may fit.
    """

    only: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()

    def chosen(self, names: Collection[str], source: str) -> set[str]:
        """Return the chosen names.

        Args:
            names: All names, of the entries and of what they are for.
            source: Where the entries come from, for errors.

        Raises:
            CheckpointError: A pattern fits none of them.
        """
        for pattern in (*(self.only or ()), *self.ignore):
            if not any(_fits(pattern, name) for name in names):
                option = "ignore" if pattern in self.ignore else "only"
                near = did_you_mean(pattern, sorted(_with_scopes(names)))
                raise CheckpointError(
                    f'{option}="{pattern}" fits no variable and no entry of {source!r}',
                    fix=near or 'give a name, a scope, or a name with *, as in "encoder.*.weight"',
                )
        taken = names if self.only is None else [n for n in names if _fits_one(self.only, n)]
        return {name for name in taken if not _fits_one(self.ignore, name)}


def entry_choice(only: object, ignore: object) -> EntryChoice:
    """Return the choice that options describe: a pattern, several, or None for no choice.

    Raises:
        ArgumentError: One is something else.
    """
    taken = None if only is None else _patterns("only", only)
    return EntryChoice(taken, () if ignore is None else _patterns("ignore", ignore))


def _patterns(option: str, value: object) -> tuple[str, ...]:
    patterns = [value] if isinstance(value, str) else value
    if isinstance(patterns, Collection) and all(isinstance(p, str) and p for p in patterns):
        return tuple(patterns)
    raise ArgumentError(
        f"restore: {option}={value!r} is no pattern",
        fix=f'give names, scopes or names with *, as in {option}=["encoder", "*.bias"]',
    )


def _fits_one(patterns: tuple[str, ...], name: str) -> bool:
    return any(_fits(pattern, name) for pattern in patterns)


def _fits(pattern: str, name: str) -> bool:
    return name == pattern or name.startswith(f"{pattern}.") or fnmatchcase(name, pattern)


def _with_scopes(names: Collection[str]) -> set[str]:
    """Return names and the scopes in them."""
    split = [name.split(".") for name in names]
    return {".".join(words[:end]) for words in split for end in range(1, len(words) + 1)}


def check_entries(
    expected: Mapping[str, Entry],
    found: Mapping[str, Entry],
    *,
    source: str,
    strict: bool = True,
    ignore_extra: bool = False,
    renaming: str = "rename the entries",
    fitting: str = "",
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
        raise _mismatch_error(mismatch, expected, found, source, renaming, fitting)
    return mismatch


def _mismatch_error(
    mismatch: Mismatch,
    expected: Mapping[str, Entry],
    found: Mapping[str, Entry],
    source: str,
    renaming: str,
    fitting: str,
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
