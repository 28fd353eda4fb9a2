"""The contents of generated code: regions, modules, keys, scratch memory."""

import ctypes

import numpy as np
import pytest

from graphfw.ir.dtype import float32, int64
from graphfw.runtime.kernels.ir import (
    Access,
    Accumulate,
    Axis,
    Buffer,
    InnerLoop,
    Keep,
    Kernel,
    Load,
    Param,
    Reduce,
    Ref,
    Store,
    Term,
)
from graphfw.runtime.kernels.scalars import Scalars
from graphfw.runtime.numpy_executor.codegen import (
    AVX2,
    AVX512,
    FunctionText,
    KernelCode,
    host,
    module,
    region,
    scratch_bytes,
)
from tests.support.kernels import TARGETS, at, check, function

k = Scalars()
WIDTH = host().vector_bytes
MATRIX = at(a=Param(3), i=Param(1), j=1)
BUFFERS = (Buffer(float32, False), Buffer(float32, True))


def rows(*body, form="rows"):
    outer = (Axis("a", Param(0)), Axis("i", Param(2)))
    return Kernel(form, outer, (Axis("j", Param(1)),), 1, None, BUFFERS, 4, body)


def plain():
    return rows(InnerLoop((Store(1, MATRIX, k.exp(Load(float32, 0, MATRIX))),)))


def called(*regions):
    """Return a function that calls the one that is named `piece`: buffers, params, where."""
    entry = FunctionText(
        "define i32 @entry_of_region(ptr %b, ptr %p, ptr %at) {\n"
        + "".join(
            f"%p{n} = getelementptr i64, ptr %at, i64 {n}\n%x{n} = load i64, ptr %p{n}\n"
            for n in range(4)
        )
        + "%r = call i32 @piece(ptr %b, ptr %p, i64 %x0, i64 %x1, i64 %x2, i64 %x3, ptr null)\n"
        "ret i32 %r\n}\n",
        {},
        (),
    )
    signature = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3)
    return signature(function(module([entry, *regions]), "entry_of_region"))


def test_a_region_is_a_rectangle(rng):
    kernel = plain()
    call = called(region(kernel, "piece"), region(kernel, "another"))
    a, i, j = 2, 5, 99
    x = rng.standard_normal((a * i, j)).astype(np.float32)
    params = np.array([a, j, i, i * j])
    for row0, row1, col0, col1 in ((0, 10, 0, 99), (3, 8, 5, 41), (4, 6, 98, 99), (2, 2, 0, 9)):
        out = np.zeros_like(x)
        pointers = np.array([x.ctypes.data, out.ctypes.data])
        bounds = np.array([row0, row1, col0, col1])
        assert call(pointers.ctypes.data, params.ctypes.data, bounds.ctypes.data) == 0
        wanted = np.zeros_like(x)
        wanted[row0:row1, col0:col1] = np.exp(x[row0:row1, col0:col1])
        np.testing.assert_allclose(out, wanted, rtol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
def test_a_region_reduces_its_own_columns(rng, target):
    total = Reduce("r", "sum", Load(float32, 0, MATRIX))
    kernel = rows(InnerLoop((total,)), Store(1, at(a=Param(2), i=1), Ref(float32, "r")))
    call = called(region(kernel, "piece", target))
    a, i, j = 2, 5, 99
    x = rng.standard_normal((a * i, j)).astype(np.float32)
    params = np.array([a, j, i, i * j])
    for row0, row1, col0, col1 in ((0, 10, 0, 99), (3, 8, 5, 41), (4, 6, 98, 99), (0, 3, 9, 9)):
        out = np.zeros(a * i, np.float32)
        pointers = np.array([x.ctypes.data, out.ctypes.data])
        bounds = np.array([row0, row1, col0, col1])
        assert call(pointers.ctypes.data, params.ctypes.data, bounds.ctypes.data) == 0
        wanted = np.zeros_like(out)
        wanted[row0:row1] = x[row0:row1, col0:col1].sum(axis=1)
        np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "kernel",
    [
        rows(InnerLoop((Keep("r", Load(float32, 0, MATRIX)),))),
        rows(InnerLoop((Accumulate(1, at(), "sum", Load(float32, 0, MATRIX), False),))),
        rows(InnerLoop((Store(1, MATRIX, Load(float32, 0, MATRIX)),)), form="columns"),
    ],
)
def test_regions_are_of_plain_rows(kernel):
    with pytest.raises(ValueError, match="a region is of a kernel of rows"):
        region(kernel, "piece")


def test_a_store_needs_a_place_for_each_lane():
    kernel = rows(InnerLoop((Store(1, at(i=1), Load(float32, 0, MATRIX)),)))
    with pytest.raises(ValueError, match="differs along vectors, but not its address"):
        KernelCode(kernel).llvm("f")


def test_keys():
    assert KernelCode(plain()).key == KernelCode(plain()).key
    assert KernelCode(plain(), AVX512).key != KernelCode(plain(), AVX2).key
    assert host() in (AVX512, AVX2, KernelCode(plain()).target)


def test_scratch_memory():
    assert scratch_bytes(plain()) == (0, 0)
    body = (InnerLoop((Keep("x", Load(float32, 0, MATRIX)), Keep("n", Load(int64, 0, MATRIX)))),)
    assert scratch_bytes(rows(*body), AVX512) == (12, 128)
    assert scratch_bytes(rows(*body, form="columns"), AVX512) == (12 * 32, 128)


def test_code_that_cannot_fail_has_no_other_result():
    assert "ret i32 1" not in KernelCode(plain()).llvm("f")
    index = Load(int64, 0, at(i=1))
    table = Load(float32, 0, Access(0, (("j", 1),), (Term(index, 1, Param(0)),)))
    assert "ret i32 1" in KernelCode(rows(InnerLoop((Store(1, MATRIX, table),)))).llvm("f")


def of_functions(count):
    """Return a kernel with so many calls of functions of the library for each element."""
    value = Load(float32, 0, MATRIX)
    for _ in range(count):
        value = k.sin(k.add(value, value))
    return rows(InnerLoop((Store(1, MATRIX, value),)))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_the_rest_of_vectors_calls_many_functions(target, rng):
    """They are written into the loop of whole vectors alone: twice would be as long to compile."""
    assert KernelCode(of_functions(7), target).llvm("f").count(") noinline\n") == 0
    kernel = of_functions(8)
    assert KernelCode(kernel, target).llvm("f").count(") noinline\n") == 8
    for i, j in ((3, 5), (2, 16), (5, 131)):
        x = rng.standard_normal(i * j).astype(np.float32)
        check(kernel, [x, np.zeros_like(x)], [1, j, i, i * j], rtol=1e-5, target=target)
