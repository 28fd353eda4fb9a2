"""`SessionContents`: the contents of a session's variables, by name and in files."""

from __future__ import annotations

import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from typing import Any, Literal

import numpy as np

from graphfw import io
from graphfw.hints.calls import explained
from graphfw.ir.graph import Graph
from graphfw.ir.literal import Array
from graphfw.ir.state_dict import StateDict
from graphfw.ir.variable import Variable
from graphfw.runtime import contents, lookup
from graphfw.runtime.contents import METADATA, OPSET, SEED, STEP
from graphfw.runtime.executor import Executor
from graphfw.runtime.state import Snapshot, State, batches
from graphfw.utils.patterns import name_choice


@explained
class SessionContents:
    """The base of `Session` that reads and writes the contents of variables."""

    graph: Graph
    executor: Executor
    _compiling: threading.RLock

    @property
    @abstractmethod
    def _state(self) -> State: ...

    @property
    @abstractmethod
    def seed(self) -> int:
        """The seed of random numbers and initial values."""

    @abstractmethod
    def wait(self) -> None:
        """Wait for all runs."""

    def _start(self, variables: Sequence[Variable]) -> None:
        """Give variables that have none yet their initial contents."""
        known = self._state.snapshot.values
        new = [v for v in variables if v not in known]
        if not new or not self.executor.holds_values:
            return
        run, made_for = copy_context().run, contents.InitialContents(self.seed).of  # as for lower
        values: dict[Variable, Any] = {}
        for some in batches(new, self.executor.kept_type):
            made = (self.executor.to_kept(run(made_for, v)) for v in some)
            values.update(zip(some, self.executor.from_hosts(made, [*some.values()]), strict=True))
        with self._state.writing:
            current = self._state.snapshot.values
            self._state.commit({v: a for v, a in values.items() if v not in current})

    def __getitem__(self, variable: Variable | str) -> Array:
        """Return a copy of a variable's contents, by the variable or its name."""
        self.wait()
        found = lookup.variable_of(self.graph, variable)
        with self._compiling:
            self._start([found])
        with self._state.pinned() as snapshot:
            return self._contents(found, snapshot)

    def __setitem__(self, variable: Variable | str, value: Any) -> None:
        """Replace a variable's contents by an array of its shape; dtypes convert as those of feeds.

        Raises:
            ShapeError, DTypeError: The array does not fit.
        """
        self.wait()
        found = lookup.variable_of(self.graph, variable)
        kept = self.executor.to_kept(contents.assigned_contents(found, value))
        copy = self.executor.from_host(kept)
        with self._state.writing:
            self._state.commit({found: copy})

    # Saving.

    def state_dict(self) -> dict[str, Array]:
        """Return copies of all variables' contents by name, with the session's step and seed."""
        named = self._started()
        with self._state.pinned() as snapshot:
            arrays = {name: self._contents(v, snapshot) for name, v in named.items()}
        numbers = {STEP: np.asarray(snapshot.step), SEED: np.asarray(snapshot.seed)}
        return StateDict(arrays | numbers)

    def _contents(self, variable: Variable, snapshot: Snapshot) -> Array:
        array = self.executor.to_host(snapshot.values.get(variable))
        return self.executor.from_kept(variable, array)

    def _started(self) -> dict[str, Variable]:
        self.wait()
        with self._compiling:
            self._start(self.graph.variables)
        self.graph.check_names()
        return {v.name: v for v in self.graph.variables}

    def load_state_dict(
        self,
        state: Mapping[str, Any],
        *,
        strict: bool = True,
        ignore_extra: bool = False,
        format: Literal["graphfw"] | None = None,
    ) -> io.Mismatch:
        """Replace all variables' contents at once by arrays of their names.

        Where the state has a step and a seed, the session goes on with its random numbers.

        Args:
            state: Arrays by name, as `state_dict` returns them.
            strict: Whether missing and extra entries are errors.
            ignore_extra: Whether extra entries are left out; missing ones are errors all the same.
            format: "graphfw" says that layouts are graphfw's. Arrays that no session has written
                need it where layers' matrices are all square, for PyTorch's are transposed.

        Returns:
            The missing and the extra entries.

        Raises:
            CheckpointError: Entries don't match, or may be transposed; nothing has changed.
            ArgumentError: The state is no dict, or there is no such format.
        """
        how = contents.Loading("the state", strict, ignore_extra, format)
        return self._load(state, how, self.executor.from_host)

    def save(
        self, path: str | os.PathLike[str], *, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Write all variables, the step and the seed to a safetensors file, atomically.

        Whatever happens, the file is the old one or the new one, never half of each.

        Args:
            path: The file.
            metadata: Further values to keep, such as the epoch: numbers, text, lists and dicts.

        Raises:
            CheckpointError: The file can't be written.
            ArgumentError: metadata is no dict of what JSON has.
        """
        notes = {} if metadata is None else {METADATA: io.to_text(metadata)}
        named = self._started()
        with self._state.pinned() as now:  # and not copied
            arrays = self.executor.to_hosts([now.values.get(v) for v in named.values()])
            arrays = [*map(self.executor.from_kept, named.values(), arrays)]
            numbers = {STEP: now.step, SEED: now.seed, OPSET: self.graph.opset}
            text = {name: str(number) for name, number in numbers.items()} | notes
            io.write_checkpoint(path, dict(zip(named, arrays, strict=True)), text)

    def restore(
        self,
        path: str | os.PathLike[str],
        *,
        only: str | Sequence[str] | None = None,
        ignore: str | Sequence[str] | None = None,
        strict: bool = True,
        ignore_extra: bool = False,
        format: Literal["graphfw"] | None = None,
    ) -> io.Restored:
        """Read what `save` wrote, or a choice of it.

        The file's checksums are checked. A file without them is read with a warning.

        Args:
            path: The file.
            only: Variables to restore: names, scopes ("encoder"), or names with * ("*.bias"). All
                others stay, and so do the session's step and seed.
            ignore: Variables to leave as they are, in the same way, such as "adam".
            strict: As in `load_state_dict`, for the variables to restore.
            ignore_extra: As in `load_state_dict`.
            format: As in `load_state_dict`, for files that another program has written.

        Returns:
            The missing and the extra entries, and the `metadata` of `save`.

        Raises:
            CheckpointError: The file can't be read, it is damaged, a pattern fits nothing, or its
                entries don't match; they are listed, with near names, and nothing has changed.
            ArgumentError: There is no such format, or `only` or `ignore` is no pattern.
        """
        chosen = name_choice("restore", only, ignore)
        file = contents.read_state(path)
        how = contents.Loading(os.fspath(path), strict, ignore_extra, format, chosen)
        found = self._load(file.state, how, self.executor.adopted)
        contents.warn_unverified(file.unverified)
        return io.Restored(found.missing, found.extra, found.mismatched, file.metadata)

    def _load(
        self, state: Mapping[str, Any], how: contents.Loading, put: Callable[[Array], Any]
    ) -> io.Mismatch:
        self.wait()
        self.graph.check_names()
        if not self.executor.holds_values:
            self.executor.to_host(None)
        found = contents.loaded(state, self.graph.variables, how, self.graph.lacking)
        values = {v: put(self.executor.to_kept(array)) for v, array in found.arrays.items()}
        with self._state.writing:
            self._state.commit(values, found.step, found.seed)
        return found.mismatch
