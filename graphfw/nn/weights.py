"""Weights of PyTorch's and a module's own in files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np

from graphfw import io
from graphfw.errors import ArgumentError, CheckpointError, a_type
from graphfw.ir.dtype import as_dtype
from graphfw.ir.literal import Array
from graphfw.ir.state_dict import StateDict, is_torch_tensor
from graphfw.ir.variable import Variable
from graphfw.nn import states
from graphfw.nn.interface import ModuleInterface
from graphfw.nn.weight_names import Names, renamed


def load_pytorch(
    module: ModuleInterface,
    session: Any,
    source: Any,
    names: Names | None,
    strict: bool,
    ignore_extra: bool,
) -> io.Mismatch:
    """Load weights of PyTorch's: see `Module.load_pytorch`."""
    what = f"{type(module).__name__}.load_pytorch"
    variables = dict(module.named_variables())
    if isinstance(session, str | os.PathLike | Mapping):
        raise ArgumentError(
            f"{what}: the session is {a_type(session)}",
            fix="the session comes first: load_pytorch(session, path)",
        )
    states.check_session(what, session, variables.values())
    place = "the state"
    if not isinstance(source, Mapping):
        source, place = io.read_pytorch(source), os.fspath(source)
    elif isinstance(source, StateDict) and source.known():
        raise ArgumentError(
            f"{what}: the state is one of graphfw's", fix="write load_state_dict(session, state)"
        )
    _check_is_flat(what, source)
    theirs = renamed(what, source, names)
    own = states.untied(what, module, states.from_torch(module, theirs))
    return _assign(session, variables, own, place, strict, ignore_extra)


def _assign(
    session: Any,
    variables: Mapping[str, Variable],
    own: Mapping[str, Array],
    place: str,
    strict: bool,
    ignore_extra: bool,
) -> io.Mismatch:
    """Give variables the contents of converted entries, if all fit."""
    found = {name: (array.shape, as_dtype(array.dtype).name) for name, array in own.items()}
    for name in variables.keys() & own.keys():
        if _is_wider(variables[name].dtype.dtype, own[name].dtype):
            found[name] = own[name].shape, variables[name].dtype.name
    mismatch = io.check_entries(
        {name: (_ints(v.shape), v.dtype.name) for name, v in variables.items()},
        found,
        source=place,
        strict=strict,
        ignore_extra=ignore_extra,
        renaming=_renaming(variables.keys() - own.keys(), own.keys() - variables.keys()),
    )
    contents = {
        v.name: np.asarray(own[name], v.dtype.dtype) for name, v in variables.items() if name in own
    }
    assigned: io.Mismatch = session.load_state_dict(StateDict(contents), strict=False)
    return replace(assigned, missing=mismatch.missing, extra=mismatch.extra)


def _check_is_flat(what: str, state: Mapping[str, Any]) -> None:
    """See that a state has arrays alone, and no dicts of them, as whole training states have.

    Raises:
        CheckpointError: It has other things.
    """
    other = [name for name, value in state.items() if not _is_array(value)]
    if other:
        inner = [n for n in other if isinstance(state[n], Mapping) and state[n]]
        inner = [n for n in inner if all(map(_is_array, state[n].values()))]
        raise CheckpointError(
            f'{what}: the entry "{other[0]}" is {a_type(state[other[0]])}, no array',
            fix="pass the dict of the weights"
            + (
                f": gf.io.read_pytorch(path)[{inner[0]!r}]"
                if inner
                else " alone, in PyTorch's words model.state_dict()"
            ),
        )


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic) or is_torch_tensor(value)


def _is_wider(wanted: np.dtype[Any], found: np.dtype[Any]) -> bool:
    """Return whether floats of a dtype have every value of another float dtype."""
    both = as_dtype(wanted), as_dtype(found)
    return all(dtype.is_floating for dtype in both) and np.can_cast(found, wanted, "safe")


def _renaming(missing: Set[str], extra: Set[str]) -> str:
    """Say how to map names, for a fix; with the scope that the names of one side begin with."""
    for wanted, there, is_theirs in ((missing, extra, True), (extra, missing, False)):
        for name in wanted:
            longer = (other for other in there if other.endswith(f".{name}"))
            for scope in (other.removesuffix(f".{name}") for other in longer):
                count = sum(f"{scope}.{one}" in there for one in wanted)
                if 2 * count > len(missing):
                    row = f'"{scope}": ""' if is_theirs else f'"": "{scope}"'
                    return f"pass names={{{row}}}"
    return 'map the names, as in names={"encoder.layer.{i}": "layers.{i}", "pooler": None}'


def _ints(shape: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(size) for size in shape)
