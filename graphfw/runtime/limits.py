"""The limits of a session: threads, bytes, precision."""

from __future__ import annotations

import math
import os
import re
from importlib import import_module
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np

from graphfw.errors import ArgumentError

if TYPE_CHECKING:
    from graphfw.passes.mixed_policy import Policy

Precision: TypeAlias = Literal["highest", "high"]
"""The precisions of products of float32."""

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {f"{unit}i": 1024**power for power, unit in enumerate("kmgt", 1)}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?i?)b?", re.IGNORECASE)


def byte_count(size: int | str | None) -> int | None:
    """Return a number of bytes from an int or a text.

    >>> byte_count("1.5 GiB"), byte_count("20MB"), byte_count(64)
    (1610612736, 20000000, 64)

    Raises:
        ArgumentError: It is none.
    """
    if size is None:
        return None
    if isinstance(size, str):
        match = _SIZE.fullmatch(size.strip())
        if match and match[2].lower() in _UNITS:
            count = float(match[1]) * _UNITS[match[2].lower()]
            if 1 <= count < math.inf:
                return int(count)
    elif is_int(size) and size > 0:
        return int(size)
    raise ArgumentError(
        f"memory_limit={size!r} is no number of bytes", fix='write "2GiB", "500MB" or an int'
    )


def checked_threads(threads: int | None) -> int | None:
    """Return a number of threads, where it is one.

    Raises:
        ArgumentError: It is none.
    """
    if threads is None or (is_int(threads) and threads > 0):
        return threads
    raise ArgumentError(f"threads={threads!r} is no number of threads", fix="pass 1 or more")


def checked_precision(precision: Precision | None) -> Precision | None:
    """Return how exact products of float32 are to be, where it is one of the choices or none.

    Raises:
        ArgumentError: It is none.
    """
    choices = get_args(Precision)
    if precision is None or precision in choices:
        return precision
    raise ArgumentError(
        f"matmul_precision={precision!r} is no precision", fix=f"there are: {', '.join(choices)}"
    )


def checked_mixed(precision: object, overrides: object) -> Policy | None:
    """Return how a session mixes precisions; None where it does not.

    Raises:
        ArgumentError, DTypeError: As `passes.mixed_policy.checked_policy` says.
    """
    if precision is None and overrides is None:
        return None
    # Not at the top: few ask for it.
    policies = import_module("graphfw.passes.mixed_policy")
    found: Policy | None = policies.checked_policy(precision, overrides)
    return found


def checked_switch(name: str, value: bool) -> bool:
    """Return whether an option is on.

    Raises:
        ArgumentError: It is neither on nor off.
    """
    if isinstance(value, (bool, np.bool)):
        return bool(value)
    raise ArgumentError(f"{name}={value!r} is neither True nor False", fix="pass one of these")


def is_int(value: object) -> bool:
    """Return whether a value is a whole number, of Python or NumPy, and no bool."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def shown_bytes(count: int) -> str:
    """Write a number of bytes for people.

    >>> shown_bytes(1536), shown_bytes(7)
    ('1.50 KiB', '7 B')
    """
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.2f} {unit}" if unit != "B" else f"{count} B"
        value /= 1024
    return f"{value:.2f} TiB"


def compiles() -> bool:
    """Return whether the environment wants compiled code, rather than the ops' own `eval`.

    Raises:
        ArgumentError: What it says is neither.
    """
    return not switched_off("GRAPHFW_JIT")


def switched_off(name: str) -> str:
    """Say that the environment switches something off; empty where it does not.

    Args:
        name: The variable that does it, by being 0.

    Raises:
        ArgumentError: It is neither 0 nor 1.
    """
    wish = os.environ.get(name, "1")
    if wish not in ("0", "1"):
        raise ArgumentError(f"{name}={wish!r} is neither 0 nor 1", fix="unset it, or set it to 0")
    return "" if wish == "1" else f"{name}=0"
