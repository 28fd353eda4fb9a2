"""The machine code of a program."""

from __future__ import annotations

from typing import Any

from graphfw.runtime.cupy_executor.build import GpuProgram
from graphfw.runtime.cupy_executor.codegen import GpuCode, Launch
from graphfw.runtime.cupy_executor.deferred_check import SETTLE
from graphfw.runtime.cupy_executor.device import Device
from graphfw.utils import locks


class Modules:
    """The machine code of a program, with that of its bodies.

    Args:
        build: The program.
        device: What runs it.
    """

    def __init__(self, build: GpuProgram, device: Device) -> None:
        self._build = build
        self._device = device
        self._lock = locks.reentrant()
        self._loaded: dict[tuple[bool, bool], Any] = {}
        self._spare = {code.symbol for code in build.spare}
        if build.codes:
            self._module(spare=False, wide=False)

    def function(self, code: GpuCode, launch: Launch) -> Any:
        """Return a kernel's function, which may be launched like this."""
        loaded = self._module(spare=code.symbol in self._spare, wide=launch.is_wide)
        found = loaded.get_function(f"{code.symbol}_{launch.variant}")
        self._device.allow_shared(found, launch.shared)
        return found

    def settle(self) -> Any:
        """Return the kernel that joins a run's flag and the session's word (`deferred_check`)."""
        return self._module(spare=False, wide=False).get_function(SETTLE)

    def _module(self, *, spare: bool, wide: bool) -> Any:
        """Return the kernels of every run, or those that few need; compiled when one is needed."""
        with self._lock:
            if (spare, wide) not in self._loaded:
                codes = self._build.spare if spare else self._build.codes
                loaded = self._device.functions(self._build, codes, wide=wide)
                self._loaded[spare, wide] = loaded
            return self._loaded[spare, wide]
