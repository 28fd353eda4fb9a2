"""One run of a compiled program."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphfw.ir import concrete, time_limits
from graphfw.ir.constants import constant_array
from graphfw.ir.literal import Array
from graphfw.ir.op import ALIAS, RANDOM, Rng
from graphfw.ir.tensor import Node, Tensor
from graphfw.runtime.executor import Claim
from graphfw.runtime.kernels.steps import Storage
from graphfw.runtime.numpy_executor.buffer_pool import ArenaMemory
from graphfw.runtime.numpy_executor.contiguous import as_contiguous
from graphfw.runtime.numpy_executor.in_pieces import cut_of, in_pieces
from graphfw.runtime.numpy_executor.layout import Layout
from graphfw.runtime.numpy_executor.ready_run import LoadedRecipe, Outside, ReadyRun
from graphfw.runtime.planning.schedule import Level
from graphfw.utils.side_by_side import allowed

if TYPE_CHECKING:
    from graphfw.runtime.numpy_executor.build import Build

_NOBODY_ASKS = np.zeros(1, np.int64)
"""The array that takes the mark when the old contents are left as they are."""


class Execution:
    """The values that a run has computed so far.

    Args:
        loaded: What is run.
        layout: At the sizes of the run.
        run: Its tables.
        arena: The memory that the tables are lent.
        inputs: The arrays that it begins with.
        build: What the recipe was made from; only for runs without nodes outside of native code,
            and that nobody looks into, it may be missing.

    Attributes:
        has_copied: Whether it has copied feeds that are not C-contiguous.
        timings: Of the nodes outside of native code: when each began and ended, in ns.
    """

    def __init__(
        self,
        loaded: LoadedRecipe,
        layout: Layout,
        run: ReadyRun,
        arena: ArenaMemory,
        inputs: Sequence[Array],
        build: Build | None,
    ) -> None:
        self._loaded = loaded
        self._layout = layout
        self._run = run
        self._arena = arena
        self._inputs = inputs
        self._of = build
        self._results = [make() for make in run.makers]
        # Where the steps write nothing yet, any array will do; the last is the mark of the end.
        self._updates = [inputs[number] for number in loaded.recipe.overwritten]
        if self._updates:
            self._updates.append(_NOBODY_ASKS)
        self._made: dict[Storage, Array] = {}
        self.has_copied = False
        self.timings: list[tuple[int, int]] = []
        run.lie_at(arena.address)

    @property
    def _build(self) -> Build:
        assert self._of is not None, "only runs without outside nodes do without"
        return self._of

    def compute(self, rng: Rng, claim: Claim | None) -> bool:
        """Run all stretches; returns False where a check in native code fails."""
        stretches = self._loaded.recipe.stretches
        for number, (stretch, call) in enumerate(zip(stretches, self._run.calls, strict=True)):
            if self._updates and number == len(stretches) - 1:
                self._settle(claim)
            if call is not None and not self._native(call):
                return False
            for node in stretch.nodes:
                time_limits.check(node)
                begin = time.perf_counter_ns()
                self._outside(node, rng)
                self.timings.append((begin, time.perf_counter_ns()))
        return True

    def levels(self, rng: Rng) -> Iterator[Level]:
        """Run level after level, over no variable, and yield each; stops where a check fails."""
        if self._updates:
            self._settle(None)
        first = 0
        for level in self._build.levels:
            if level.steps:
                if not self._native(self._run.run.stretch(first, 1, hold=False)):
                    return
                first += 1
            for node in level.nodes:
                self._outside(node, rng)
            yield level

    def _settle(self, claim: Claim | None) -> None:
        """Decide where the variables' new contents go: over the old ones, or to other arrays."""
        done = claim() if claim is not None else None
        if done is None:
            spares = self._loaded.spares
            new = [pool_of_outputs.take(*self._layout.shapes[k]) for k, pool_of_outputs in spares]
            self._updates = [*new, _NOBODY_ASKS]
        else:
            self._updates[-1] = done

    def outputs(self) -> list[Any]:
        """Return the outputs; each belongs to the caller."""
        recipe = self._loaded.recipe
        direct = dict(zip(recipe.direct, self._results, strict=True))
        fetched: list[Any] = []
        for number in range(len(recipe.ranks) - len(recipe.overwritten)):
            array = direct.get(number)
            if array is None:
                shape, _ = self._layout.shapes[number]
                array = self._made[self._build.fetched[number]].reshape(shape)
                # Two stacks of a loop may be rows of one array.
                if any(np.may_share_memory(array, other) for other in fetched):
                    array = array.copy()
            fetched.append(array)
        return [*fetched, *self._updates[:-1]]

    def _native(self, call: Callable[[tuple[Array, ...]], int]) -> bool:
        failed = call((*self._inputs, *self._results, *self._updates))
        if failed < 0:  # a feed is not C-contiguous
            threads = self._run.run.threads
            self._inputs = [as_contiguous(array, threads) for array in self._inputs]
            self.has_copied = True
            failed = call((*self._inputs, *self._results, *self._updates))
        return not failed

    def _outside(self, node: Node, rng: Rng) -> None:
        """Compute a node with its op's `eval`, or as a loop or a branch of compiled bodies."""
        run = self._run
        arrays = [self._array(tensor) for tensor in node.inputs]
        try:
            ready = run.outside.get(node)
            if ready is None:
                ready = run.outside[node] = self._ready(node)
            results = ready.compute(arrays, rng)
        except time_limits.TimeOverError as error:
            error.op, error.at = node.op.title, node.loc
            raise
        except Exception as error:
            raise concrete.failed(node, arrays, error) from error
        for (tensor, number), array in zip(ready.outputs, results, strict=True):
            self._made[tensor] = array
            if number is not None:
                run.run.bases[number] = array.ctypes.data

    def _ready(self, node: Node) -> Outside:
        """Find out what computes a node at these sizes."""
        build, sizes = self._build, self._layout.sizes
        region = build.regions.get(node)
        threads = self._run.run.threads
        compute = _evaluation(node, sizes, threads) if region is None else region.ready(sizes)
        read = self._loaded.read
        numbers = [build.bases[tensor] for tensor in node.outputs]
        outputs = [
            (tensor, number if number in read else None)
            for tensor, number in zip(node.outputs, numbers, strict=True)
        ]
        return Outside(compute, outputs)

    def _array(self, tensor: Tensor) -> Array:
        """Return a tensor as an array, which may be a view of memory that will be written again."""
        known = self._build.view_at(tensor, self._layout)
        held = self._held(known.storage)
        if known.is_dense and held.shape == known.shape:  # so it is all of it
            return held
        if 0 in known.shape:
            return np.empty(known.shape, held.dtype)
        # What `as_strided` does, in a twentieth of its time.
        return np.ndarray(known.shape, held.dtype, held, known.offset, known.strides)

    def flat(self, storage: Storage) -> Array:
        """Return the elements of a storage, as far as they have been computed."""
        return self._held(storage).reshape(-1)

    def _held(self, storage: Storage) -> Array:
        """Return the elements of a storage in C order, in some shape."""
        made = self._made.get(storage)
        if made is not None:
            return made
        index = self._build.array_of.get(storage)
        if index is not None:
            inputs = self._inputs
            found = (
                inputs[index]
                if index < len(inputs)
                else (*self._results, *self._updates)[index - len(inputs)]
            )
            return as_contiguous(found, self._run.run.threads)
        if isinstance(storage, Tensor):
            constant = constant_array(storage)
            if constant is not None:
                return constant.reshape(-1)
        block = self._build.block_of[storage]
        begin, nbytes = self._layout.offsets[block], self._layout.nbytes[block]
        return self._arena.array[begin : begin + nbytes].view(storage.dtype.dtype)


def _evaluation(
    node: Node, sizes: dict[str, int], threads: int
) -> Callable[[Sequence[Array], Rng], Sequence[Array]]:
    """Return a function that computes a node by its op's `eval`."""
    op = node.op.bind(sizes)
    call = op.kernel(np, *[t.dtype for t in node.inputs])
    is_random = RANDOM in op.traits
    # Views would refer to memory that is written again.
    copy = True if ALIAS in op.traits else None

    def compute(arrays: Sequence[Array], rng: Rng) -> Sequence[Array]:
        with np.errstate(all="ignore"):
            result = call(*arrays, rng=rng) if is_random else call(*arrays)
        results: Sequence[Any] = result if op.multiple else (result,)
        return results

    def whole(arrays: Sequence[Array], rng: Rng) -> Sequence[Array]:
        with allowed(threads):
            results = compute(arrays, rng)
        return [np.array(array, order="C", copy=copy) for array in results]

    cut = None if copy else cut_of(node, op, sizes)
    return whole if cut is None else in_pieces(node, cut, compute, threads)
