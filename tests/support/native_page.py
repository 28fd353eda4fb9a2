"""The page that says which ops have native code: `docs/native-code.md`.

`pytest --update-api` writes it anew: each case that an op declares is compiled for both executors.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import graphfw as gf
import graphfw.distributed  # its ops are made when it is first used
from graphfw.ir.build import emit_all
from graphfw.ir.op import SOURCE, Case
from graphfw.ops.control.region_op import Region
from graphfw.runtime.cupy_executor import compiling as gpu
from graphfw.runtime.cupy_executor import passes as gpu_passes
from graphfw.runtime.executor import Options
from graphfw.runtime.numpy_executor import backend as cpu
from graphfw.runtime.numpy_executor import passes as cpu_passes
from graphfw.runtime.pipeline import Compilation
from graphfw.runtime.program import Program, lower
from tests.support.samples import Declared, declared

PAGE = Path(__file__).parent.parent.parent / "docs" / "native-code.md"

CAPABILITY = "90"

MADE_BY_EXECUTORS = {
    "graphfw.ops.elementwise.packed_bits",
    "graphfw.ops.linalg.fused_matmul",
    "graphfw.ops.nn.attention_backward",
    "graphfw.ops.nn.channels_last",
}
"""Modules of ops that nobody describes."""

MADE_BY_PASSES = {"partial_sort", "reflections", "solve_factor", "window_relu_sum", "window_route"}
"""Further ops that nobody describes."""

INTRODUCTION = """\
# Which operations have native code

Operations without native code are computed by NumPy on a CPU and by CuPy on a GPU: one node at a
time, without fusion. `plan.explain()` and `plan.profile(...)` mark them with "outside of native
code". All other operations have native code: generated kernels, graphfw's own kernels or, on a GPU,
cuBLASLt and cuDNN.

The table lists the ops that a library computes in some of the cases that their tests declare, with
the dtypes of their first inputs; "some" means some shapes or options. Loops and branches are not in
it: their bodies are compiled, and `plan.explain()` says what makes the iterations.

`cholesky`, `inv`, `lu`, `qr` and `solve` have native code where the number of rows is known, not a
symbol; of many matrices `inv`, `lu` and `solve` do up to 32 rows. `eigh` and `eigvalsh` have it for
eight or sixteen matrices and more, of up to 32 rows. `sort` has it where the length of lines is
known: up to 512 elements of 16 bits or more; with AVX2 or AVX-512 up to 8,192 of many lines, and
with AVX-512 any number of floats. Integers of 64 bits have it with AVX-512.

`pytest --update-api` writes this page from the compilers' answers.

| op | on a CPU | on a GPU |
|---|---|---|
"""


def text() -> str:
    """Return the page."""
    rows = []
    for cls, cases in itertools.groupby(declared(_is_shown), lambda case: case.op_class):
        known = list(cases)
        cells = [_cell(known, "numpy", "NumPy"), _cell(known, "cupy", "CuPy")]
        if cells != ["native", "native"]:
            rows.append(f"| `{cls.name}` | {cells[0]} | {cells[1]} |\n")
    return INTRODUCTION + "".join(rows)


def _is_shown(cls: type[gf.Op], case: Case) -> bool:
    is_fixed = isinstance(cls.traits, frozenset) and not issubclass(cls, Region)
    is_described = cls.__module__ not in MADE_BY_EXECUTORS and cls.name not in MADE_BY_PASSES
    return is_fixed and is_described and not (case.match or SOURCE in cls.traits)


def _cell(cases: Sequence[Declared], executor: str, library: str) -> str:
    """Return which cases are computed by a library, by the dtypes of their first input."""
    outside: dict[str, list[bool]] = {}
    for case in cases:
        kind = case.types[0].dtype.name if case.types else "none"
        outside.setdefault(kind, []).append(_is_outside(case, executor))
    if not any(itertools.chain(*outside.values())):
        return "native"
    if all(itertools.chain(*outside.values())):
        return library
    kinds = [f"{'' if all(of) else 'some '}{kind}" for kind, of in outside.items() if any(of)]
    return f"{library}: {', '.join(kinds)}"


def _is_outside(case: Declared, executor: str) -> bool:
    """Whether some node of a case's op is computed outside of native code."""
    sample = case.bound()
    with gf.Graph() as g:
        feeds = [gf.placeholder(t.shape, t.dtype) for t in sample.types]
        outputs = emit_all(sample.op, *feeds)
    passes = cpu_passes.passes() if executor == "numpy" else gpu_passes.passes(CAPABILITY)
    program = lower(list(outputs), [], feeds, g, "off", lambda: tuple(passes))
    nodes = [node for level in _compiled(program, executor).schedule.levels for node in level.nodes]
    return bool(nodes)


def _compiled(program: Program, executor: str) -> Compilation:
    if executor == "numpy":
        return Compilation(program, cpu.CpuBackend(program, Options()))
    return gpu.compilation(program, Options(), CAPABILITY)
