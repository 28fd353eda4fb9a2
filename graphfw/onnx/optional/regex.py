"""Regular expressions as RE2 has them, matched in time that grows with the text and no faster.

Python's own look at one way after the other, of which there may be more than anybody can wait for,
and know other signs. Here all ways are followed at once: Thompson's construction (Regular
Expression Search Algorithm, 1968). Back references and looks ahead, which can't be matched so, are
errors, as they are in RE2.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

__all__ = ["Pattern", "PatternError"]

_MOST_STATES = 10_000
_MOST_REPEATS = 1000
_DEEPEST = 100
_MOST_WORK = 1 << 26
"""The most states times characters of one match."""

Range: TypeAlias = tuple[int, int]

_CLASSES: dict[str, tuple[Range, ...]] = {
    "d": ((48, 57),),
    "s": ((9, 10), (12, 13), (32, 32)),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": ((48, 57),),
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": ((48, 57), (65, 90), (95, 95), (97, 122)),
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
_ESCAPES = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_ENDS = {"A": "begin", "z": "end", "b": "word", "B": "no word"}


class PatternError(ValueError):
    """A pattern is broken, or takes too long."""


@dataclass(frozen=True)
class _Set:
    """A set of characters: one character of the text.

    Attributes:
        ranges: First and last code points.
        subsets: Sets that belong to it, too: those that are negated themselves.
        categories: The beginnings of names of Unicode's categories.
        is_negated: Whether it is all others.
        folds: Whether capital and small letters are the same.
    """

    ranges: tuple[Range, ...] = ()
    subsets: tuple[_Set, ...] = ()
    categories: tuple[str, ...] = ()
    is_negated: bool = False
    folds: bool = False

    def has(self, char: str) -> bool:
        """Return whether a character is in it."""
        forms = {char, char.lower(), char.upper()} if self.folds else {char}
        found = any(
            low <= ord(form) <= high
            for form in forms
            if len(form) == 1
            for low, high in self.ranges
        )
        found = found or any(subset.has(char) for subset in self.subsets)
        kinds = [unicodedata.category(form) for form in forms if len(form) == 1]
        found = found or any(kind.startswith(name) for kind in kinds for name in self.categories)
        return found != self.is_negated


@dataclass(frozen=True)
class _At:
    """A position in the text: "begin", "end", "line begin", "line end", "word", "no word"."""

    where: str


@dataclass(frozen=True)
class _All:
    sequence: tuple[_Node, ...]


@dataclass(frozen=True)
class _Any:
    ways: tuple[_Node, ...]


@dataclass(frozen=True)
class _Repeat:
    repeated: _Node
    least: int
    most: int | None


_Node: TypeAlias = "_Set | _At | _All | _Any | _Repeat"


@dataclass(frozen=True)
class _Flags:
    i: bool = False
    m: bool = False
    s: bool = False
    U: bool = False


class _Parser:
    """A parser of patterns, which returns a tree."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def parsed(self) -> _Node:
        found = self._any(_Flags(), 0)
        if self._at < len(self._text):
            raise PatternError("a ) closes nothing")
        return found

    def _sees(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _takes(self, text: str) -> bool:
        found = self._sees(text)
        self._at += len(text) if found else 0
        return found

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise PatternError("it ends in the middle")
        self._at += 1
        return self._text[self._at - 1]

    def _until(self, end: str) -> str:
        position = self._text.find(end, self._at)
        if position < 0:
            raise PatternError(f"{end} is missing")
        found = self._text[self._at : position]
        self._at = position + len(end)
        return found

    def _any(self, flags: _Flags, depth: int) -> _Node:
        if depth > _DEEPEST:
            raise PatternError(f"groups are nested more than {_DEEPEST} deep")
        ways: list[_Node] = []
        sequence: list[_Node] = []
        while self._at < len(self._text) and not self._sees(")"):
            if self._takes("|"):
                ways.append(_All(tuple(sequence)))
                sequence = []
            elif self._sees("(?") and not self._sees("(?P<") and not self._sees("(?<"):
                flags, group = self._flagged(flags, depth)
                if group is None and self._bounds() is not None:
                    raise PatternError("flags are repeated")
                sequence += [] if group is None else [self._repeated(group)]
            else:
                sequence += self._atom(flags, depth)
                sequence[-1:] = [self._repeated(atom) for atom in sequence[-1:]]
        ways.append(_All(tuple(sequence)))
        return ways[0] if len(ways) == 1 else _Any(tuple(ways))

    def _flagged(self, flags: _Flags, depth: int) -> tuple[_Flags, _Node | None]:
        """Parse flags for the rest of the group, or a group of its own that has some."""
        self._takes("(?")
        is_on = True
        within = flags
        while True:
            char = self._next()
            if char == ")":
                return within, None
            if char == ":":
                return flags, self._closed(within, depth)
            if char == "-" and is_on:
                is_on = False
            elif char in "imsU":
                within = replace(within, **{char: is_on})
            else:
                raise PatternError(f"(?{char} is nothing that RE2 has")

    def _closed(self, flags: _Flags, depth: int) -> _Node:
        found = self._any(flags, depth + 1)
        if not self._takes(")"):
            raise PatternError("a ( is not closed")
        return found

    def _atom(self, flags: _Flags, depth: int) -> list[_Node]:
        char = self._next()
        if char == "(":
            if self._takes("?P<") or self._takes("?<"):
                if not self._until(">").isidentifier():
                    raise PatternError("a group's name is no name; to look back is not possible")
            return [self._closed(flags, depth)]
        if char == "[":
            return [self._set(flags)]
        if char == ".":
            return [_Set(() if flags.s else ((10, 10),), is_negated=True)]
        if char in "^$":
            where = "begin" if char == "^" else "end"
            return [_At(f"line {where}" if flags.m else where)]
        self._at -= 1
        if self._bounds() is not None:
            raise PatternError(f"{char} repeats nothing")
        self._at += 1
        if char != "\\":
            return [self._one(char, flags)]
        if self._takes("Q"):
            text = self._until("\\E") if "\\E" in self._text[self._at :] else self._rest()
            return [self._one(c, flags) for c in text]
        if self._at < len(self._text) and self._text[self._at] in _ENDS:
            return [_At(_ENDS[self._next()])]
        return [replace(self._escaped(), folds=flags.i)]

    def _rest(self) -> str:
        found = self._text[self._at :]
        self._at = len(self._text)
        return found

    def _one(self, char: str, flags: _Flags) -> _Set:
        return _Set(((ord(char), ord(char)),), folds=flags.i)

    def _repeated(self, atom: _Node) -> _Node:
        bounds = self._bounds()
        if bounds is None:
            return atom
        self._takes("?")  # which way is preferred makes no difference for all of a text
        if self._bounds() is not None:
            raise PatternError("what is repeated is repeated")
        return _Repeat(atom, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._takes(sign):
                return bounds
        end = self._text.find("}", self._at)
        low, comma, high = self._text[self._at + 1 : end].partition(",") if end > 0 else ("",) * 3
        if not self._sees("{") or not _is_count(low) or (high and not _is_count(high)):
            return None
        self._at = end + 1
        least = int(low)
        most = None if comma and not high else int(high or low)
        if max(least, most or 0) > _MOST_REPEATS or (most is not None and most < least):
            raise PatternError(f"{{{low}{comma}{high}}} is not from 0 to {_MOST_REPEATS}")
        return least, most

    def _escaped(self) -> _Set:
        char = self._next()
        if char.lower() in "dsw":
            return _Set(_CLASSES[char.lower()], is_negated=char.isupper())
        if char in "pP":
            name = self._next()
            name = self._until("}") if name == "{" else name
            is_negated = (char == "P") != name.startswith("^")
            name = name.removeprefix("^")
            if len(name) not in (1, 2) or name[0] not in "LMNPSZC":
                raise PatternError(f"\\p{{{name}}}: scripts are not supported, categories are")
            return _Set(categories=(name,), is_negated=is_negated)
        code = self._code(char)
        return _Set(((code, code),))

    def _code(self, char: str) -> int:
        """Return the code point of an escape that stands for one character."""
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char == "x":
            digits = self._until("}") if self._takes("{") else self._next() + self._next()
            try:
                code = int(digits, 16)
            except ValueError:
                code = -1
            if not 0 <= code <= 0x10FFFF:
                raise PatternError(f"\\x{digits} is no character")
            return code
        if char in "01234567" and (char == "0" or self._text[self._at : self._at + 1].isdigit()):
            while len(char) < 3 and self._text[self._at : self._at + 1] in tuple("01234567"):
                char += self._next()
            return int(char, 8)
        if char.isdigit():
            raise PatternError("it refers back to a group, which RE2 does not have")
        if char.isalnum():
            raise PatternError(f"\\{char} is nothing that RE2 has")
        return ord(char)

    def _set(self, flags: _Flags) -> _Set:
        is_negated = self._takes("^")
        ranges: list[Range] = []
        subsets: list[_Set] = []
        is_first = True
        while is_first or not self._takes("]"):
            is_first = False
            if self._takes("[:"):
                is_other = self._takes("^")
                name = self._until(":]")
                if name not in _CLASSES or len(name) == 1:
                    raise PatternError(f"[:{name}:] is no class of characters")
                subsets.append(_Set(_CLASSES[name], is_negated=is_other))
                continue
            item = self._item()
            if item.ranges and self._sees("-") and not self._sees("-]"):
                self._next()
                end = self._item()
                low, high = item.ranges[0][0], end.ranges[-1][1] if end.ranges else -1
                if len(item.ranges) > 1 or len(end.ranges) != 1 or low > high:
                    raise PatternError("a range of characters has no beginning or end")
                item = _Set(((low, high),))
            if item.is_negated or item.categories:
                subsets.append(item)
            else:
                ranges += item.ranges
        return _Set(tuple(ranges), tuple(subsets), is_negated=is_negated, folds=flags.i)

    def _item(self) -> _Set:
        char = self._next()
        return self._escaped() if char == "\\" else _Set(((ord(char), ord(char)),))


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9


@dataclass
class _State:
    """A state of the automaton: it takes a character, or waits for a position, or for nothing.

    Attributes:
        takes: What it takes on its way to the next states; None for nothing.
        then: The next states.
    """

    takes: _Set | _At | None = None
    then: list[int] = field(default_factory=list)


class Pattern:
    """A pattern, ready to be compared with texts.

    Args:
        text: The pattern.

    Raises:
        PatternError: It is broken, too large, or has what RE2 does not have.
    """

    def __init__(self, text: str) -> None:
        self._states: list[_State] = [_State()]  # the first is the end
        self._known: dict[tuple[int, str], bool] = {}
        self._start = self._added(_Parser(text).parsed(), 0)

    def matches(self, text: str) -> bool:
        """Return whether all of a text is what the pattern describes.

        Raises:
            PatternError: That takes too long.
        """
        if len(text) * len(self._states) > _MOST_WORK:
            raise PatternError(f"a text of {len(text):,} characters is too long for it")
        now = self._reached({self._start}, text, 0)
        for index, char in enumerate(text, 1):
            after = {n for number in now if self._fits(number, char) for n in self._then(number)}
            now = self._reached(after, text, index)
        return 0 in now

    def _then(self, number: int) -> Iterable[int]:
        return self._states[number].then

    def _fits(self, number: int, char: str) -> bool:
        takes = self._states[number].takes
        if not isinstance(takes, _Set):
            return False
        key = number, char
        if key not in self._known:
            self._known[key] = takes.has(char)
        return self._known[key]

    def _reached(self, begin: set[int], text: str, index: int) -> set[int]:
        """Return the states that are reached without another character."""
        found = set(begin)
        open_ = list(begin)
        while open_:
            state = self._states[open_.pop()]
            takes = state.takes
            if isinstance(takes, _Set) or (takes is not None and not _is_at(takes, text, index)):
                continue
            new = [number for number in state.then if number not in found]
            found.update(new)
            open_ += new
        return found

    def _new(self, takes: _Set | _At | None, then: list[int]) -> int:
        if len(self._states) >= _MOST_STATES:
            raise PatternError(f"it has more than {_MOST_STATES:,} states")
        self._states.append(_State(takes, then))
        return len(self._states) - 1

    def _added(self, node: _Node, then: int) -> int:
        """Add the states for a node of the pattern, and return the first one."""
        if isinstance(node, (_Set, _At)):
            return self._new(node, [then])
        if isinstance(node, _All):
            for item in reversed(node.sequence):
                then = self._added(item, then)
            return then
        if isinstance(node, _Any):
            return self._new(None, [self._added(way, then) for way in node.ways])
        if node.most is None:
            again = self._new(None, [then])
            self._states[again].then.append(self._added(node.repeated, again))
            then = again
        else:
            end = then
            for _ in range(node.most - node.least):
                then = self._new(None, [self._added(node.repeated, then), end])
        for _ in range(node.least):
            then = self._added(node.repeated, then)
        return then


def _is_at(takes: _At, text: str, index: int) -> bool:
    before, after = text[index - 1 : index] if index else "", text[index : index + 1]
    if takes.where == "begin":
        return index == 0
    if takes.where == "end":
        return index == len(text)
    if takes.where == "line begin":
        return before in ("", "\n")
    if takes.where == "line end":
        return after in ("", "\n")
    word = _Set(_CLASSES["w"])
    is_end = (before != "" and word.has(before)) != (after != "" and word.has(after))
    return is_end == (takes.where == "word")
