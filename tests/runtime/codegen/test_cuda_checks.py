"""Checks of kernels with GRAPHFW_TEST_CHECK: they find faults, and nothing else."""

import functools
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.dtype import float16, float32, float64
from graphfw.runtime.cupy_executor import codegen
from graphfw.runtime.cupy_executor.codegen import PRELUDE, CudaCode, module
from graphfw.runtime.cupy_executor.codegen.launch import SHARED, launch
from graphfw.runtime.kernels.ir import (
    Accumulate,
    InnerLoop,
    Keep,
    Load,
    Param,
    Reduce,
    Ref,
    Store,
)
from graphfw.runtime.kernels.scalars import Scalars
from tests.support import fake_cupy
from tests.support.cuda_host import can_check, host_module
from tests.support.cuda_kernels import CUDA
from tests.support.cuda_machines import OnCpu
from tests.support.kernels import MATRIX, at, matrix_kernel, run

_TENSOR_CORES = (Path(codegen.__file__).parents[1] / "tensor_cores.cuh").read_text("utf-8")
_GIVEN = "float* b0, const float* b1, gf_i64 w0, int* failed, char* scratch"


@pytest.fixture(autouse=True)
def checked(monkeypatch) -> None:
    if not can_check():
        pytest.skip("needs g++ 12 or newer")
    monkeypatch.delenv("GRAPHFW_TEST_GPU", raising=False)
    monkeypatch.setenv("GRAPHFW_TEST_CHECK", "3")
    monkeypatch.setenv("GRAPHFW_JIT", "1")


# Of two blocks the last that comes reads what both have written. A fence orders what its own thread
# does, and what barriers have put before that: so one thread makes it for all, behind a barrier.
_COUNTED = (
    "float* s = (float*)scratch; s[64 * blockIdx.y + i] = 1; __shared__ bool last; "
    "__syncthreads(); if (i == 0) { "
    "__threadfence(); last = atomicInc((unsigned*)failed + 1, 1) == 1; __threadfence(); } "
    "__syncthreads(); if (last) b0[i] = s[63 - i] + s[127 - i];"
)
# What is done right, what is done in its place, and what is said of that.
FAULTS = {
    "block": (
        "__shared__ float s[64]; s[i] = b1[i]; __syncthreads(); b0[i] = s[63 - i];",
        ("__syncthreads();", ""),
        "it reads what another thread writes: 4 bytes at gf_wrong::s + ",
    ),
    # Shuffles order nothing.
    "warp": (
        "__shared__ float s[64]; s[i] = b1[i]; __syncwarp(); b0[i] = s[i ^ 1];",
        ("__syncwarp();", "gf_from_lane(0, 0);"),
        "it reads what another thread writes: 4 bytes at gf_wrong::s + ",
    ),
    "read, then written": (
        "float* s = (float*)gf_dynamic(); s[i] = 1; __syncthreads(); const float x = s[63 - i]; "
        "__syncthreads(); s[i] = x;",
        ("const float x = s[63 - i]; __syncthreads();", "const float x = s[63 - i];"),
        "it writes what another thread reads: 4 bytes at the block's memory + ",
    ),
    "blocks": (
        "if (i == 0) b0[blockIdx.y] = 1;",
        ("b0[blockIdx.y]", "b0[0]"),
        "it writes what another thread writes: 4 bytes at b0 + 0",
    ),
    "before a counter": (
        _COUNTED,
        ("__threadfence(); last", "last"),
        "it reads what another thread writes: 4 bytes at scratch + ",
    ),
    "behind a counter": (
        _COUNTED,
        ("== 1; __threadfence();", "== 1;"),
        "it reads what another thread writes: 4 bytes at scratch + ",
    ),
    "where": (
        "b0[i] = b1[i];",
        ("b0[i]", "b0[i + 1]"),
        "it is outside of all memory that it may access: 4 bytes 0 behind b0, which has 256",
    ),
    "only read": (
        "b0[i] = b1[i];",
        ("b0[i]", "((float*)b1)[i]"),
        "it writes what is only to be read: 4 bytes at b1 + ",
    ),
    "aligned": (
        "if (i < 15) *(gf_pack<float, 4>*)(b0 + 4 * i) = *(const gf_pack<float, 4>*)(b1 + 4 * i);",
        ("(b1 + 4 * i)", "(b1 + 4 * i + 2)"),
        "it accesses what is not aligned",
    ),
    "copy": (
        "float* s = (float*)gf_dynamic(); if (i < 16) gf_copy_async(s + 4 * i, b1 + 4 * i, true); "
        "gf_copies_done(); gf_wait_copies<0>(); __syncthreads(); b0[i] = s[i];",
        ("gf_wait_copies<0>();", "gf_wait_copies<1>();"),
        "it does not wait for a copy: 4 bytes at the block's memory + ",
    ),
    "rows": (
        "unsigned* s = (unsigned*)gf_dynamic(); s[i] = i; __syncthreads(); unsigned x[4]; "
        "gf_ldmatrix(x, s + i % 8 * 8); b0[i] = x[0];",
        ("__syncthreads();", ""),
        "it reads what another thread writes: 2 bytes at the block's memory + ",
    ),
    "unwritten": (
        "float* s = (float*)scratch; s[i] = 1; b0[i] = s[i];",
        ("s[i] = 1;", ""),
        "it reads what nobody has written: 4 bytes at scratch + ",
    ),
    "diverging": (
        "float x = gf_from_lane(1.0f, 1); b0[i] = x;",
        ("float x = ", "float x = i % 2 ? gf_from_lane(1.0f, 1) : "),
        "it waits at another place than the threads that it waits for",
    ),
    "hanging": (
        "__syncthreads(); b0[i] = 1;",
        ("__syncthreads();", "if (i < 32) __syncthreads();"),
        "it waits for others that never come",
    ),
    "index": (
        "int n = (int)w0 - i; b0[i] = n > 0;",
        ("- i", "+ i"),
        "a sum overflows",
    ),
    "cast": (
        "b0[i] = (int)(b1[i] * 1e9f);",
        ("1e9f", "1e10f"),
        "an integer has no room for a float",
    ),
    "array": (
        "int n[4] = {}; b0[i] = n[i % 4];",
        ("i % 4", "i % 5"),
        "an index outside of an array",
    ),
}


@functools.cache
def source():
    """The kernels of all faults, and what is right in their place."""
    lines = [PRELUDE, _TENSOR_CORES]
    for number, (body, (old, new), _) in enumerate(FAULTS.values()):
        assert old in body
        for name, code in (("right", body), ("wrong", body.replace(old, new))):
            head = (
                f'extern "C" __global__ void __launch_bounds__(64) gf_{name}_{number}({_GIVEN}) {{'
            )
            lines += [head, "const int i = threadIdx.x;", code, "}"]
    return "\n".join(lines)


def run_one(name, fault):
    """Run a kernel: 64 threads, as many floats to write and to read, and scratch memory."""
    machine = OnCpu()
    function = machine.function(source(), f"gf_{name}_{[*FAULTS].index(fault)}", False, 0)
    y, x = np.zeros(64, np.float32), np.ones(64, np.float32)
    flags, scratch = np.zeros(2, np.int32), np.zeros(128, np.float32)
    args = [np.uint64(machine.address(y)), np.uint64(machine.address(x)), np.int64(2**31 - 1)]
    args += [np.uint64(machine.address(flags))]
    args += [np.uint64(machine.address(scratch, is_fresh=True))]
    blocks = 2 if "blockIdx" in FAULTS[fault][0] else 1
    function((1, blocks), (64, 1), args, shared_mem=256)


@pytest.mark.exhaustive(every=4)
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault):
    run_one("right", fault)
    with pytest.raises(AssertionError) as caught:
        run_one("wrong", fault)
    found = re.sub(r"(gf_wrong)_\d+", r"\1", str(caught.value))
    assert found.startswith("gf_wrong\n")
    assert FAULTS[fault][2] in found
    assert "    thread " in found
    assert "gf_wrong: " in found  # the function, and its line


def kernel_of(form, body, dtype, *written):
    return matrix_kernel(body, *[(dtype, one) for one in written], form=form)


_X = Load(float32, 0, MATRIX)
_OVER = Store(1, MATRIX, Scalars().mul(_X, _X))


# The last columns have fewer neighbours than there are threads side by side.
@pytest.mark.parametrize(
    ("form", "body"),
    [
        (
            "columns",
            (InnerLoop((Reduce("r", "sum", _X), _OVER)), Store(2, at(j=1), Ref(float32, "r"))),
        ),
        ("rows", (InnerLoop((_OVER, Accumulate(2, at(j=1), "sum", _X, True))),)),
        ("columns", (InnerLoop((_OVER, Accumulate(2, at(i=1), "sum", _X, True))),)),
    ],
)
def test_threads_without_a_column_leave_others_theirs(form, body, rng):
    kernel = kernel_of(form, body, float32, False, True, True)
    x, sums = rng.normal(size=9 * 75).astype(np.float32), np.ones(75, np.float32)
    wanted = x * x
    assert run(kernel, [x, x, sums], [9, 75, 75], CUDA) == 0
    np.testing.assert_array_equal(x, wanted)


@pytest.mark.smoke
@pytest.mark.parametrize("form", ["rows", "columns"])
def test_all_have_read_what_one_writes_over(form, rng):
    k, access = Scalars(), at(i=1) if form == "rows" else at(j=1)
    y = k.add(Load(float32, 1, access), Ref(float32, "r"))
    body = (InnerLoop((Reduce("r", "sum", _X),)), Store(2, access, y))
    kernel = kernel_of(form, body, float32, False, False, True)
    x = rng.integers(0, 9, (5, 75)).astype(np.float32)
    y = np.ones(5 if form == "rows" else 75, np.float32)
    assert run(kernel, [x.reshape(-1), y, y], [5, 75, 64], CUDA) == 0
    np.testing.assert_array_equal(y, 1 + x.sum(axis=1 if form == "rows" else 0))


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", [float16, float64], ids=str)
@pytest.mark.parametrize(("form", "variant"), [("rows", "block"), ("columns", "across")])
def test_kept_rows_leave_room_for_joins(form, variant, dtype):
    k, x = Scalars(), Load(dtype, 0, at(i=Param(1), j=1))
    keep = Keep("e", k.sub(x, Ref(dtype, "m")))
    first = InnerLoop((Reduce("m", "max", x), Reduce("n", "argmax", x)))
    last = InnerLoop((Store(1, at(i=Param(1), j=1), Ref(dtype, "e")),))
    body = (first, InnerLoop((keep, Reduce("s", "sum", x))), last)
    code = CudaCode(kernel_of(form, body, dtype, False, True))
    sizes = [(4, m, 1) if form == "rows" else (m, 64, 1) for m in range(16, 16384, 16)]
    launches = [launch(code.kernel, size, variant) for size in sizes]
    most = max([one.shared for one in launches])
    source = module([code], {code.symbol: {variant}})
    checks = host_module(source)[f"{code.symbol}_{variant}"].checks
    joins = sum([nbytes for _, _, nbytes in checks.own])
    assert joins > 0
    # No more than there is, and not much less.
    assert 40 << 10 < most + joins <= SHARED
    assert any(one.scratch for one in launches)


def attention():
    shape = (1, 1, 80, 16)
    return gf.scaled_dot_product_attention(*[gf.placeholder(shape, name=name) for name in "qkv"]), [
        shape
    ] * 3


def total():
    x = gf.placeholder((2, 20000), name="x")
    return gf.sum(x, axis=1) + gf.sum(x * x, axis=1), [(2, 20000)]


@pytest.mark.exhaustive(every=4)
@pytest.mark.parametrize(
    ("built", "old", "message"),
    [
        (attention, "__syncthreads();  // all values", "gf_attention_forward.*writes: 8 bytes"),
        (attention, "__syncthreads();  // all keys", "gf_attention_forward.*writes: 16 bytes"),
        (total, "__threadfence();", "_split_vector.*it reads what another thread writes"),
        (total, "__syncthreads();  // until all", "_split_vector.*it writes what another"),
    ],
)
def test_what_is_taken_from_a_kernel_is_missed(built, old, message, fake, monkeypatch, rng):
    with gf.Graph() as g:
        y, shapes = built()
    feeds = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    given = dict(zip(g.placeholders, feeds, strict=True))
    with gf.Session(g, executor="cupy") as session:
        session.run(y, given)

    def planted(source, wide):
        assert old in source
        return host_module(source.replace(old, old.partition(";")[2]), wide)

    monkeypatch.setattr(fake_cupy, "host_module", planted)
    with (
        gf.Session(g, executor="cupy") as session,
        pytest.raises(AssertionError, match=f"(?s){message}"),
    ):
        session.run(y, given)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("codegen/test_columns.py", "cuda"),
        ("codegen/test_rows.py", "cuda"),
        ("cupy_executor/test_attention.py", "float16"),
        ("cupy_executor/test_convolution.py", "float32"),
        ("cupy_executor/test_special.py", "test"),
    ],
)
def test_kernels_pass(file, names):
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    command += ["-k", names, str(Path(__file__).parents[1] / file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
