"""Operators as older opsets have them, compared with ONNX Runtime."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphfw as gf
from tests.onnx.runtime import started
from tests.onnx.suite import as_array, cases, compare

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
IMAGE = np.random.default_rng(1).standard_normal((1, 4, 4, 6)).astype(np.float32)
INDEX = np.asarray([[1, 0, 2]])
ROIS = np.asarray([[0, 0, 0, 3, 3], [0, 1, 1, 5, 2]], np.float32)
REDUCTIONS = (
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean"),
    *("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
)

# Operator, opset, inputs (those after the first are part of the model), attributes.
CASES = [
    ("Clip", 7, [X], {"min": -0.5, "max": 0.5}),
    ("Clip", 7, [X], {}),
    ("DepthToSpace", 10, [IMAGE], {"blocksize": 2}),
    ("DepthToSpace", 12, [IMAGE], {"blocksize": 2, "mode": "CRD"}),
    ("SpaceToDepth", 12, [IMAGE], {"blocksize": 2}),
    ("Pad", 10, [X], {"pads": [1, 0, 0, 2, 1, 0], "value": 2.5}),
    ("Pad", 10, [X], {"pads": [0, 1, 1, 0, 1, 2], "mode": "reflect"}),
    ("Slice", 9, [X], {"starts": [1, -3], "ends": [9, -1], "axes": [1, 2]}),
    ("Slice", 9, [X], {"starts": [0, 1], "ends": [1, 9]}),
    ("Split", 12, [X], {"axis": 2, "split": [1, 3]}),
    ("Split", 12, [X], {"axis": 2}),
    ("Squeeze", 12, [X[:1]], {"axes": [0]}),
    ("Squeeze", 12, [X[:1]], {}),
    ("Unsqueeze", 12, [X], {"axes": [0, 4]}),
    ("TopK", 9, [X], {"k": 2, "axis": 1}),
    ("TopK", 10, [X, np.asarray([2])], {"axis": 1}),
    ("Softmax", 12, [X], {"axis": 1}),
    ("LogSoftmax", 12, [X], {}),
    ("Hardmax", 12, [X], {"axis": 1}),
    ("Dropout", 9, [X], {"ratio": 0.3}),
    ("Dropout", 10, [X], {"ratio": 0.3}),
    ("Scatter", 10, [X[0], INDEX, X[1, :1, :3]], {"axis": 1}),
    ("ScatterElements", 12, [X[0], INDEX, X[1, :1, :3]], {"axis": 1}),
    ("OneHot", 10, [np.asarray([1, 0, -1]), np.asarray(3), np.asarray([2, 5], np.float32)], {}),
    ("Upsample", 7, [IMAGE], {"scales": [1.0, 1.0, 2.0, 3.0], "mode": "nearest"}),
    ("Upsample", 8, [IMAGE], {"scales": [1.0, 1.0, 2.0, 3.0], "mode": "linear"}),
    ("Upsample", 9, [IMAGE, np.asarray([1, 1, 2, 3], np.float32)], {"mode": "linear"}),
    ("Resize", 10, [IMAGE, np.asarray([1, 1, 2, 3], np.float32)], {"mode": "linear"}),
    ("Resize", 10, [IMAGE, np.asarray([1, 1, 2, 0.5], np.float32)], {"mode": "nearest"}),
    ("RoiAlign", 10, [IMAGE, ROIS[:, 1:], np.asarray([0, 0])], {"sampling_ratio": 2}),
    ("RoiAlign", 16, [IMAGE, ROIS[:, 1:], np.asarray([0, 0])], {"sampling_ratio": 2}),
    ("MaxRoiPool", 7, [IMAGE, ROIS], {"pooled_shape": [2, 3]}),
    ("MaxRoiPool", 21, [IMAGE, ROIS], {"pooled_shape": [3, 2], "spatial_scale": 0.5}),
    ("CumSum", 11, [X, np.asarray(1)], {"reverse": 1}),
    ("Gemm", 8, [X[0], X[1], np.ones((1, 3), np.float32)], {"transB": 1, "beta": 0.5}),
    ("BatchNormalization", 8, [X, *np.ones((4, 3), np.float32)], {"epsilon": 0.1}),
    ("BatchNormalization", 13, [X, *np.ones((4, 3), np.float32)], {"epsilon": 0.1}),
    ("Cast", 8, [X], {"to": TensorProto.INT32}),
    ("Mod", 12, [X, np.abs(X) + 1], {"fmod": 1}),
    *[
        (name, opset, [np.abs(X)], {"axes": [-2, 0], "keepdims": opset % 2})
        for name in REDUCTIONS
        for opset in (10, 11, 13)
        if name != "ReduceSum" or opset < 13
    ],
    *[(name, 17, [np.abs(X)], {}) for name in REDUCTIONS],
    ("LabelEncoder", 1, [INDEX], {"classes_strings": ["a", "b"]}),
]


@pytest.mark.exhaustive(every=4)
@pytest.mark.parametrize(
    ("name", "opset", "inputs", "how"), CASES, ids=[f"{c[0]}-{c[1]}" for c in CASES]
)
def test_attributes_that_became_inputs(tmp_path, name, opset, inputs, how):
    names = [f"x{i}" for i in range(len(inputs))]
    count = {"Split": 2, "TopK": 2, "Dropout": 1}.get(name, 1)
    domain = "ai.onnx.ml" if name == "LabelEncoder" else ""
    graph = helper.make_graph(
        [helper.make_node(name, names, [f"y{i}" for i in range(count)], domain=domain, **how)],
        "old",
        [info("x0", inputs[0])],
        [onnx.ValueInfoProto(name=f"y{i}") for i in range(count)],
        [numpy_helper.from_array(x, n) for n, x in zip(names[1:], inputs[1:], strict=True)],
    )
    opsets = [helper.make_opsetid(domain, opset)]
    if domain:
        opsets.append(helper.make_opsetid("", 12))
    path = tmp_path / "old.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=7), path)
    compare_all(gf.onnx.run(path, {"x0": inputs[0]}), started(path).run(None, {"x0": inputs[0]}))


def info(name, array):
    number = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, number, array.shape)


def compare_all(made, wanted):
    for (name, value), expected in zip(made.items(), wanted, strict=True):
        is_bytes = isinstance(value, np.ndarray) and value.dtype.kind == "V"
        is_bytes = is_bytes and value.dtype != expected.dtype  # float8, of which NumPy has nothing
        compare(name, value.view(np.uint8) if is_bytes else value, expected, 1e-3, 1e-3)


# Where ONNX Runtime has other numbers than the suite: those that are drawn, infinities in masks,
# places in an image of a given size, and sizes that it rounds before it computes with them.
_APART = (
    "bernoulli",
    "attention",
    "maxunpool_export_with_output_shape",
    "scales_linear_align_corners",
    "scales_cubic_align_corners",
)


def older(name):
    """Return for each version of an operator the newest opset that has it, from 7 to 23."""
    history = onnx.defs.get_all_schemas_with_history()
    versions = sorted(s.since_version for s in history if (s.domain, s.name) == ("", name))
    ends = [after - 1 for _, after in itertools.pairwise(versions)]
    return [end for end in ends if 7 <= end <= 23]


@pytest.mark.slow  # half a minute
@pytest.mark.parametrize("share", range(8))
def test_the_suite_s_cases_in_older_opsets(tmp_path, monkeypatch, share):
    """Cases of the newest opset serve where ONNX Runtime takes them for an older one as well."""
    monkeypatch.setenv("GRAPHFW_JIT", "0")
    done = 0
    for case in list(cases("node").values())[share::8]:
        model = case.model
        node = model.graph.node[0] if model is not None and len(model.graph.node) == 1 else None
        if node is None or node.domain or any(word in case.name for word in _APART):
            continue
        for opset in older(node.op_type):
            old = onnx.ModelProto()
            old.CopyFrom(model)
            old.ir_version = min(model.ir_version, 10)
            old.opset_import[0].version = opset
            path = tmp_path / "old.onnx"
            onnx.save(old, path)
            pairs = zip(model.graph.input, case.data_sets[0][0], strict=False)
            feeds = {info.name: as_array(x) for info, x in pairs if x is not None}
            try:
                wanted = started(path).run(None, feeds)
            except Exception:  # it has no class of its own for what this opset is not like
                continue
            made = gf.onnx.run(path, feeds)
            compare_all(made, wanted)
            done += 1
    assert done > 50
