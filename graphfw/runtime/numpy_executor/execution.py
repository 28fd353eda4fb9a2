"""One run of a compiled program."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from graphfw.ir import concrete
from graphfw.ir.literal import Array
from graphfw.ir.op import ALIAS, RANDOM, Rng
from graphfw.ir.tensor import Node, Tensor
from graphfw.passes.base import constant_array
from graphfw.runtime.executor import Claim
from graphfw.runtime.kernels.steps import Storage
from graphfw.runtime.numpy_executor.build import Build
from graphfw.runtime.numpy_executor.layout import ARENA, Layout
from graphfw.runtime.numpy_executor.recycle import Memory
from graphfw.runtime.numpy_executor.runner import Run
from graphfw.runtime.numpy_executor.schedule import Level

_SHORT = 2
"""Cells up to which a native call keeps Python's lock: giving it up would take longer."""


_NOBODY_ASKS = np.zeros(1, np.int64)
"""Where the mark goes when the old contents are left as they are."""


class ReadyRun:
    """The tables that one run at a time writes to.

    Attributes:
        run: The native runner's.
        calls: For each stretch, what computes its native steps; None where there are none.
        whole: The only call, of a program that is native as a whole and updates nothing; else None.
        makers: What makes the arrays of the direct outputs.
        version: For which contents of the variables the prepared operands are set.
    """

    def __init__(self, build: Build, layout: Layout, threads: int) -> None:
        self.run = Run(layout.tables, threads)
        for storage, constant in build.constants.items():
            self.run.bases[build.bases[storage]] = constant.ctypes.data
        self.calls: list[Callable[[tuple[Array, ...]], int] | None] = []
        for stretch in build.stretches:
            cells = sum(layout.cells[stretch.first : stretch.first + stretch.waves])
            call = self.run.stretch(stretch.first, stretch.waves, hold=cells <= _SHORT)
            self.calls.append(call if stretch.waves else None)
        self.whole = self.calls[0] if build.is_plain else None
        self.makers = [recycler.maker(*layout.shapes[k]) for k, recycler in build.direct]
        self.version = -1
        self.held: Sequence[Array] = ()


class Execution:
    """What a run has computed so far.

    Attributes:
        timings: Of the nodes outside of native code: when each began and ended, in ns.
    """

    def __init__(
        self, build: Build, layout: Layout, run: ReadyRun, arena: Memory, inputs: Sequence[Array]
    ) -> None:
        self._build = build
        self._layout = layout
        self._run = run
        self._arena = arena
        self._inputs = inputs
        self._results = [make() for make in run.makers]
        # Where the steps write nothing yet, any array will do; the last is the mark of the end.
        self._updates = [inputs[number] for number in build.overwritten]
        if self._updates:
            self._updates.append(_NOBODY_ASKS)
        self._made: dict[Storage, Array] = {}
        self.timings: list[tuple[int, int]] = []
        run.run.bases[ARENA] = arena.address

    def compute(self, rng: Rng, claim: Claim | None) -> bool:
        """Run all stretches; returns False where a check in native code fails."""
        stretches = self._build.stretches
        for number, (stretch, call) in enumerate(zip(stretches, self._run.calls, strict=True)):
            if self._updates and number == len(stretches) - 1:
                self._settle(claim)
            if call is not None and not self._native(call):
                return False
            for node in stretch.nodes:
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
            spares = self._build.spares
            new = [recycler.take(*self._layout.shapes[k]) for k, recycler in spares]
            self._updates = [*new, _NOBODY_ASKS]
        else:
            self._updates[-1] = done

    def outputs(self) -> list[Any]:
        """Return the outputs; each belongs to the caller."""
        results = iter(self._results)
        fetched = []
        for storage, (shape, _) in zip(self._build.fetched, self._layout.shapes, strict=False):
            made = self._made.get(storage)
            fetched.append(next(results) if made is None else made.reshape(shape))
        return [*fetched, *self._updates[:-1]]

    def _native(self, call: Callable[[tuple[Array, ...]], int]) -> bool:
        failed = call((*self._inputs, *self._results, *self._updates))
        if failed < 0:  # an array that was fed does not lie in a row
            self._inputs = [np.require(a, requirements=["C", "A"]) for a in self._inputs]
            failed = call((*self._inputs, *self._results, *self._updates))
        return not failed

    def _outside(self, node: Node, rng: Rng) -> None:
        """Compute a node with its op's `eval`."""
        arrays = [self._array(tensor) for tensor in node.inputs]
        op = node.op.bind(self._layout.sizes)
        call = op.kernel(np, *[t.dtype for t in node.inputs])
        try:
            with np.errstate(all="ignore"):
                result = call(*arrays, rng=rng) if RANDOM in op.traits else call(*arrays)
        except Exception as error:
            raise concrete.failed(node, arrays, error) from error
        results = result if op.multiple else (result,)
        for tensor, array in zip(node.outputs, results, strict=True):
            # Views would refer to memory that is written again.
            own = np.array(array, order="C", copy=True if ALIAS in op.traits else None)
            self._made[tensor] = own
            number = self._build.bases.get(tensor)
            if number is not None:
                self._run.run.bases[number] = own.ctypes.data

    def _array(self, tensor: Tensor) -> Array:
        """Return a tensor as an array, which may be a view of memory that will be written again."""
        storage, offset, shape, strides = self._build.view_at(tensor, self._layout)
        flat = self.flat(storage)
        item = flat.itemsize
        return as_strided(flat[offset:], shape, [stride * item for stride in strides])

    def flat(self, storage: Storage) -> Array:
        """Return the elements of a storage, as far as they have been computed."""
        made = self._made.get(storage)
        if made is not None:
            return made.reshape(-1)
        place = self._build.array_of.get(storage)
        if place is not None:
            arrays = (*self._inputs, *self._results, *self._updates)
            return np.ascontiguousarray(arrays[place]).reshape(-1)
        if isinstance(storage, Tensor):
            constant = constant_array(storage)
            if constant is not None:
                return constant.reshape(-1)
        block = self._build.layouts.block_of[storage]
        begin, nbytes = self._layout.offsets[block], self._layout.nbytes[block]
        return self._arena.array[begin : begin + nbytes].view(storage.dtype.dtype)
