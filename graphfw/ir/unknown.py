"""Errors where Python asks for a size that is not known until the graph runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from graphfw.errors import ConcreteValueError

ORIGINS: list[Callable[[str], str]] = []
"""These say where a symbol comes from, or "": `ir.graph`, of which sizes know nothing, adds one."""

_ALWAYS = "if it never changes, make it an int: gf.assert_shape"


def undecided(action: str, symbols: Iterable[str]) -> ConcreteValueError:
    """Return the error for a condition; `symbols` are the sizes that it depends on."""
    fix = f"gf.dim_size(x, axis) is a tensor, to compare for gf.where or gf.cond; {_ALWAYS}"
    return _unknown(action, symbols, fix)


def uncounted(action: str, symbols: Iterable[str]) -> ConcreteValueError:
    """Return the error for an int, such as `range` wants; otherwise as `undecided`."""
    fix = f"loop with gf.scan or gf.fori_loop, fill with gf.zeros or gf.full; {_ALWAYS}"
    return _unknown(action, symbols, fix)


def _unknown(action: str, symbols: Iterable[str], fix: str) -> ConcreteValueError:
    summary = f"cannot {action}: the size is not known until the graph runs"
    origins = [_origin(symbol) for symbol in sorted(symbols)]
    return ConcreteValueError(summary, why="; ".join(filter(None, origins)), fix=fix)


def _origin(symbol: str) -> str:
    """Return where a symbol comes from; "" where nobody knows it."""
    return next((text for origin_of in ORIGINS if (text := origin_of(symbol))), "")
