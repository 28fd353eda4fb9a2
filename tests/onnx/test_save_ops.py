"""Every op's declared cases, written by `gf.onnx.save` and run by ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.build import emit_all
from graphfw.ir.dtype import STORAGE, DType, as_dtype, bfloat16, float32
from graphfw.ir.graph import Graph
from graphfw.onnx.table import written as written_ops
from tests.onnx.runtime import started
from tests.ops.test_contracts import check_close
from tests.support.samples import OWN, Declared, declared

WITHOUT = frozenset(
    "all_gather all_reduce all_to_all attention_backward axis_index betainc betaln broadcast "
    "cholesky cofactors complex conj connected digamma eig eigh eigvals eigvalsh entr erfcx fft "
    "fused_product gamma gammainc host_call i0 i0e i1 i1e imag implicit_gamma inv irfft j0 j1 "
    "lgamma log_ndtr logit lu matrix_rank ndtri nextafter pack_bits partial_sort pinv pixel_conv "
    "pixel_conv_weight polygamma qr real reduce_scatter reflections rfft slogdet solve "
    "solve_factor solve_triangular svd svdvals unpack_bits window_relu_sum window_route xlog1py "
    "xlogy y0 y1".split()
)
"""Ops that ONNX has nothing for, those that passes make, which are in no graph that is saved, and
those on complex numbers alone, which test_save_pairs.py is about."""

GIVEN = frozenset(["placeholder", "variable", "random_bits"])
"""Ops that are inputs, or compute nothing."""


def is_complex(one: Declared) -> bool:
    return any(t.dtype.is_complex for t in (*one.types, *one.op.infer(*one.types)))


written = [
    d
    for d in declared(lambda op, case: case.error is None)
    if d.op_class.name not in WITHOUT | GIVEN and not is_complex(d)
]


def described(one: Declared, types, op) -> tuple[Graph, list]:
    """Return a graph of the op alone, and its outputs."""
    with Graph() as graph:
        xs = [
            gf.astype(gf.placeholder(t.shape, fed(t.dtype), f"x{i}"), t.dtype)
            for i, t in enumerate(types)
        ]
        for name in one.symbols:  # some are in fields alone
            gf.placeholder((name,), name=f"size_{name}")
        return graph, [gf.astype(y, fed(y.dtype)) for y in emit_all(op, *xs)]


def compare(one: Declared, types, op, rng, tmp_path, opset: int) -> None:
    graph, ys = described(one, types, op)
    path = tmp_path / "op.onnx"
    gf.onnx.save(graph, {f"y{i}": y for i, y in enumerate(ys)}, path, opset=opset)
    runtime = started(path)
    sample = one.bound()
    arrays = sample.draw(rng)
    if one.op_class.name == "searchsorted":
        arrays[0].sort()
    feeds = {f"x{i}": widened(a) for i, a in enumerate(arrays)}
    feeds |= {f"size_{n}": np.zeros(s, np.float32) for n, s in one.sizes.items()}
    names = {i.name for i in runtime.get_inputs()}
    made = runtime.run(None, {n: a for n, a in feeds.items() if n in names})
    wanted = tuple(widened(y) for y in sample.evaluate(np, *arrays))
    for value, reference in zip(made, wanted, strict=True):
        assert value.dtype == reference.dtype
    narrow = any(gf.asarray(a).dtype.is_low_precision for a in arrays)
    check_close(tuple(made), wanted, rtol=8e-3 if narrow else None)


def fed(dtype: DType) -> DType:
    """Return the dtype fed instead: the runtime's Python has none of ml_dtypes' dtypes."""
    return float32 if dtype is bfloat16 or dtype.is_storage else dtype


def widened(array):
    dtype = as_dtype(array.dtype)
    return array if fed(dtype) is dtype else array.astype(np.float32)


@pytest.mark.exhaustive(every=4)
@pytest.mark.parametrize("one", written, ids=str)
def test_cases_in_onnx_runtime(one: Declared, rng, tmp_path):
    compare(one, one.types, one.op, rng, tmp_path, 21)
    sample = one.bound()
    compare(one, sample.types, sample.op, rng, tmp_path, 21)


def test_every_op_is_written_or_known_not_to_be():
    names = set(OWN)
    assert not WITHOUT & written_ops()
    assert names - written_ops() - {"placeholder", "variable"} == WITHOUT


@pytest.mark.parametrize("dtype", [d for d in STORAGE if d.name.startswith("float")], ids=str)
def test_floats_are_kept_as_before_when_a_model_comes_back(dtype, rng, tmp_path):
    with Graph() as graph:
        x = gf.placeholder(("n",), name="x")
        y = gf.astype(gf.astype(x, dtype), gf.float32)
    gf.onnx.save(graph, {"y": y}, tmp_path / "op.onnx", opset=25)
    values = (rng.standard_normal(999) * np.exp(rng.uniform(-9, 30, 999))).astype(np.float32)
    with gf.Session(graph) as session:
        wanted = session.run(y, {x: values})
    np.testing.assert_array_equal(gf.onnx.run(tmp_path / "op.onnx", {"x": values})["y"], wanted)
