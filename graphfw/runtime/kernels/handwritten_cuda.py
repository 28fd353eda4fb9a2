"""`HandwrittenCode`: a kernel that is written by hand in CUDA C++, beside those that are generated.

To add one for an op:

1. Write a function, as `template <...> GF void gf_...(const float* x, float* y, gf_i64 n, int*
   failed, char* scratch)`, in a `.cuh` file of its folder. What prelude.cuh has is there: groups of
   threads, joins in a fixed order, 16-bit floats, `gf_index`, `gf_dynamic()`.
2. Make a `HandwrittenCode`: that text, the buffers, how many run-time integers there are, the
   calls that make variants of the function, and what chooses among these at given sizes and says
   how it is launched.
3. Return steps with this code from a function that `lowers` registers: in `cupy_executor.lowerings`
   or, with `gf.extend.lowers`, in another package. Operands, `written`, and params are as of any
   other step; `can_fail=True` where the function may set `*failed` to 1, `work_items=1`.

`tests/support/cuda_kernels.py` runs such steps on the CPU as it does generated ones (`run_by_hand`;
tests/runtime/cupy_executor/test_handwritten.py is an example), and has GPUs' compilers take them.
With GRAPHFW_TEST_CHECK=1 such tests find races, and accesses that are out of place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from graphfw.ir.dtype import DType
from graphfw.runtime.kernels.ir import Buffer
from graphfw.utils.hashing import blake2b

_TYPES = {
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "gf_i64",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned",
    "uint64": "gf_u64",
    "float16": "gf_half",
    "bfloat16": "gf_bf16",
    "float32": "float",
    "float64": "double",
    # Kernels copy complex numbers as their bits, and compute nothing of them.
    "complex64": "gf_u64",
    "complex128": "gf_u128",
}


def memory(dtype: DType) -> str:
    """Return the type of an element in memory."""
    if dtype.is_bool or dtype.is_storage:
        return "unsigned char"
    return _TYPES[dtype.name]


class Launch(NamedTuple):
    """One launch.

    Attributes:
        variant: Which of the kernel's functions.
        grid: How many blocks; 0: there is nothing to do.
        pieces: How many times as many there are, along y, because they share rows.
        block: How many threads each has, along x and y.
        shared: Bytes of memory of its own that each block has.
        scratch: Bytes of memory that the launch is given, for kept values or partial rows.
        counters: Of how many blocks that share rows it is counted which are done.
        is_wide: Whether indices, `gf_index`, need 64 bits.
    """

    variant: str
    grid: int
    pieces: int = 1
    block: tuple[int, int] = (256, 1)
    shared: int = 0
    scratch: int = 0
    counters: int = 0
    is_wide: bool = False


NOTHING = Launch("", 0, block=(1, 1))
"""No launch: where there is nothing to compute."""


class Variant(NamedTuple):
    """One of the functions that a kernel has.

    Attributes:
        name: What its symbol ends with, and `Launch.variant` names.
        call: What it calls: a function of the text, with its template's arguments. It is given the
            buffers' addresses, the run-time integers (gf_i64), `failed` and `scratch`, as they are
            described at `CudaCode`.
        threads: How many threads a block has at most.
        together: How many blocks a multiprocessor is to have room for: so many registers are left
            to each thread.
    """

    name: str
    call: str
    threads: int
    together: int = 1


@dataclass(frozen=True)
class HandwrittenCode:
    """The code of a kernel that is written by hand.

    Attributes:
        name: What it is called in sources: a C identifier.
        text: Definitions that it needs; several kernels may share one text, which a module has
            once.
        buffers: Its operands.
        params: How many run-time integers it has.
        functions: Its variants.
        launching: What returns how it is launched with given run-time integers.
        own: Definitions for this kernel only, after those of `text`.
    """

    name: str
    text: str
    buffers: tuple[Buffer, ...]
    params: int
    functions: tuple[Variant, ...]
    launching: Callable[[Sequence[int]], Launch] = field(compare=False)
    own: str = ""

    @cached_property
    def key(self) -> str:
        """All that machine code is made of."""
        return "\n".join([self.source(), self.text])

    @cached_property
    def symbol(self) -> str:
        """The prefix of its functions' names; the variant's name follows."""
        facts = repr((self.name, self.text, self.buffers, self.params, self.functions, self.own))
        return f"gf_{self.name}_{blake2b(facts.encode(), digest_size=12).hexdigest()}"

    @property
    def variants(self) -> tuple[str, ...]:
        """The names of its variants."""
        return tuple([variant.name for variant in self.functions])

    def launch(self, params: Sequence[int]) -> Launch:
        """Return how it is launched with these run-time integers."""
        return self.launching(params)

    def source(self, wanted: Collection[str] | None = None) -> str:
        """Return the definitions of its functions, of all variants or those that are wanted."""
        kinds = [f"{'' if b.written else 'const '}{memory(b.dtype)}*" for b in self.buffers]
        parameters = [f"{kind} b{number}" for number, kind in enumerate(kinds)]
        parameters += [f"gf_i64 w{number}" for number in range(self.params)]
        parameters += ["int* failed", "char* scratch"]
        arguments = ", ".join([text.split()[-1] for text in parameters])
        lines = [self.own]
        for name, call, threads, together in self.functions:
            if wanted is None or name in wanted:
                bounds = f"__launch_bounds__({threads}, {together})"
                head = f'extern "C" __global__ void {bounds} '
                lines.append(f"{head}{self.symbol}_{name}({', '.join(parameters)}) {{")
                lines.append(f"    {call}({arguments});\n}}")
        return "\n".join([*lines, ""])
