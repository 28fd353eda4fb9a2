"""The contents of variables: initial values, arrays that users assign, entries of checkpoints."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphfw import io
from graphfw.errors import ArgumentError, CheckpointError, DTypeError, SessionError, ShapeError
from graphfw.ir import ambient, concrete
from graphfw.ir.arrays import entry_array, to_array
from graphfw.ir.dtype import as_dtype
from graphfw.ir.graph import Graph
from graphfw.ir.literal import Array
from graphfw.ir.modes import without_modes
from graphfw.ir.op import RANDOM, Rng
from graphfw.ir.state_dict import StateDict, is_torch_tensor, refuse_square
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import TensorType
from graphfw.ir.variable import INITIALIZERS, RESERVED, Initializer, Variable
from graphfw.ir.walk import ancestors
from graphfw.loc import capture
from graphfw.runtime import feeding
from graphfw.runtime.state import number_in
from graphfw.utils.patterns import NameChoice

STEP, SEED = f"{RESERVED}step", f"{RESERVED}seed"
"""The names of a session's own numbers among the entries of a checkpoint."""
OPSET = "graphfw/opset"
"""The metadata of a session's checkpoint that names its graph's opset."""
METADATA = "graphfw/metadata"
"""The metadata of a session's checkpoint that a user has given, as JSON."""


class InitialContents:
    """Makes what variables begin with; draws depend on a seed and on the variables' names.

    An initialiser of graphfw's own is asked once for all variables of one shape and dtype: what it
    describes follows from these and from its options.
    """

    def __init__(self, seed: int) -> None:
        self._rng = Rng(seed, 0)
        self._own: dict[tuple[str, TensorType], Tensor] = {}

    def of(self, variable: Variable) -> Array:
        """Return the initial contents of a variable.

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
            initial = self._filled(initial, variable)
        if isinstance(initial, Tensor):
            initial = _evaluated(initial, {}, self._rng_of(variable))
        if initial.shape != variable.shape or initial.dtype != variable.dtype.dtype:
            raise ShapeError(
                f'the initialiser of "{variable.name}" gives '
                f"{initial.dtype.name}{list(initial.shape)} for {variable.type}",
                at=variable.node.loc,
            )
        return initial

    def _filled(self, initialiser: Initializer, variable: Variable) -> Tensor | Array:
        """Return an initialiser's contents for a variable, described once for all like it."""
        text, origin = _text_of_own(initialiser), variable.origin
        scope = variable.name if origin is None else origin.key
        if not text:
            return _described(initialiser, variable, scope)
        key = text, variable.type
        described = self._own.get(key)
        if described is None:
            made = _described(initialiser, variable, "")
            assert isinstance(made, Tensor)  # as those of graphfw's own do
            described = self._own[key] = made
        rng = self._rng_of(variable)
        return _evaluated(described, _drawn(described, scope, rng), rng)

    def _rng_of(self, variable: Variable) -> Rng:
        return self._rng if variable.origin is None else Rng(variable.origin.seed, 0)


def _evaluated(tensor: Tensor, contents: Mapping[Tensor, Array], rng: Rng) -> Array:
    return np.asarray(concrete.evaluate([tensor], rng=rng, given=contents)[0])


def _drawn(described: Tensor, scope: str, rng: Rng) -> dict[Tensor, Array]:
    """Return the draws below a tensor that was described in no name scope, as in this one."""
    values: dict[Tensor, Array] = {}
    for node in ancestors([described]):
        if RANDOM in node.op.traits:
            fields = dict(zip(node.op.fields, node.op.values, strict=True))
            op = type(node.op)(**{**fields, "key": scope + fields["key"]})
            values[node.outputs[0]] = op.eval(np, rng=rng)
    return values


def _described(initialiser: Initializer, variable: Variable, scope: str) -> Tensor | Array:
    """Return the contents that an initialiser makes for a variable."""
    # A graph of its own, so that draws depend on the name scope and nothing else.
    with Graph(), without_modes(), ambient.override(ambient.current_scope, scope):
        made = initialiser(variable.shape, variable.dtype)
    return made if isinstance(made, Tensor) else to_array(made)


def _text_of_own(initialiser: Initializer) -> str:
    """Return the text of one of graphfw's own initialisers; "" for others.

    Initialisers of one text do the same: their options are plain, so the text says them exactly.
    """
    kind = type(initialiser)
    is_own = INITIALIZERS.get(kind.__name__) is kind
    is_plain = is_own and all([type(v) in _PLAIN for v in vars(initialiser).values()])
    return repr(initialiser) if is_plain else ""


_PLAIN = (bool, int, float, str)


def assigned_contents(variable: Variable, value: Any) -> Array:
    """Return the contents that a user assigns to a variable, as an array of its dtype.

    Raises:
        ShapeError, DTypeError: It does not fit.
        ArgumentError: It is a tensor of PyTorch's that may be transposed.
    """
    wanted = variable.dtype
    if variable.is_transposed:
        refuse_square(f'the variable "{variable.name}"', value)
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


def _check_is_whole(source: str, metadata: Mapping[str, str]) -> None:
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
            fix="layers convert them: model.load_pytorch(session, path)",
        )
    absent = [key for key in (STEP, SEED) if key not in metadata]
    if OPSET in metadata and absent:
        raise CheckpointError(
            f"{source!r} was written by session.save and has no {' and no '.join(absent)}: "
            "it is damaged",
            fix="use another copy of the file",
        )


class StateFile(NamedTuple):
    """The contents of a checkpoint.

    Attributes:
        state: The arrays by name, the step and the seed.
        metadata: What the user has kept beside them.
        unverified: A warning if the file has no checksums, "" if it has.
    """

    state: dict[str, Any]
    metadata: dict[str, Any]
    unverified: str


def read_state(path: str | os.PathLike[str]) -> StateFile:
    """Read a checkpoint.

    Raises:
        CheckpointError: It can't be read, it is damaged, or `_check_is_whole` refuses it.
    """
    arrays, metadata, verified = io.read_and_verify(path)
    source = os.fspath(path)
    _check_is_whole(source, metadata)
    numbers = {key: metadata[key] for key in (STEP, SEED) if key in metadata}
    origin = "graphfw 0.1" if OPSET in metadata else "another program"
    unverified = (
        f"{source!r} was written by {origin}, without checksums: damage of its arrays can't be "
        "seen. session.save writes them"
    )
    notes = io.from_text(metadata[METADATA], source) if METADATA in metadata else {}
    return StateFile({**arrays, **numbers}, notes, "" if verified else unverified)


def kept_metadata(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the metadata that a user has kept in a checkpoint, without reading its arrays.

    Raises:
        CheckpointError: It can't be read, or it is damaged.
    """
    text = io.read_metadata(path).get(METADATA)
    return {} if text is None else io.from_text(text, os.fspath(path))


def warn_unverified(text: str) -> None:
    """Warn at the user's line, if there is something to warn of."""
    if text:
        here = capture()
        warnings.warn_explicit(text, UserWarning, here.file, here.line)


class Loading(NamedTuple):
    """The options of loading a state.

    Attributes:
        source: What errors call the state.
        strict: Whether missing and extra entries are errors.
        ignore_extra: Whether extra entries are none, even if strict.
        format: "graphfw" where the user says that it has graphfw's layouts.
        choice: The variables and entries that are looked at; None for all. The others stay.
    """

    source: str
    strict: bool
    ignore_extra: bool
    format: str | None
    choice: NameChoice | None = None


class LoadedContents(NamedTuple):
    """The contents that a saved state has for the variables of a graph.

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
    state: Mapping[str, Any], variables: Sequence[Variable], how: Loading, lacking: str = ""
) -> LoadedContents:
    """Return the contents that a state holds for variables, by their names.

    Raises:
        CheckpointError: Entries don't match, or may be laid out as PyTorch's are.
        ArgumentError: The state is no dict, or one without names, or there is no such format.
    """
    source = how.source
    if not isinstance(state, Mapping):
        raise ArgumentError(
            f"load_state_dict: {state!r} is not a dict of arrays",
            fix="pass what session.state_dict() returned, or call session.restore(path)",
        )
    if how.format not in (None, "graphfw"):
        raise ArgumentError(
            f'a session\'s state has the format "graphfw", and not {how.format!r}',
            fix='layers convert PyTorch\'s: model.load_state_dict(session, state, format="torch")',
        )
    for name, value in state.items():
        if is_torch_tensor(value):
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
    has_all = how.choice is None or how.choice.only is None
    if how.choice is not None:
        of = f"variable and no entry of {source!r}"
        chosen = how.choice.chosen({*named, *arrays}, of, CheckpointError)
        arrays = {name: array for name, array in arrays.items() if name in chosen}
        named = {name: variable for name, variable in named.items() if name in chosen}
    mismatch = io.check_entries(
        {n: (_ints(v.shape), v.dtype.name) for n, v in named.items()},
        {n: (a.shape, as_dtype(a.dtype).name) for n, a in arrays.items()},
        source=source,
        strict=how.strict,
        ignore_extra=how.ignore_extra,
        lacking=lacking,
    )
    found = {named[n]: array for n, array in arrays.items() if n in named}
    if how.format is None:
        _check_layout(source, state, found)
    step = number_in(state, STEP, 0, source) if has_all else None
    seed = number_in(state, SEED, -(2**63), source) if has_all else None
    return LoadedContents(found, mismatch, step, seed)


def _check_layout(source: str, state: Mapping[str, Any], found: Mapping[Variable, Array]) -> None:
    """See that arrays which fit the variables are not transposed, as PyTorch's would be.

    A state that a session has written is not, and nor is one with a matrix that is not square.

    Raises:
        CheckpointError: They may be.
    """
    known = state.known() if isinstance(state, StateDict) else set()
    if STEP in state or SEED in state:
        return
    transposed = [(v, a) for v, a in found.items() if v.is_transposed and v.name not in known]
    if any(a.shape[0] != a.shape[1] for _, a in transposed):
        return
    unclear = [v.name for v, a in transposed if not np.array_equal(a, a.T)]
    if unclear:
        raise CheckpointError(
            f'{source!r}: "{unclear[0]}" is square, and nothing says whether it is transposed, as '
            "in PyTorch",
            fix='pass format="graphfw" if it is not; PyTorch\'s are converted by '
            'model.load_state_dict(session, arrays, format="torch")',
        )


def _ints(shape: Sequence[Any]) -> tuple[int, ...]:
    return tuple([int(dim) for dim in shape])
