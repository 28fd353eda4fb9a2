"""`ModuleContents`: the contents of a module's variables, which live in a session and in files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, overload

from graphfw import io
from graphfw.hints.calls import explained
from graphfw.ir.state_dict import StateDict
from graphfw.nn import states, weights
from graphfw.nn.interface import ModuleInterface
from graphfw.nn.torch_rules import TorchRule
from graphfw.nn.weight_names import Names

if TYPE_CHECKING:
    from graphfw.runtime.session import Session


@explained
class ModuleContents:
    """The base of `Module` that reads and writes the contents of variables."""

    @property
    def session(self: ModuleInterface) -> Session:
        """The session of a module that was made outside of any graph.

        Raises:
            GraphError: It was made inside of `with graph:`, which may have several sessions.

        >>> import graphfw as gf
        >>> gf.nn.Linear(3, 2).session.executor.name
        'numpy'
        """
        session: Session = states.own_session(self, f"{type(self).__name__}.session")
        return session

    def state_dict(self: ModuleInterface, session: Session | None = None) -> dict[str, Any]:
        """Return copies of the variables' contents, by names relative to this module.

        Args:
            session: Where they live; not for a module that was made outside of any graph.
        """
        own = dict(self.named_variables())
        what = f"{type(self).__name__}.state_dict"
        session = states.own_session(self, what) if session is None else session
        states.check_session(what, session, own.values())
        contents = session.state_dict()
        return StateDict({name: contents[variable.name] for name, variable in own.items()})

    @overload
    def load_state_dict(
        self: ModuleInterface,
        session: Session,
        state: Mapping[str, Any],
        *,
        strict: bool = True,
        ignore_extra: bool = False,
        format: Literal["graphfw", "torch"] | None = None,
    ) -> Any: ...
    @overload
    def load_state_dict(
        self: ModuleInterface,
        session: Mapping[str, Any],
        *,
        strict: bool = True,
        ignore_extra: bool = False,
        format: Literal["graphfw", "torch"] | None = None,
    ) -> Any: ...
    def load_state_dict(
        self: ModuleInterface,
        session: Any,
        state: Any = None,
        *,
        strict: bool = True,
        ignore_extra: bool = False,
        format: Literal["graphfw", "torch"] | None = None,
    ) -> Any:
        """Replace the variables' contents, all at once, by arrays of their names in this module.

        Args:
            session: Where they live; left out for a module that was made outside of any graph, as
                in `model.load_state_dict(state)`.
            state: What `state_dict` returned, here or elsewhere, or a PyTorch module's state dict.
            strict: Whether missing and extra entries are errors; otherwise they are left out.
            ignore_extra: Whether extra entries are left out, and missing ones errors all the same.
            format: Whose names and layouts it has; by default PyTorch's if its tensors are. NumPy
                arrays need it where they would fit in both layouts: all matrices are square.

        Returns:
            A `graphfw.io.Mismatch`: what was missing and extra, by names in this module.

        Raises:
            CheckpointError: Entries are missing, extra, or of a wrong shape or dtype, or no format
                is given and names or shapes leave it open; nothing has changed.
            ArgumentError: The state is no dict, or there is no such format.
        """
        variables = dict(self.named_variables())
        what = f"{type(self).__name__}.load_state_dict"
        session, state = states.placed(self, what, session, state)
        states.check_arguments(what, session, state)
        states.check_session(what, session, variables.values())
        state, of_torch = states.laid_out(what, self, state, format)
        missing, extra = states.differing(what, variables, state, strict, ignore_extra)
        states.check_fit(what, variables, state, of_torch)
        known = StateDict({v.name: state[name] for name, v in variables.items() if name in state})
        mismatch = session.load_state_dict(known, strict=False)
        return replace(mismatch, missing=missing, extra=extra)

    @overload
    def load_pytorch(
        self: ModuleInterface,
        session: Session,
        source: str | os.PathLike[str] | Mapping[str, Any],
        *,
        names: Names | None = None,
        strict: bool = True,
        ignore_extra: bool = False,
    ) -> io.Mismatch: ...
    @overload
    def load_pytorch(
        self: ModuleInterface,
        session: str | os.PathLike[str] | Mapping[str, Any],
        *,
        names: Names | None = None,
        strict: bool = True,
        ignore_extra: bool = False,
    ) -> io.Mismatch: ...
    def load_pytorch(
        self: ModuleInterface,
        session: Any,
        source: Any = None,
        *,
        names: Names | None = None,
        strict: bool = True,
        ignore_extra: bool = False,
    ) -> io.Mismatch:
        """Replace the variables' contents, all at once, by weights of PyTorch's.

        `model.load_pytorch(source)` does it for a module that was made outside of any graph.

        Each layer converts the layouts of its own. Floats of fewer bits than the variable's become
        the variable's. Files are mapped into memory, and no code in them is run.

        Args:
            session: Where the variables live.
            source: A file or folder that `gf.io.read_pytorch` reads, or a state dict.
            names: Names in the source to names in this module: a dict from the begins of names, as
                in `{"encoder.layer.{i}": "layers.{i}", "pooler": None}`, or a function from name
                to name. `{i}` stands for one component of a name, and None leaves entries out.
                Other names stay.
            strict: Whether missing and extra entries are errors; otherwise they are left out.
            ignore_extra: Whether extra entries are left out, and missing ones errors all the same.

        Returns:
            What was missing and extra, by names in this module.

        Raises:
            CheckpointError: The source can't be read, or entries are missing, extra, or of a wrong
                shape or dtype; they are listed, with near names, and nothing has changed.
            ArgumentError: The arguments are in another order, or `names` has a wrong row.

        >>> import numpy as np
        >>> import graphfw as gf
        >>> with gf.Graph() as g:
        ...     model = gf.nn.Sequential(gf.nn.Linear(3, 2, bias=False))
        >>> theirs = {"net.fc.weight": np.ones((2, 3), np.float16)}
        >>> with gf.Session(g) as session:
        ...     model.load_pytorch(session, theirs, names={"net.fc": "0"})
        ...     session[model[0].weight].shape
        Mismatch(missing=(), extra=(), mismatched=())
        (3, 2)
        """
        session, source = states.placed(
            self, f"{type(self).__name__}.load_pytorch", session, source
        )
        return weights.load_pytorch(self, session, source, names, strict, ignore_extra)

    @overload
    def save_pytorch(
        self: ModuleInterface,
        session: Session,
        path: str | os.PathLike[str],
        *,
        names: Names | None = None,
    ) -> None: ...
    @overload
    def save_pytorch(
        self: ModuleInterface, session: str | os.PathLike[str], *, names: Names | None = None
    ) -> None: ...
    def save_pytorch(
        self: ModuleInterface,
        session: Any,
        path: Any = None,
        *,
        names: Names | None = None,
    ) -> None:
        """Write the variables to a safetensors file with PyTorch's names and layouts.

        `model.save_pytorch(path)` does it for a module that was made outside of any graph.

        In PyTorch, `theirs.load_state_dict(safetensors.torch.load_file(path))` takes it, strictly.
        The file is replaced in one step, as by `session.save`.

        Args:
            session: Where the variables live.
            path: The file.
            names: The table that `load_pytorch` takes, which is read from right to left; or a
                function from names in this module to names in the file.

        Raises:
            CheckpointError: The file can't be written, or a variable has a dtype that safetensors
                files do not have.
            ArgumentError: A layer defines `from_torch` and no `to_torch`, or `names` has a wrong
                row.
        """
        session, path = states.placed(self, f"{type(self).__name__}.save_pytorch", session, path)
        weights.save_pytorch(self, session, path, names)

    @overload
    def save(self: ModuleInterface, session: Session, path: str | os.PathLike[str]) -> None: ...
    @overload
    def save(self: ModuleInterface, session: str | os.PathLike[str]) -> None: ...
    def save(self: ModuleInterface, session: Any, path: Any = None) -> None:
        """Write the variables to a file, by names relative to this module.

        `model.save(path)` does it for a module that was made outside of any graph.

        The file has checksums, and is replaced in one step, as by `session.save`. It has nothing
        else: neither the optimiser's variables nor the step.

        Raises:
            CheckpointError: The file can't be written.

        >>> import tempfile
        >>> import graphfw as gf
        >>> with gf.Graph() as g:
        ...     encoder = gf.nn.Sequential(gf.nn.Linear(3, 2), name="encoder")
        ...     other = gf.nn.Sequential(gf.nn.Linear(3, 2), name="other")
        >>> with gf.Session(g) as session, tempfile.TemporaryDirectory() as folder:
        ...     encoder.save(session, f"{folder}/x.safetensors")
        ...     other.load(session, f"{folder}/x.safetensors")
        ...     bool((session["other.0.weight"] == session["encoder.0.weight"]).all())
        Mismatch(missing=(), extra=(), mismatched=())
        True
        """
        session, path = states.placed(self, f"{type(self).__name__}.save", session, path)
        weights.save(self, session, path)

    @overload
    def load(
        self: ModuleInterface,
        session: Session,
        path: str | os.PathLike[str],
        *,
        strict: bool = True,
        ignore_extra: bool = False,
    ) -> io.Mismatch: ...
    @overload
    def load(
        self: ModuleInterface,
        session: str | os.PathLike[str],
        *,
        strict: bool = True,
        ignore_extra: bool = False,
    ) -> io.Mismatch: ...
    def load(
        self: ModuleInterface,
        session: Any,
        path: Any = None,
        *,
        strict: bool = True,
        ignore_extra: bool = False,
    ) -> io.Mismatch:
        """Replace the variables' contents, all at once, by those of a file that `save` wrote.

        `model.load(path)` does it for a module that was made outside of any graph.

        Args:
            session: Where they live.
            path: The file.
            strict: Whether missing and extra entries are errors; otherwise they are left out.
            ignore_extra: Whether extra entries are left out, and missing ones errors all the same.

        Returns:
            What was missing and extra, by names in this module.

        Raises:
            CheckpointError: The file can't be read, it is damaged or was not written by `save`, or
                its entries don't match; they are listed, with near names, and nothing has changed.
        """
        session, path = states.placed(self, f"{type(self).__name__}.load", session, path)
        return weights.load(self, session, path, strict, ignore_extra)

    def from_torch(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return a PyTorch state dict of this layer with graphfw's names and layouts.

        Names are relative to it. Entries of its submodules are converted by these afterwards.
        """
        for rule in self._torch_rules():
            state = rule.from_torch(state)
        return state

    def to_torch(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return a state dict of this layer with PyTorch's names and layouts: undo `from_torch`.

        Names are relative to it. Entries of its submodules were converted by these before.
        """
        for rule in reversed(self._torch_rules()):
            state = rule.to_torch(state)
        return state

    def _torch_rules(self) -> Sequence[TorchRule]:
        """Return the differences between PyTorch's entries of this layer and graphfw's."""
        return ()
