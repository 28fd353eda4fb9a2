"""What variables may contain: initial values, arrays that users assign, entries of checkpoints."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphfw import io
from graphfw.errors import ArgumentError, CheckpointError, DTypeError, SessionError, ShapeError
from graphfw.ir import ambient, concrete
from graphfw.ir.dtype import as_dtype
from graphfw.ir.graph import Graph
from graphfw.ir.literal import Array, entry_array, to_array
from graphfw.ir.modes import without_modes
from graphfw.ir.op import Rng
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import RESERVED, Variable
from graphfw.runtime import feeding
from graphfw.runtime.state import number_in

STEP, SEED = f"{RESERVED}step", f"{RESERVED}seed"
"""What a session's own numbers are called among the entries of a checkpoint."""
OPSET = "graphfw/opset"
"""The metadata of a session's checkpoint that names its graph's opset."""


def initial_contents(variable: Variable, seed: int) -> Array:
    """Return what a variable begins with; draws depend on the seed and the variable's name.

    Raises:
        SessionError: It has no initial value.
        ShapeError: Its initialiser gives another shape or dtype.
    """
    initial = variable.initial
    if isinstance(initial, np.ndarray):
        return initial
    if initial is None:
        raise SessionError(
            f'the variable "{variable.name}" has no initial value',
            fix="restore a checkpoint or assign it first: session[variable] = array",
        )
    if not isinstance(initial, Tensor):
        # A graph of its own, so that the draw depends on the variable's name and nothing else.
        with Graph(), without_modes(), ambient.override(ambient.current_scope, variable.name):
            made = initial(variable.shape, variable.dtype)
        initial = made if isinstance(made, Tensor) else to_array(made)
    if isinstance(initial, Tensor):
        initial = np.asarray(concrete.evaluate([initial], rng=Rng(seed, 0))[0])
    if initial.shape != variable.shape or initial.dtype != variable.dtype.dtype:
        raise ShapeError(
            f'the initialiser of "{variable.name}" gives '
            f"{initial.dtype.name}{list(initial.shape)} for {variable.type}",
            at=variable.node.loc,
        )
    return initial


def assigned_contents(variable: Variable, value: Any) -> Array:
    """Return what a user assigns to a variable, as an array of its dtype.

    Raises:
        ShapeError, DTypeError: It does not fit.
    """
    wanted = variable.dtype
    array = feeding.array_of(value)
    if array.shape != variable.shape:
        raise ShapeError(
            f'the variable "{variable.name}" is {variable.type} and is given the shape '
            f"{list(array.shape)}",
            operands=[concrete.describe("variable", variable)],
            fix="give an array of the variable's shape",
        )
    converted = feeding.converted(value, array, wanted)
    if converted is None:
        what, fix = feeding.refusal(value, array, wanted, "is given")
        raise DTypeError(
            f'the variable "{variable.name}" {what}',
            operands=[concrete.describe("variable", variable)],
            fix=fix,
        )
    return converted


def check_is_whole(source: str, metadata: Mapping[str, str]) -> None:
    """Check that a file is no PyTorch's, and that one of a session has the step and the seed.

    Args:
        source: The name of the file.
        metadata: Its metadata.

    Raises:
        CheckpointError: PyTorch's weights are in it, or a session wrote it, and one of them is
            missing.
    """
    if metadata.get("format") == "pt":
        raise CheckpointError(
            f"{source!r} holds PyTorch's weights, whose matrices may be transposed",
            fix="convert them by each layer's rule: model.load_state_dict(session, "
            'gf.io.read_checkpoint(path)[0], format="torch")',
        )
    absent = [key for key in (STEP, SEED) if key not in metadata]
    if OPSET in metadata and absent:
        raise CheckpointError(
            f"{source!r} was written by session.save and has no {' and no '.join(absent)}: "
            "it is damaged",
            fix="use another copy of the file",
        )


def warn_unverified(source: str, metadata: Mapping[str, str]) -> None:
    """Warn at the user's line that a file without checksums was read."""
    origin = "graphfw 0.1" if OPSET in metadata else "another program"
    warnings.warn(
        f"{source!r} was written by {origin}, without checksums: damage of its arrays can't be "
        "seen. session.save writes them",
        UserWarning,
        stacklevel=3,
    )


class Loaded(NamedTuple):
    """What a saved state says about the variables of a graph.

    Attributes:
        arrays: The contents of those that it has.
        mismatch: What is missing and extra.
        step: The session's step, where it says.
        seed: The session's seed, where it says.
    """

    arrays: Mapping[Variable, Array]
    mismatch: io.Mismatch
    step: int | None
    seed: int | None


def loaded(
    state: Mapping[str, Any],
    variables: Sequence[Variable],
    source: str,
    *,
    strict: bool,
    ignore_extra: bool,
) -> Loaded:
    """Return what a state holds for variables, by their names.

    Args:
        state: Arrays by name.
        variables: The variables.
        source: What errors call the state.
        strict: Whether missing and extra entries are errors.
        ignore_extra: Whether extra entries are none, even if strict.

    Raises:
        CheckpointError: Entries don't match.
        ArgumentError: The state is no dict, or one without names.
    """
    if not isinstance(state, Mapping):
        raise ArgumentError(
            f"load_state_dict: {state!r} is not a dict of arrays",
            fix="pass what session.state_dict() returned, or call session.restore(path)",
        )
    for name, value in state.items():
        if type(value).__module__.partition(".")[0] == "torch":
            raise CheckpointError(
                f"{source!r} holds PyTorch's tensors, whose matrices may be transposed",
                fix="convert them by each layer's rule: model.load_state_dict(session, state)",
            )
        if not isinstance(name, str):
            raise ArgumentError(
                f"load_state_dict: the key {name!r} is no name",
                fix="pass arrays by the names of variables, as session.state_dict() returns them",
            )
    arrays = {k: entry_array(k, v) for k, v in state.items() if k not in (STEP, SEED)}
    named = {v.name: v for v in variables}
    mismatch = io.check_entries(
        {n: (_ints(v.shape), v.dtype.name) for n, v in named.items()},
        {n: (a.shape, as_dtype(a.dtype).name) for n, a in arrays.items()},
        source=source,
        strict=strict,
        ignore_extra=ignore_extra,
    )
    return Loaded(
        {named[n]: array for n, array in arrays.items() if n in named},
        mismatch,
        number_in(state, STEP, 0, source),
        number_in(state, SEED, -(2**63), source),
    )


def _ints(shape: Sequence[Any]) -> tuple[int, ...]:
    return tuple([int(dim) for dim in shape])
