"""`model_session_options`: the options of sessions that models outside of graphs have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphfw.hints.calls import explained
from graphfw.ir import ambient
from graphfw.ir.dtype import DTypeLike
from graphfw.ir.graph import Graph
from graphfw.ir.scopes import Scope
from graphfw.passes.base import Pass
from graphfw.passes.manager import Level
from graphfw.runtime.debugging import Hook
from graphfw.runtime.limits import Precision
from graphfw.runtime.session import Session

if TYPE_CHECKING:
    from graphfw.passes.mixed_policy import MixedName


@explained
def model_session_options(
    *,
    verify: Level | None = None,
    check_finite: bool | None = None,
    threads: int | None = None,
    memory_limit: int | str | None = None,
    matmul_precision: Precision | None = None,
    precision: MixedName | None = None,
    precision_overrides: Mapping[str, DTypeLike] | None = None,
    winograd: bool | None = None,
    tune: bool | None = None,
    passes: Sequence[Pass | str] | None = None,
    timeout: float | None = None,
    debug: bool | Hook | None = None,
) -> Scope[Mapping[str, Any]]:
    """Choose options of the sessions of models and functions made inside a `with` block.

    The models are those that are made outside of graphs, and the functions are those without
    `session=`: graphfw makes their sessions. They keep the options when they run after the block.
    A model and the functions that use it have one session: options that only one of them has hold
    for all. A copy of a model has the options of the block in which it is copied.

    All options of `Session` are there but those of several processes, which describe a graph.

    A block inside of another one changes the options that it names. The executor is that of
    `default_executor`, and the seed that of `set_seed`.

    Args:
        verify: As for `Session`, like the other arguments. None leaves an option as it is.
        check_finite: See `Session`.
        threads: See `Session`.
        memory_limit: See `Session`.
        matmul_precision: See `Session`.
        precision: See `Session`.
        precision_overrides: See `Session`.
        winograd: See `Session`.
        tune: See `Session`.
        passes: See `Session`.
        timeout: See `Session`.
        debug: See `Session`.

    Raises:
        ArgumentError: An option is not what it has to be.

    >>> import numpy as np
    >>> import graphfw as gf
    >>> with gf.model_session_options(check_finite=True):
    ...     log = gf.function(lambda x: gf.log(x))
    >>> try:
    ...     log(np.zeros(2))
    ... except gf.ExecutionError as error:
    ...     print(error.summary.partition(" at index")[0])
    log gives -inf
    """
    chosen = {name: value for name, value in locals().items() if value is not None}
    options = {**ambient.session_options.get(), **chosen}
    Session(Graph(), "numpy", **options)  # which refuses those that are wrong
    return Scope(ambient.session_options, options)
