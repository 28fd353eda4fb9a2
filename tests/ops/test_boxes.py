"""Boxes: suppression and sampling against plain loops, and torchvision's conventions."""

from __future__ import annotations

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.build import constant
from tests.support.gradcheck import check_gradients


def corners(rng, count, size=8.0):
    low = rng.uniform(-1, size, (count, 2))
    return np.concatenate([low, low + rng.uniform(0.2, size / 2, (count, 2))], axis=1)


def kept(boxes, scores, threshold, classes=None):
    """By the definition, a pair at a time."""
    found = []
    for i in np.argsort(-scores, kind="stable"):
        for j in found:
            low = np.maximum(boxes[i, :2], boxes[j, :2])
            high = np.minimum(boxes[i, 2:], boxes[j, 2:])
            common = np.prod(np.maximum(high - low, 0))
            areas = [np.prod(boxes[k, 2:] - boxes[k, :2]) for k in (i, j)]
            is_same = classes is None or classes[i] == classes[j]
            if is_same and common > threshold * (sum(areas) - common):
                break
        else:
            found.append(i)
    return np.array(found, np.int64)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("threshold", [0.0, 0.3, 1.0])
def test_nms(rng, dtype, threshold):
    boxes, scores = corners(rng, 30).astype(dtype), rng.normal(size=30).astype(dtype)
    found = gf.nms(boxes, scores, threshold).numpy()
    np.testing.assert_array_equal(found, kept(boxes, scores, threshold))
    classes = rng.integers(0, 3, 30)
    found = gf.nms(boxes, scores, threshold, classes=classes).numpy()
    np.testing.assert_array_equal(found, kept(boxes, scores, threshold, classes))


def test_nms_of_no_box_and_of_nan():
    assert gf.nms(np.ones((0, 4)), np.ones(0), 0.5).shape == (0,)
    boxes = np.array([[0.0, 0, 1, 1], [5, 5, 6, 6]])
    np.testing.assert_array_equal(gf.nms(boxes, [np.nan, 1.0], 0.5).numpy(), [1])


def test_nms_in_a_session(rng):
    with gf.Graph() as g:
        boxes = gf.placeholder(("n", 4), name="boxes")
        scores = gf.placeholder(("n",), name="scores")
        best = boxes[gf.nms(boxes, scores, 0.4)]
    b, s = corners(rng, 20).astype("float32"), rng.normal(size=20).astype("float32")
    with gf.Session(g) as session:
        np.testing.assert_array_equal(session.run(best, {boxes: b, scores: s}), b[kept(b, s, 0.4)])


def sample(plane, y, x):
    """plane: [H, W]; linear, 0 more than a pixel outside, the edge's element before that."""
    height, width = plane.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0.0
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    i, j = min(int(y), max(height - 2, 0)), min(int(x), max(width - 2, 0))
    a, b = y - i, x - j
    k, m = min(i + 1, height - 1), min(j + 1, width - 1)
    top = plane[i, j] * (1 - b) + plane[i, m] * b
    return top * (1 - a) + (plane[k, j] * (1 - b) + plane[k, m] * b) * a


def aligned_by_loops(x, boxes, images, bins, scale, samples, aligned):
    y = np.zeros((len(boxes), x.shape[1], *bins))
    for r, (box, image) in enumerate(zip(boxes * scale, images, strict=True)):
        x1, y1, x2, y2 = box - (0.5 if aligned else 0)
        sizes = np.array([y2 - y1, x2 - x1])
        if not aligned:
            sizes = np.maximum(sizes, 1)
        step = sizes / bins / samples
        for c, i, j in np.ndindex(*y.shape[1:]):
            points = [
                (
                    y1 + (i * samples[0] + k + 0.5) * step[0],
                    x1 + (j * samples[1] + m + 0.5) * step[1],
                )
                for k in range(samples[0])
                for m in range(samples[1])
            ]
            y[r, c, i, j] = np.mean([sample(x[image, c], *p) for p in points])
    return y


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize(("bins", "samples"), [((2, 3), (2, 1)), ((1, 1), (3, 3))])
def test_roi_align(rng, aligned, bins, samples):
    x = rng.normal(size=(2, 2, 5, 6))
    boxes, images = corners(rng, 5, 12.0), rng.integers(0, 2, 5)
    found = gf.roi_align(x, boxes, images, bins, scale=0.5, samples=samples, aligned=aligned)
    expected = aligned_by_loops(x, boxes, images, bins, 0.5, samples, aligned)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)
    half = gf.roi_align(x.astype("float16"), boxes.astype("float16"), images, 2)
    assert half.dtype is gf.float16
    assert half.shape == (5, 2, 2, 2)


def test_gradients_of_roi_align(rng):
    x, boxes = constant(rng.normal(size=(1, 2, 4, 4))), constant(corners(rng, 2, 3.0))
    check_gradients(gf.roi_align(x, boxes, gf.asarray([0, 0]), 2), [x, boxes], rng, order=1)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x, b: gf.nms(b, np.ones(3), 0.5), gf.ShapeError, "not \\[N, 4\\] and \\[N\\]"),
        (lambda x, b: gf.nms(b, np.ones(2), 1.5), gf.ArgumentError, "threshold=1.5"),
        (lambda x, b: gf.nms(b, np.ones(2), 0.5, classes=[1]), gf.ShapeError, "classes are"),
        (lambda x, b: gf.roi_align(x[0], b, [0, 0], 2), gf.ShapeError, "not \\[N, C, H, W\\]"),
        (lambda x, b: gf.roi_align(x, b, [0], 2), gf.ShapeError, "images are \\[1\\], and boxes 2"),
        (lambda x, b: gf.roi_align(x, b, [0.0, 0.0], 2), gf.DTypeError, "float"),
        (lambda x, b: gf.roi_align(x, b, [0, 0], 0), gf.ArgumentError, "output_size=0"),
    ],
)
def test_errors(call, error, match):
    with pytest.raises(error, match=match):
        call(np.ones((1, 1, 4, 4)), np.ones((2, 4)))
