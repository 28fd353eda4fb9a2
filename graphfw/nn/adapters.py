"""`LowRankAdapters`: low-rank updates of a model, to be trained, merged and saved."""

from __future__ import annotations

import os
import weakref
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from graphfw import io
from graphfw.errors import CheckpointError, SessionError, counted
from graphfw.hints.calls import explained
from graphfw.ir.literal import Array
from graphfw.ir.state_dict import StateDict
from graphfw.ir.variable import Variable
from graphfw.nn import peft_files, states, weights
from graphfw.nn.hooks import set_hooks
from graphfw.nn.low_rank import Adapters, LowRankUpdate
from graphfw.nn.module import Module
from graphfw.nn.module_variables import Patterns
from graphfw.nn.weight_names import Names
from graphfw.utils.hashing import blake2b

if TYPE_CHECKING:
    from graphfw.runtime.session import Session

_NOTES = "graphfw/adapters"
"""The metadata of a file of adapters: rank, alpha and targets."""


class _Merged(NamedTuple):
    """The former contents of a session whose weights have the updates in them.

    Attributes:
        session: The session.
        contents: The former contents of the weights and the factors, by name.
        hashes: Hashes of the weights that the updates were merged into.
    """

    session: weakref.ref[Any]
    contents: Mapping[str, Array]
    hashes: Mapping[str, bytes]


@explained
class LowRankAdapters:
    """The low-rank updates of a model's layers, which `gf.nn.lora` makes.

    Attributes:
        rank: The rank of each update.
        alpha: Updates are scaled by alpha / rank.
        dropout: In training, the probability of leaving out a feature of an update's input.
        targets: The patterns of the layers.
        module: The updates as a module: its variables have the layers' names, as in
            `layers.0.self_attn.q_proj.lora_A.weight`.
    """

    def __init__(
        self,
        updates: Mapping[str, LowRankUpdate],
        rank: int,
        alpha: float,
        dropout: float,
        targets: tuple[str, ...],
    ) -> None:
        self.rank, self.alpha, self.dropout, self.targets = rank, alpha, dropout, targets
        self.module = Adapters()
        for path, update in updates.items():
            self.module.attach(path, update)
        self._merged: dict[int, _Merged] = {}

    def parameters(self, only: Patterns = None, ignore: Patterns = None) -> list[Variable]:
        """Return the variables of the updates that are trained, for optimisers.

        Args:
            only: Variables to return, by their names in `module`: names, scopes, or names with *.
            ignore: Variables to leave out, in the same way.

        Raises:
            ArgumentError: A pattern fits no variable, or is none.
        """
        return self.module.parameters(only, ignore)

    def remove(self) -> None:
        """Remove the updates from the layers, for calls from now on; a second call does nothing.

        Calls that are described already keep the updates, and the model stays frozen. After
        `merge`, the model computes the same without them.
        """
        for update in self._updates():
            hooks = vars(update.layer).get("_forward_hooks", ())
            set_hooks(update.layer, [hook for hook in hooks if hook is not update])

    # Merging.

    def merge(self, session: Session | None = None) -> None:
        """Add the updates to the weights of their layers, and set the updates to 0.

        The model computes the same as before, up to rounding, and `model.save` writes weights that
        a model without adapters loads. For `unmerge`, the adapters keep copies of the contents that
        change.

        Args:
            session: The session of the variables; none for a model that was made outside of graphs.

        Raises:
            SessionError: They are merged already.
            ArgumentError: The session is none, or one of another graph.
        """
        session = self._session(session, "merge")
        self._refuse_merged("merge", session)
        before: dict[str, Array] = {}
        now: dict[str, Array] = {}
        hashes: dict[str, bytes] = {}
        for update in self._updates():
            weight, (first, second) = update.layer.weight, update.factors
            old, b = session[weight], session[second]
            merged = update.merged(old, session[first], b)
            before |= {weight.name: old, second.name: b}
            now |= {weight.name: merged, second.name: np.zeros_like(b)}
            hashes[weight.name] = _hash(merged)
        session.load_state_dict(StateDict(now), strict=False)
        alive = {key: one for key, one in self._merged.items() if one.session() is not None}
        self._merged = alive | {id(session): _Merged(weakref.ref(session), before, hashes)}

    def unmerge(self, session: Session | None = None) -> None:
        """Restore the contents of weights and updates from before `merge`, bit for bit.

        Raises:
            SessionError: They are not merged in this session, or the weights have changed since.
            ArgumentError: The session is none, or one of another graph.
        """
        session = self._session(session, "unmerge")
        weights.checked(self.module, session, "unmerge")
        found = self._merged_in(session)
        if found is None:
            raise SessionError(
                "Adapters.unmerge: the updates are not merged in this session",
                fix="merge(session) comes before",
            )
        changed = [name for name, hashed in found.hashes.items() if _hash(session[name]) != hashed]
        if changed:
            raise SessionError(
                f'Adapters.unmerge: "{changed[0]}" has changed since the update was merged into it',
                fix="load the weights again, or keep them: adapters.remove()",
            )
        session.load_state_dict(StateDict(found.contents), strict=False)
        del self._merged[id(session)]

    def _session(self, session: Session | None, method: str) -> Any:
        what = f"Adapters.{method}"
        return states.own_session(self.module, what) if session is None else session

    def _merged_in(self, session: Session) -> _Merged | None:
        """Return the former contents of a session, if the updates in it are still 0."""
        found = self._merged.get(id(session))
        if found is None or found.session() is not session:
            return None
        if any(session[update.factors[1]].any() for update in self._updates()):
            del self._merged[id(session)]  # it has been restored, or trained
            return None
        return found

    def _refuse_merged(self, method: str, session: Session) -> None:
        weights.checked(self.module, session, method)
        if self._merged_in(session) is not None:
            raise SessionError(
                f"Adapters.{method}: the updates are merged into the weights of this session",
                fix="unmerge(session) comes before",
            )

    # Files.

    @overload
    def save(self, session: Session, path: str | os.PathLike[str]) -> None: ...
    @overload
    def save(self, session: str | os.PathLike[str]) -> None: ...
    def save(self, session: Any, path: Any = None) -> None:
        """Write the updates to a file, without the model's weights.

        The file has rank, alpha and layers as well, which `load` checks. It has checksums, and is
        replaced in one step, as by `session.save`.

        Args:
            session: The session of the variables; left out as in `merge`.
            path: The file.

        Raises:
            SessionError: The updates are merged.
            CheckpointError: The file can't be written.
            ArgumentError: The session is none, or one of another graph.
        """
        session, path = states.placed(self.module, "Adapters.save", session, path)
        self._refuse_merged("save", session)
        notes = {"rank": self.rank, "alpha": self.alpha, "targets": self.targets}
        notes["layers"] = [*self.layers]
        weights.save(self.module, session, path, {_NOTES: io.to_text(notes)})

    @overload
    def load(self, session: Session, path: str | os.PathLike[str]) -> None: ...
    @overload
    def load(self, session: str | os.PathLike[str]) -> None: ...
    def load(self, session: Any, path: Any = None) -> None:
        """Replace the updates, all at once, by those of a file that `save` wrote.

        Args:
            session: The session of the variables; left out as in `merge`.
            path: The file.

        Raises:
            SessionError: The updates are merged.
            CheckpointError: The file can't be read, it was not written by `save`, or it has another
                rank, alpha, or other layers; they are listed, and nothing has changed.
            ArgumentError: The session is none, or one of another graph.
        """
        session, path = states.placed(self.module, "Adapters.load", session, path)
        self._refuse_merged("load", session)
        weights.load(
            self.module, session, path, True, False, lambda notes: self._check_notes(path, notes)
        )

    def _check_notes(self, path: Any, notes: Mapping[str, str]) -> None:
        location = os.fspath(path)
        if _NOTES not in notes:
            raise CheckpointError(
                f"{location!r} holds a module and no adapters",
                fix="write model.load(session, path)",
            )
        found = io.from_text(notes[_NOTES], location)
        self._check_options(location, found.get("rank"), found.get("alpha"))
        fix = f"choose its layers: gf.nn.lora(model, {found.get('targets')}, rank={self.rank})"
        self._check_layers(location, found.get("layers", ()), fix)

    def _check_options(self, location: str, rank: Any, alpha: Any) -> None:
        if (rank, alpha) != (self.rank, self.alpha):
            raise CheckpointError(
                f"the adapters of {location!r} have rank {rank} and alpha {alpha}, and these have "
                f"rank {self.rank} and alpha {self.alpha:g}",
                fix=f"make these so: gf.nn.lora(model, targets, rank={rank}, alpha={alpha})",
            )

    def _check_layers(self, location: str, found: Collection[str], fix: str) -> None:
        own = self.layers
        apart = {
            "missing": [path for path in own if path not in found],
            "extra": sorted(path for path in found if path not in own),
        }
        if any(apart.values()):
            shown = [f'{len(paths)} {what}, "{paths[0]}"' for what, paths in apart.items() if paths]
            raise CheckpointError(
                f"the adapters of {location!r} have other layers than these: {'; '.join(shown)}",
                fix=fix,
            )

    @overload
    def save_peft(
        self, session: Session, folder: str | os.PathLike[str], *, names: Names | None = None
    ) -> None: ...
    @overload
    def save_peft(self, session: str | os.PathLike[str], *, names: Names | None = None) -> None: ...
    def save_peft(self, session: Any, folder: Any = None, *, names: Names | None = None) -> None:
        """Write the configuration and the updates to a folder, for PEFT of Hugging Face.

        The folder is made if there is none. The files are `adapter_config.json` and
        `adapter_model.safetensors`.

        Args:
            session: The session of the variables; left out as in `merge`.
            folder: The folder.
            names: The table with which `load_pytorch` loads the model's weights, if the model in
                PyTorch has other names. It may have rows for other layers.

        Raises:
            SessionError: The updates are merged.
            CheckpointError: A file can't be written.
            ArgumentError: The session is none, or one of another graph, or a row of the table is
                wrong.
        """
        session, folder = states.placed(self.module, "Adapters.save_peft", session, folder)
        self._refuse_merged("save_peft", session)
        options = peft_files.PeftOptions(self.rank, self.alpha, self.dropout)
        peft_files.save(self.module, [*self.layers], options, session, folder, names)

    @overload
    def load_peft(
        self, session: Session, folder: str | os.PathLike[str], *, names: Names | None = None
    ) -> None: ...
    @overload
    def load_peft(self, session: str | os.PathLike[str], *, names: Names | None = None) -> None: ...
    def load_peft(self, session: Any, folder: Any = None, *, names: Names | None = None) -> None:
        """Replace the updates, all at once, by those of a folder that PEFT wrote.

        Args:
            session: The session of the variables; left out as in `merge`.
            folder: The folder, with `adapter_config.json` and `adapter_model.safetensors`.
            names: The table with which `load_pytorch` loads the model's weights, if the model in
                PyTorch has other names. It may have rows for other layers.

        Raises:
            SessionError: The updates are merged.
            CheckpointError: A file can't be read, the configuration has another rank or alpha, or
                options that these adapters do not have, or the layers differ; nothing has changed.
            ArgumentError: The session is none, or one of another graph, or a row of the table is
                wrong.
        """
        session, folder = states.placed(self.module, "Adapters.load_peft", session, folder)
        self._refuse_merged("load_peft", session)
        options, location = peft_files.read_options(folder), os.fspath(folder)
        self._check_options(location, options.rank, options.alpha)
        updates = peft_files.read_updates(folder, names)
        layers = {name.rpartition(".lora_")[0] for name in updates}
        self._check_layers(location, layers, "pass names, as to load_pytorch; or choose its layers")
        weights.load_pytorch(self.module, session, updates, None, strict=True, ignore_extra=False)

    # Contents.

    @property
    def layers(self) -> dict[str, Module]:
        """The layers that have updates, by their paths in the model."""
        return {path: update.layer for path, update in self._named_updates()}

    def _named_updates(self) -> list[tuple[str, LowRankUpdate]]:
        found = self.module.named_modules()
        return [(path, one) for path, one in found if isinstance(one, LowRankUpdate)]

    def _updates(self) -> list[LowRankUpdate]:
        return [update for _, update in self._named_updates()]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_merged": {}}  # sessions are not copied

    def __repr__(self) -> str:
        size = sum(int(v.type.size) for v in self.module.variables())
        count = counted(len(self.layers), "layer")
        options = f"{count}, rank={self.rank}, alpha={self.alpha:g}, dropout={self.dropout:g}"
        return f"LowRankAdapters({options})  # {counted(size, 'parameter')}"


def _hash(array: Array) -> bytes:
    return blake2b(array.tobytes()).digest()
