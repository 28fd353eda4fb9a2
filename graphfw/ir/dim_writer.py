"""Symbolic sizes as text.

A size may contain a subexpression many times: of `y + min(y, 1)`, where `y` is such a size, each
step would double the text. So an atom with a long text is called by its digest, and in what people
and `parse` read by a name that is defined once: `(t0 := min(n, 1), n + t0 + min(n + t0, 1))[-1]`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphfw.ir.polynomial import Atom, composites, lone_atom, multiplied, summed, terms_of
from graphfw.utils.hashing import blake2b

if TYPE_CHECKING:
    from graphfw.ir.dim import Dim, DimLike

GROUP = 64
"""The most terms of a sum in a row. The text of a longer one is a sum of sums in brackets: Python
parses no sum of some thousand terms, as each is nested in the next."""

_LONGEST = 400
"""An atom with more characters is called by its digest."""
_DIGEST = re.compile("#[0-9a-f]{32}")


def shown(d: Dim) -> str:
    """Return the text of a size for people, which `dim_text.parse_dim` reads back."""
    text = canonical(d)
    if "#" not in text:
        return text
    atoms = composites(d)
    taken = {
        atom.text for size in (d, *[arg for a in atoms for arg in a.args]) for atom in _atoms(size)
    }
    free = (name for i in itertools.count() if (name := f"t{i}") not in taken)
    names: dict[str, str] = {}
    definitions: list[str] = []

    def named(text: str) -> str:
        return _DIGEST.sub(lambda digest: names[digest[0]], text)

    for atom in atoms:
        if _DIGEST.fullmatch(atom.text):
            definition = named(_written(atom.op, atom.args))
            names[atom.text] = next(free)
            definitions.append(f"{names[atom.text]} := {definition}")
    return f"({', '.join(definitions)}, {named(text)})[-1]"


def composed(op: str, args: Sequence[DimLike]) -> str:
    """Return the text of an atom: what is written, or its digest where that is long."""
    text = _written(op, args)
    if len(text) <= _LONGEST:
        return text
    return f"#{blake2b(text.encode(), digest_size=16).hexdigest()}"


def canonical(d: DimLike) -> str:
    """Return the text of a size, with digests in the place of long atoms; others have others."""
    if isinstance(d, int):
        return str(d)
    if d._text is None:
        d._text = _to_text(d)
    return d._text


def _written(op: str, args: Sequence[DimLike]) -> str:
    if op == "//":
        return "//".join(map(_grouped, args))
    return f"{op}({', '.join(map(canonical, args))})"


def _to_text(d: Dim) -> str:
    call = lone_atom(d, ("max", "min"))
    if call and not _DIGEST.fullmatch(call[0].text):
        atom, offset = call
        return f"{atom.op}({', '.join(canonical(arg + offset) for arg in atom.args)})"
    quotients = sorted(atom for atom in _atoms(d) if atom.op == "//")
    for atom in quotients:
        a, b = atom.args
        if not _DIGEST.fullmatch(atom.text) and _is_remainder(d, atom):
            return f"{_grouped(a)} % {_grouped(b)}"
    terms: list[tuple[bool, str]] = []
    for mono, coef in sorted(terms_of(d).items(), key=lambda term: (-len(term[0]), term[0])):
        factors = [a.text if a.op != "//" else f"({a.text})" for a in mono]
        if abs(coef) != 1 or not mono:
            factors.insert(0, str(abs(coef)))
        elif len(mono) == 1 and (len(terms) % GROUP or coef > 0):
            factors = [mono[0].text]
        terms.append((coef > 0, "*".join(factors)))
    while len(terms) > GROUP:
        groups = [terms[i : i + GROUP] for i in range(0, len(terms), GROUP)]
        terms = [(True, f"({_signed(group)})") for group in groups]
    return _signed(terms)


def _atoms(d: DimLike) -> list[Atom]:
    return [atom for mono in terms_of(d) for atom in mono]


def _is_remainder(d: Dim, quotient: Atom) -> bool:
    """Return whether a size is `a - b*(a//b)`, given the `//`."""
    a, b = map(terms_of, quotient.args)
    rest = summed([a, multiplied(b, {(quotient,): -1})])
    return {mono: coef for mono, coef in rest.items() if coef} == terms_of(d)


def _signed(terms: Sequence[tuple[bool, str]]) -> str:
    """Return terms in a row, each with whether it is added."""
    text = "".join([f" {'+' if added else '-'} {term}" for added, term in terms])
    return text.removeprefix(" + ") if terms[0][0] else "-" + text.removeprefix(" - ")


def _grouped(d: DimLike) -> str:
    lone = lone_atom(d, ("symbol", "max", "min"))
    if isinstance(d, int):
        plain = d >= 0
    elif lone is None:
        plain = False
    else:  # `max` and `min` take an offset inside, unless they are called by a digest
        atom, offset = lone
        plain = offset == 0 or (atom.op != "symbol" and not _DIGEST.fullmatch(atom.text))
    return canonical(d) if plain else f"({canonical(d)})"
