"""Weights of PyTorch's and a module's own in files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np

from graphfw import io
from graphfw.errors import ArgumentError, CheckpointError, a_type
from graphfw.ir.dtype import as_dtype
from graphfw.ir.literal import Array
from graphfw.ir.state_dict import StateDict
from graphfw.ir.variable import Variable
from graphfw.nn import states
from graphfw.nn.interface import ModuleInterface
from graphfw.nn.weight_names import Names, depth_of, inverted, renamed


def load_pytorch(
    module: ModuleInterface,
    session: Any,
    source: Any,
    names: Names | None,
    strict: bool,
    ignore_extra: bool,
) -> io.Mismatch:
    """Load weights of PyTorch's: see `Module.load_pytorch`."""
    what, variables = checked(module, session, "load_pytorch")
    location = "the state"
    if not isinstance(source, Mapping):
        source, location = io.read_pytorch(source), os.fspath(source)
    elif isinstance(source, StateDict) and source.known():
        raise ArgumentError(
            f"{what}: the state is one of graphfw's", fix="write load_state_dict(session, state)"
        )
    _check_is_flat(what, source)
    theirs = renamed(what, source, names)
    own = states.untied(what, module, states.from_torch(module, theirs))
    for name in variables.keys() & own.keys():
        own[name] = _widened(own[name], variables[name])
    if names is None and isinstance(getattr(module, "names", None), io.NameTable):
        renaming = "pass names=model.names, the model's own table"
    else:
        renaming = _renaming(variables.keys() - own.keys(), own.keys() - variables.keys())
    fitting = _fitting(variables, own)
    return _assign(session, variables, own, location, strict, ignore_extra, renaming, fitting)


def save_pytorch(module: ModuleInterface, session: Any, path: Any, names: Names | None) -> None:
    """Write weights as PyTorch has them: see `Module.save_pytorch`."""
    what, _ = checked(module, session, "save_pytorch")
    for layer in module.modules():
        _check_rules(what, type(layer))
    contents = session.state_dict()
    own = {name: contents[v.name] for name, v in states.every_name(module).items()}
    inverse = inverted(what, names)
    theirs = states.to_torch(module, own, depth_of(what, inverse))
    theirs = renamed(what, theirs, inverse)
    io.write_pytorch(path, theirs)


def _check_rules(what: str, layer: type) -> None:
    """See that what a class says of PyTorch's layouts can be undone.

    Raises:
        ArgumentError: It, or a base, defines `from_torch` and no `to_torch`.
    """
    for kind in layer.__mro__:
        if "to_torch" in vars(kind):
            return
        if "from_torch" in vars(kind):
            raise ArgumentError(
                f"{what}: {kind.__name__} defines from_torch and no to_torch",
                fix=f"define {kind.__name__}.to_torch(self, state), which undoes it",
            )


_MODULE = "graphfw/module"
"""The metadata of a module's file: the name of its class."""


def save(
    module: ModuleInterface, session: Any, path: Any, notes: Mapping[str, str] | None = None
) -> None:
    """Write a module's variables, and notes as metadata: see `Module.save`."""
    _, variables = checked(module, session, "save")
    contents = session.state_dict()
    own = {name: contents[variable.name] for name, variable in variables.items()}
    io.write_checkpoint(path, own, {_MODULE: type(module).__name__, **(notes or {})})


def load(
    module: ModuleInterface,
    session: Any,
    path: Any,
    strict: bool,
    ignore_extra: bool,
    check: Callable[[Mapping[str, str]], None] = lambda notes: None,
) -> io.Mismatch:
    """Read what `save` wrote, if its metadata pass a check: see `Module.load`."""
    _, variables = checked(module, session, "load")
    arrays, metadata, is_verified = io.read_and_verify(path)
    location = os.fspath(path)
    if _MODULE not in metadata:
        raise CheckpointError(
            f"{location!r} was not written by a module's save",
            fix="load_pytorch loads PyTorch's weights, and session.restore what session.save wrote",
        )
    if not is_verified:
        raise CheckpointError(
            f"{location!r} has lost its checksums", fix="use another copy of the file"
        )
    check(metadata)
    return _assign(session, variables, arrays, location, strict, ignore_extra)


def checked(module: ModuleInterface, session: Any, method: str) -> tuple[str, dict[str, Variable]]:
    """Return the name of a method for errors, and the module's variables.

    Raises:
        ArgumentError: The session is none, or one of another graph.
    """
    what = f"{type(module).__name__}.{method}"
    variables = dict(module.named_variables())
    if isinstance(session, str | os.PathLike | Mapping):
        raise ArgumentError(
            f"{what}: the session is {a_type(session)}",
            fix=f"the session comes first: {method}(session, path)",
        )
    states.check_session(what, session, variables.values())
    return what, variables


def _assign(
    session: Any,
    variables: Mapping[str, Variable],
    own: Mapping[str, Array],
    location: str,
    strict: bool,
    ignore_extra: bool,
    renaming: str = "rename the entries",
    fitting: str = "",
) -> io.Mismatch:
    """Give variables the contents of converted entries, if all fit."""
    mismatch = io.check_entries(
        {name: (_ints(v.shape), v.dtype.name) for name, v in variables.items()},
        {name: (array.shape, as_dtype(array.dtype).name) for name, array in own.items()},
        source=location,
        strict=strict,
        ignore_extra=ignore_extra,
        renaming=renaming,
        fitting=fitting,
    )
    contents = {v.name: own[name] for name, v in variables.items() if name in own}
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
    return hasattr(value, "__array__") or hasattr(value, "__dlpack__")


def _widened(array: Array, variable: Variable) -> Array:
    """Return floats as a variable has them, where its dtype has every value of theirs.

    What does not fit is not converted: a view that repeats elements may be larger than memory.
    """
    both = as_dtype(array.dtype), variable.dtype
    has_all = all(dtype.is_floating for dtype in both) and np.can_cast(
        both[0].dtype, both[1].dtype, "safe"
    )
    fits = has_all and array.shape == _ints(variable.shape)
    return array.astype(both[1].dtype, copy=False) if fits else array


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


def _fitting(variables: Mapping[str, Variable], own: Mapping[str, Array]) -> str:
    """Say how to make the first entry fit that does not, for a fix; "" where that is unclear."""
    for name in sorted(variables.keys() & own.keys()):
        array, wanted = own[name], variables[name]
        shape = _ints(wanted.shape)
        if array.shape == shape and as_dtype(array.dtype) is not wanted.dtype:
            return (
                f'build the model in {as_dtype(array.dtype).name}, or round "{name}" and pass a '
                f'dict: array.astype("{wanted.dtype.name}")'
            )
        if array.shape != shape:
            is_reversed = len(shape) == 2 and array.shape[::-1] == shape
            fix = f'"{name}" is not transposed there, as it would be in PyTorch: pass array.T'
            return fix if is_reversed else ""
    return ""


def _ints(shape: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(size) for size in shape)
