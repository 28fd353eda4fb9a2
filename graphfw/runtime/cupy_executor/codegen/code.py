"""`CudaCode`: the source of a kernel, and how it is launched."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from graphfw.ir.dim import DimLike
from graphfw.ops.numerics.library import FUNCTIONS
from graphfw.runtime.cupy_executor.codegen.batched_launch import MANY, together_lines
from graphfw.runtime.cupy_executor.codegen.forms import can_split, form_of, tiled, vector_width
from graphfw.runtime.cupy_executor.codegen.launch import (
    SPLIT,
    VECTOR,
    launch,
    possible,
    threads,
    variants,
)
from graphfw.runtime.cupy_executor.codegen.library import definition
from graphfw.runtime.cupy_executor.codegen.nest import CudaNest
from graphfw.runtime.cupy_executor.codegen.tiles import tile_lines
from graphfw.runtime.kernels.handwritten_cuda import HandwrittenCode, Launch, memory
from graphfw.runtime.kernels.ir import Kernel
from graphfw.runtime.kernels.printer import show

PRELUDE = (Path(__file__).parent / "prelude.cuh").read_text("utf-8")
"""The code that all kernels share."""

_GROUPS = {
    "single": "gf_single",
    "warp": "gf_warp",
    "block": "gf_block",
    "split": "gf_block",
    "across": "gf_across",
    "apart": "gf_across",
    "sums": "gf_across",
    "items": "gf_block",
}


@dataclass(frozen=True)
class CudaCode:
    """The code of a kernel for GPUs.

    Its functions, one a variant, take the buffers' addresses, the run-time integers (int64), the
    address of an int32 that becomes 1 where a check fails, with as many zeros after it as the
    launch says, and that of its scratch memory, or null where it needs none.

    Attributes:
        kernel: The kernel.
        is_guarded: Whether a launch does nothing where a check has failed before.
    """

    kernel: Kernel
    is_guarded: bool = False

    @cached_property
    def key(self) -> str:
        """The kernel's text."""
        return show(self.kernel) + ("unless a check has failed\n" if self.is_guarded else "")

    @cached_property
    def symbol(self) -> str:
        """The prefix of its functions' names; the variant's name follows."""
        return f"gf_{hashlib.sha256(self.key.encode()).hexdigest()[:24]}"

    @property
    def variants(self) -> tuple[str, ...]:
        """The names of its variants."""
        return variants(self.kernel)

    def possible(self, params: Sequence[DimLike]) -> tuple[str, ...]:
        """Return the variants that launches may be, given what is known of these integers."""
        return possible(self.kernel, params)

    def launch(self, params: Sequence[int]) -> Launch:
        """Return how it is launched with these run-time integers."""
        return launch(self.kernel, params)

    def source(self, wanted: Collection[str] | None = None) -> str:
        """Return the definitions of its functions, of all variants or those that are wanted.

        Of those for several launches (see `batched_launch`), only what is wanted.
        """
        kernel = self.kernel
        kinds = [f"{'' if b.written else 'const '}{memory(b.dtype)}*" for b in kernel.buffers]
        parameters = [f"{kind} b{number}" for number, kind in enumerate(kinds)]
        parameters += [f"gf_i64 w{number}" for number in range(kernel.params)]
        shared = ["int* failed", "char* scratch"]
        own, parameters = parameters, [*parameters, *shared]
        arguments = ", ".join([text.split()[-1] for text in parameters])
        signature = ", ".join(parameters)
        indices = [f"    const gf_index p{n} = (gf_index)w{n};" for n in range(kernel.params)]
        lines = [
            *[f"// {line}" for line in self.key.splitlines()],
            f"template <{_parameters(kernel)}>",
            f"GF void {self.symbol}_body({signature}) {{",
            *[*indices, *CudaNest(kernel).lines(), "}"],
        ]
        for variant in self.variants:
            if wanted is not None and variant not in wanted:
                continue
            bound = f"__launch_bounds__({threads(variant)})"
            head = f'extern "C" __global__ void {bound} {self.symbol}_{variant}({signature}) {{'
            guard = ["    if (*failed) return;"] if self.is_guarded else []
            if variant == "tile":
                found = tiled(kernel)
                assert found is not None
                lines += [head, *guard, *indices, *tile_lines(kernel, found), "}"]
            else:
                call = f"{self.symbol}_body<{_arguments(kernel, variant)}>"
                lines += [head, *guard, f"    {call}({arguments});", "}"]
                name = f"{self.symbol}_{variant}{MANY}"
                if wanted is not None and f"{variant}{MANY}" in wanted:
                    lines += together_lines(name, bound, call, own, shared, guard)
        return "\n".join([*lines, ""])


GpuCode: TypeAlias = "CudaCode | HandwrittenCode"
"""The code of a kernel, generated or written by hand."""


def module(codes: Iterable[GpuCode], wanted: Mapping[str, Collection[str]] | None = None) -> str:
    """Return the source of a module that has several kernels.

    Args:
        codes: The kernels.
        wanted: By symbol, which of their variants; all by default.
    """
    found = {code.symbol: code for code in codes}
    sources = [
        code.source(None if wanted is None else wanted[symbol]) for symbol, code in found.items()
    ]
    texts = dict.fromkeys(
        [code.text for code in found.values() if isinstance(code, HandwrittenCode)]
    )
    called = [name for name in FUNCTIONS if any([f"gf_{name}(" in source for source in sources])]
    return "\n".join([PRELUDE, *map(definition, called), *texts, *sources])


def _parameters(kernel: Kernel) -> str:
    if form_of(kernel) == "elements":
        return "int V"
    return f"class G, int V{', bool IS_SPLIT' if can_split(kernel) else ''}"


def _arguments(kernel: Kernel, variant: str) -> str:
    width = vector_width(kernel) if variant.endswith("vector") else 1
    if form_of(kernel) == "elements":
        return str(width)
    name = variant.removesuffix(VECTOR)
    group = "gf_single" if (name, kernel.form) == ("items", "columns") else _GROUPS[name]
    is_split = [str(variant in SPLIT).lower()] if can_split(kernel) else []
    return ", ".join([group, str(width), *is_split])
