"""`gf.onnx.save` of dtypes that numbers are only kept in, which few operators of ONNX take."""

from __future__ import annotations

import inspect

import numpy as np
import onnx
import pytest

import graphfw as gf
from graphfw.ir.dtype import BY_NAME, STORAGE, DType, as_dtype
from graphfw.onnx.stored import OPSETS, check_operator
from graphfw.onnx.types import number_of

REFUSED = {
    "slice": (lambda x: x[1:3], "Slice"),
    "flip": (lambda x: gf.flip(x), "Slice"),
    "concat": (lambda x: gf.concat([x, x]), "Concat"),
    "gather": (lambda x: gf.take(x, gf.constant([0, 2]), axis=0), "Gather"),
    "split": (lambda x: gf.split(x, 2)[0], "Split"),
    "broadcast_to": (lambda x: gf.broadcast_to(x, (3, 4, 4)), "Expand"),
    "where": (lambda x: gf.where(gf.constant([True, False, True, True]), x, x.T), "Where"),
    "equal": (lambda x: x == x.T, "Equal"),
}
TAKEN = {
    "reshape": lambda x: gf.reshape(x, (2, 8)),
    "permute_dims": lambda x: gf.permute_dims(x, (1, 0)),
    "expand_dims": lambda x: gf.expand_dims(x, axis=0),
    "cond": lambda x: gf.cond(gf.constant(True), lambda: x, lambda: x.T),
    "scan": lambda x: gf.scan(lambda carry, row: (carry, row), x, x)[1],
    "itself": lambda x: x,
}


def graph_of(make, dtype: DType):
    with gf.Graph() as graph:
        x = gf.astype(gf.placeholder((4, 4), name="x"), dtype)
        return graph, make(x)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", STORAGE, ids=str)
@pytest.mark.parametrize("name", REFUSED)
def test_what_no_operator_takes_is_named_with_its_line(name, dtype, tmp_path):
    make, operator = REFUSED[name]
    graph, y = graph_of(make, dtype)
    with pytest.raises(gf.onnx.OnnxError) as caught:
        gf.onnx.save(graph, y, tmp_path / "m.onnx", opset=26)
    assert f"{name} (ONNX's {operator} has no {dtype.name}) at test_save_st" in str(caught.value)
    assert caught.value.at.line == inspect.getsourcelines(make)[1]
    assert caught.value.fix == "convert before: gf.astype(x, gf.float32)"
    assert not (tmp_path / "m.onnx").exists()


@pytest.mark.parametrize("name", REFUSED)
def test_they_are_written_when_they_are_converted_before(name, tmp_path):
    make, _ = REFUSED[name]
    graph, y = graph_of(lambda x: make(gf.astype(x, gf.float32)), BY_NAME["float8_e5m2"])
    gf.onnx.save(graph, y, tmp_path / "m.onnx")


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", STORAGE, ids=str)
@pytest.mark.parametrize("name", TAKEN)
def test_what_operators_take_is_written(name, dtype, tmp_path):
    graph, y = graph_of(TAKEN[name], dtype)
    gf.onnx.save(graph, {"y": y}, tmp_path / "m.onnx", opset=26)
    (output,) = onnx.load(tmp_path / "m.onnx").graph.output
    assert output.type.tensor_type.elem_type == number_of(dtype)


def test_an_operator_that_takes_them_later_says_since_when(tmp_path):
    graph, y = graph_of(TAKEN["permute_dims"], BY_NAME["float8_e4m3fn"])
    with pytest.raises(gf.onnx.OnnxError) as caught:
        gf.onnx.save(graph, y, tmp_path / "m.onnx", opset=19)
    assert "permute_dims (Transpose of float8_e4m3fn needs opset 21) at" in str(caught.value)
    assert caught.value.fix == "pass that opset: save(…, opset=…)"
    gf.onnx.save(graph, y, tmp_path / "m.onnx", opset=21)


def test_inputs_that_are_fetched_need_their_opset(tmp_path):
    with gf.Graph() as graph:
        x = gf.placeholder((4,), BY_NAME["int4"], name="x")
    with pytest.raises(gf.onnx.OnnxError, match=r"placeholder \(int4 needs opset 21\)") as caught:
        gf.onnx.save(graph, x, tmp_path / "m.onnx", opset=17)
    assert caught.value.fix == "pass that opset: save(…, opset=…)"
    gf.onnx.save(graph, x, tmp_path / "m.onnx", opset=21)


def test_what_differs_has_no_fix_in_common(tmp_path):
    graph, x = graph_of(lambda x: x, BY_NAME["int4"])
    with graph:
        ys = [x[1:], gf.lgamma(gf.placeholder((2,), name="y"))]
    with pytest.raises(gf.onnx.OnnxError, match=r"lgamma at .*; slice ") as caught:
        gf.onnx.save(graph, ys, tmp_path / "m.onnx")
    assert caught.value.fix.startswith("fetch what does not need them")


def test_other_dtypes_are_not_asked_for():
    check_operator("NoOperator", OPSETS[0], [as_dtype(np.int8), None], [as_dtype(np.float32)])
