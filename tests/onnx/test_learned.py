"""Classical machine learning, the domain ai.onnx.ml, compared with ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import graphfw as gf
from tests.onnx.runtime import started

REAL, WHOLE, TEXT = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING


def learned(kind, outputs=(REAL,), number=REAL, **how):
    """Return a model of one node from x [n, 4] to y0, y1."""
    names = [f"y{i}" for i in range(len(outputs))]
    graph = helper.make_graph(
        [helper.make_node(kind, ["x"], names, "it", domain="ai.onnx.ml", **how)],
        "one",
        [helper.make_tensor_value_info("x", number, ("n", 4))],
        [helper.make_tensor_value_info(*pair, None) for pair in zip(names, outputs, strict=True)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def compared(tmp_path, model, x):
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    made = gf.onnx.run(path, {"x": x})
    for value, expected in zip(made.values(), started(path).run(None, {"x": x}), strict=True):
        if value.dtype == object:
            assert value.tolist() == expected.tolist()
        else:
            assert value.dtype == expected.dtype
            np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("Scaler", {"offset": [1.0, 2.0, 3.0, 4.0], "scale": [0.5, 1.0, 2.0, 3.0]}),
        *[("Normalizer", {"norm": norm}) for norm in ("MAX", "L1", "L2")],
        ("Binarizer", {"threshold": 0.2}),
        ("FeatureVectorizer", {"inputdimensions": [4]}),
        ("LinearRegressor", {"coefficients": [0.1, -2.0, 3.0, 1.0] * 2, "targets": 2}),
    ],
)
def test_features(tmp_path, rng, kind, how):
    x = rng.standard_normal((5, 4)).astype(np.float32)
    x[2] = 0 if kind == "Normalizer" and how["norm"] != "MAX" else x[2]
    compared(tmp_path, learned(kind, **how), x)


def test_what_is_missing_and_categories(tmp_path, rng):
    x = rng.standard_normal((5, 4)).astype(np.float32)
    x[1, 1] = np.nan
    how = {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0], "replaced_value_float": float("nan")}
    compared(tmp_path, learned("Imputer", **how), x)
    hot = learned("OneHotEncoder", number=WHOLE, cats_int64s=[1, 3, 5])
    compared(tmp_path, hot, rng.integers(0, 6, (5, 4)))


@pytest.mark.exhaustive
@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_linear_classifiers(tmp_path, rng, transform, rows):
    how = {
        "coefficients": rng.standard_normal(4 * rows).tolist(),
        "intercepts": [0.1, 0.2, 0.3][:rows],
        "classlabels_ints": [5, 7, 9][: max(rows, 2)],
        "post_transform": transform,
    }
    x = rng.standard_normal((9, 4)).astype(np.float32)
    compared(tmp_path, learned("LinearClassifier", (WHOLE, REAL), **how), x)


def forest(rng, prefix, targets, *, modes=("BRANCH_LEQ",), positive=False):
    """Return the attributes of random trees whose leaves give to these targets."""
    table, leaves = {}, {}

    def put(rows, **values):
        for name, value in values.items():
            rows.setdefault(name, []).append(value)

    def grow(tree, depth, numbers):
        number = next(numbers)
        row = len(table.get("nodes_treeids", ()))
        is_leaf = not depth or (depth < 4 and rng.random() < 0.2)
        put(
            table,
            nodes_treeids=tree,
            nodes_nodeids=number,
            nodes_featureids=0 if is_leaf else int(rng.integers(4)),
            nodes_values=0.0 if is_leaf else float(rng.standard_normal() * 0.5),
            nodes_modes="LEAF" if is_leaf else str(rng.choice(modes)),
            nodes_truenodeids=0,
            nodes_falsenodeids=0,
            nodes_missing_value_tracks_true=int(rng.integers(2)),
        )
        if is_leaf:
            for target in targets:
                weight = float(rng.standard_normal())
                weight = abs(weight) * 0.2 if positive else weight
                put(leaves, treeids=tree, nodeids=number, ids=target, weights=weight)
        else:
            table["nodes_truenodeids"][row] = grow(tree, depth - 1, numbers)
            table["nodes_falsenodeids"][row] = grow(tree, depth - 1, numbers)
        return number

    for tree in range(7):
        grow(tree, 4, iter(range(99)))
    return {**table, **{f"{prefix}_{name}": values for name, values in leaves.items()}}


MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT")


@pytest.fixture
def rows(rng):
    x = rng.standard_normal((50, 4)).astype(np.float32)
    x[3, 2] = np.nan
    return x


@pytest.mark.exhaustive
@pytest.mark.parametrize("joined", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("modes", [MODES[:1], MODES])
def test_trees_that_give_numbers(tmp_path, rng, rows, joined, modes):
    trees = forest(rng, "target", (0, 1), modes=modes)
    how = {**trees, "n_targets": 2, "aggregate_function": joined, "base_values": [0.5, 0.25]}
    compared(tmp_path, learned("TreeEnsembleRegressor", **how), rows)


@pytest.mark.exhaustive
@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("targets", [(0, 1, 2), (0,), (1,)])
@pytest.mark.parametrize("positive", [False, True])
def test_trees_that_give_classes(tmp_path, rng, rows, transform, targets, positive):
    how = forest(rng, "class", targets, positive=positive)
    how |= {"classlabels_int64s": [3, 4, 5][: max(len(targets), 2)], "post_transform": transform}
    compared(tmp_path, learned("TreeEnsembleClassifier", (WHOLE, REAL), **how), rows)


def test_labels_that_are_strings(tmp_path, rng, rows):
    how = {**forest(rng, "class", (0, 1, 2)), "classlabels_strings": ["a", "b", "c"]}
    model = learned("TreeEnsembleClassifier", (TEXT, REAL), **how)
    compared(tmp_path, model, rows)


def test_trees_that_are_none(rng):
    how = {**forest(rng, "target", (0,)), "n_targets": 1}
    how["nodes_truenodeids"][0] = 0
    with pytest.raises(gf.onnx.OnnxError, match=r"no tree leads|one root|two lead to one"):
        gf.onnx.load(learned("TreeEnsembleRegressor", **how))
    how["nodes_truenodeids"][0] = 4_000
    with pytest.raises(gf.onnx.OnnxError, match=r"none of its nodes|one root"):
        gf.onnx.load(learned("TreeEnsembleRegressor", **how))


def test_values_inside_of_a_model():
    model = learned("Scaler", offset=[0.0], scale=[2.0])
    model.graph.node.append(helper.make_node("Neg", ["y0"], ["z"]))
    model.graph.output[0].name = "z"
    graph = gf.onnx.load(model, outputs=["y0"])
    with gf.Session(graph) as session:
        (y,) = session.run(graph.outputs, {"x": np.ones((1, 4), np.float32)})
    np.testing.assert_array_equal(y, np.full((1, 4), 2))
