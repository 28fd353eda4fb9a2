"""What of a saved state fits a module, and what to say of what does not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from graphfw.errors import ArgumentError, CheckpointError, a_type, did_you_mean
from graphfw.ir.dtype import as_dtype
from graphfw.ir.literal import to_array
from graphfw.ir.variable import Variable

_SHOWN = 6


def check_arguments(what: str, session: Any, state: Any) -> None:
    """See that what is to be loaded is a dict, and that the session stands before it.

    Raises:
        ArgumentError: It is none, or they are the wrong way round.
    """
    if isinstance(session, Mapping):
        raise ArgumentError(
            f"{what}: the session is {a_type(session)}",
            fix="the session comes first: load_state_dict(session, state)",
        )
    if not isinstance(state, Mapping):
        raise ArgumentError(
            f"{what}: the state is {a_type(state)}, not a dict of arrays",
            fix="pass what state_dict(session) returned",
        )


def differing(
    what: str, wanted: Iterable[str], state: Mapping[str, Any], strict: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names that a state lacks, and those that it has besides, each in order.

    Raises:
        CheckpointError: There are some, and `strict` says that there may be none.
    """
    names = set(wanted)
    missing = tuple(sorted(names - state.keys()))
    extra = tuple(sorted(state.keys() - names))
    if strict and (missing or extra):
        hints = [(name, did_you_mean(name, missing)) for name in extra[:_SHOWN]]
        near = [f'"{name}": {hint}' for name, hint in hints if hint]
        raise CheckpointError(
            f"{what}: missing {_listed(missing)}, extra {_listed(extra)}",
            fix=near[0] if near else "pass strict=False to leave these out",
        )
    return missing, extra


def fitting_fix(variables: Mapping[str, Variable], state: Mapping[str, Any]) -> str:
    """Say how to make the first array that does not fit its variable do so, or nothing."""
    for name, variable in variables.items():
        if name not in state:
            continue
        array, kind = to_array(state[name]), variable.dtype
        is_kind = as_dtype(array.dtype) is kind
        if array.shape == variable.shape and not is_kind:
            return f'convert "{name}": pass array.astype("{kind.name}")'
        if array.shape != variable.shape:
            turned = is_kind and array.shape[::-1] == variable.shape
            return f'"{name}" is the other way round, as in PyTorch: pass array.T' if turned else ""
    return ""


def _listed(names: Sequence[str]) -> str:
    if not names:
        return "none"
    return ", ".join(f'"{n}"' for n in names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
