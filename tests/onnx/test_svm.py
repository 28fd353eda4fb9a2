"""Support vector machines, compared with ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

import graphfw as gf
from tests.onnx.test_learned import compared, learned

REAL, WHOLE, TEXT = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


@pytest.fixture
def x(rng):
    return rng.standard_normal((9, 4)).astype(np.float32)


def machine(rng, classes, kernel, *, probable=False):
    """Return the attributes of a classifier with random vectors."""
    counts = rng.integers(1, 4, classes).tolist()
    pairs = classes * (classes - 1) // 2
    how = {
        "kernel_type": kernel,
        "kernel_params": [0.3, 0.2, 3.0],
        "vectors_per_class": counts,
        "support_vectors": rng.standard_normal(4 * sum(counts)).tolist(),
        "coefficients": rng.standard_normal((classes - 1) * sum(counts)).tolist(),
        "rho": (rng.standard_normal(pairs) * 0.1).tolist(),
        "classlabels_ints": [5, 7, 9, 11][:classes],
    }
    if probable:
        how["prob_a"] = (-3 * rng.random(pairs)).tolist()
        how["prob_b"] = (rng.standard_normal(pairs) * 0.1).tolist()
    return how


@pytest.mark.exhaustive
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("vectors", [0, 6])
@pytest.mark.parametrize("one_class", [0, 1])
def test_regressors(tmp_path, rng, x, kernel, vectors, one_class):
    how = {
        "coefficients": rng.standard_normal(vectors or 4).tolist(),
        "kernel_type": kernel,
        "kernel_params": [0.3, 0.2, 3.0],
        "one_class": one_class,
        "rho": [0.3],
    }
    if vectors:
        numbers = rng.standard_normal(4 * vectors).tolist()
        how |= {"n_supports": vectors, "support_vectors": numbers}
    compared(tmp_path, learned("SVMRegressor", **how), x)


def test_a_regressor_s_post_transform(rng, x):
    """ONNX Runtime ignores it."""
    how = {"coefficients": rng.standard_normal(4).tolist(), "rho": [0.3]}
    plain = gf.onnx.run(learned("SVMRegressor", **how), {"x": x})["y0"]
    made = gf.onnx.run(learned("SVMRegressor", **how, post_transform="LOGISTIC"), {"x": x})["y0"]
    np.testing.assert_allclose(made, 1 / (1 + np.exp(-plain)), rtol=1e-5)


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("probable", [False, True])
def test_classifiers(tmp_path, rng, x, kernel, transform, classes, probable):
    how = machine(rng, classes, kernel, probable=probable)
    model = learned("SVMClassifier", (WHOLE, REAL), **how, post_transform=transform)
    compared(tmp_path, model, x)


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
def test_classifiers_with_a_row_for_each_class(tmp_path, rng, x, transform):
    how = {
        "coefficients": rng.standard_normal(12).tolist(),
        "kernel_params": [0.0, 0.0, 0.0],
        "rho": [0.1, 0.1, 0.1],
        "classlabels_strings": ["a", "b", "c"],
    }
    model = learned("SVMClassifier", (TEXT, REAL), **how, post_transform=transform)
    compared(tmp_path, model, x)


def test_probabilities_add_up_for_many_classes(rng):
    how = machine(rng, 4, "RBF", probable=True)
    x = rng.standard_normal((200, 4)).astype(np.float32)
    p = gf.onnx.run(learned("SVMClassifier", (WHOLE, REAL), **how), {"x": x})["y1"]
    assert p.min() > 0
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"rho": [0.1]}, "1 rho, 3 pairs"),
        ({"coefficients": [1.0]}, "1 coefficient, not 2 for"),
        ({"vectors_per_class": [1, 2]}, "2 of 3 classes"),
        ({"support_vectors": [1.0]}, "support_vectors"),
        ({"kernel_type": "CUBIC"}, "'CUBIC' is none of"),
        ({"kernel_params": [1.0]}, "kernel_params has 1 element, not 3"),
        ({"prob_a": [1.0], "prob_b": [1.0]}, "not 3 each"),
    ],
)
def test_machines_that_are_none(rng, change, text):
    how = machine(rng, 3, "RBF") | change
    with pytest.raises(gf.onnx.OnnxError, match=text):
        gf.onnx.load(learned("SVMClassifier", (WHOLE, REAL), **how))
