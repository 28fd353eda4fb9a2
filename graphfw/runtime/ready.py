"""`ready`: what runs a program, in one go or in stages, with its checks."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from importlib import import_module

from graphfw.errors import ExecutorError, a_type
from graphfw.runtime.debugging import DebugExecutable, Hook
from graphfw.runtime.executor import Executable, Executor, Options
from graphfw.runtime.program import Program, without_passes
from graphfw.runtime.unsettled import Unsettled


def ready(
    program: Program,
    executor: Executor,
    options: Options,
    debug: bool | Hook,
    unsettled: Unsettled | None = None,
) -> Executable:
    """Return the executable of a program.

    Args:
        program: The program.
        executor: What computes it.
        options: The session's.
        debug: Whether it runs node by node, as described; or what each node is shown to.
        unsettled: As in `Options`: None where what a run gives is looked at before it returns.
    """
    program = executor.with_kept_variables(program)
    if not (program.is_staged and executor.holds_values):
        if program.level != "first-run":
            options = replace(options, unsettled=unsettled)
        return _in_one_go(executor, options, debug, program)
    # Not at the top: few graphs have results whose shape depends on values.
    staged = import_module("graphfw.runtime.staged")
    stage = partial(_in_one_go, executor, options, debug)
    run: Executable = staged.loaded(program, stage, executor, options)
    return run


def _in_one_go(
    executor: Executor, options: Options, debug: bool | Hook, program: Program
) -> Executable:
    run: Executable
    if debug:
        run = DebugExecutable(without_passes(program), debug if callable(debug) else None)
    else:
        run = executor.load(program, options)
        if not isinstance(run, Executable):
            raise ExecutorError(
                f"the executor {executor.name!r} loads {a_type(run)}, and no Executable",
                fix="return one from load(), such as gf.extend.ArrayExecutable(program, np)",
            )
    if program.level == "first-run" and executor.holds_values:
        # Not at the top: few ask for it, and it needs all passes.
        first_run = import_module("graphfw.runtime.first_run")
        run = first_run.FirstRun(run, program, program.source, executor)
    return run
