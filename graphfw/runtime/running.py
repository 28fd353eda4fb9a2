"""One run of a plan on a session's state: what it reads is pinned, what it updates is committed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from graphfw.ir.dtype import as_dtype
from graphfw.ir.op import Rng
from graphfw.runtime.executor import Executable
from graphfw.runtime.hosting import to_numpy
from graphfw.runtime.program import Program
from graphfw.runtime.state import State

_NO_RNG = Rng(0, 0)


def reading(
    state: State,
    program: Program,
    run: Executable,
    fed: Sequence[Any],
    sizes: tuple[int, ...],
    check_finite: bool,
) -> list[Any]:
    """Run what updates no variables."""
    if not program.variables and not program.is_random:
        return _checked(run(fed, sizes, _NO_RNG, 0, None), run, fed, sizes, _NO_RNG, check_finite)
    me = object()
    try:
        snapshot = state.pin(me)
        if program.is_random:
            snapshot = state.take_step(me)
        contents = snapshot.values
        inputs = [*fed, *[contents.get(v) for v in program.variables]]
        rng = Rng(snapshot.seed, snapshot.step)
        outputs = run(inputs, sizes, rng, snapshot.version_of(program.kept), None)
        return _checked(outputs, run, inputs, sizes, rng, check_finite)
    except BaseException:
        state.give_back(me)
        raise
    finally:
        state.unpin(me)


def updating(
    state: State,
    program: Program,
    run: Executable,
    fed: Sequence[Any],
    sizes: tuple[int, ...],
    check_finite: bool,
) -> list[Any]:
    """Run what updates variables, and commit; called with `state.writing`."""
    me = object()
    state.release()
    try:
        # What is looked at before it is committed can't be written over what it replaces.
        claim = None if check_finite else partial(state.claim, me, program.rewritten)
        snapshot = state.pin(me)
        if program.is_random:
            snapshot = state.take_step(me)
        contents = snapshot.values
        inputs = [*fed, *[contents.get(v) for v in program.variables]]
        rng = Rng(snapshot.seed, snapshot.step)
        outputs = run(inputs, sizes, rng, snapshot.version_of(program.kept), claim)
        _checked(outputs, run, inputs, sizes, rng, check_finite)
        if contents:  # an executor that only looks at shapes has none
            new = outputs[program.fetch_count :]
            values = dict(zip(program.updated, new, strict=True))
            state.commit(values, variables=program.rewritten)
    except BaseException:
        state.give_back(me)
        raise
    finally:
        state.unpin(me)
        state.release()
    return outputs[: program.fetch_count]


def _checked(
    outputs: list[Any],
    run: Executable,
    inputs: Sequence[Any],
    sizes: tuple[int, ...],
    rng: Rng,
    check_finite: bool,
) -> list[Any]:
    """Return the outputs, where they are finite or nobody asks."""
    if check_finite and not all(map(_is_finite, outputs)):
        raise run.blame(inputs, sizes, rng)
    return outputs


def _is_finite(array: Any) -> bool:
    """Say whether all elements are finite; what is no float is."""
    dtype = as_dtype(array.dtype)
    if not (dtype.is_inexact or dtype.holds_floats):
        return True
    # Of dtypes for storage no library for GPUs can say it.
    return bool(np.isfinite(to_numpy(array) if dtype.is_storage else array).all())
