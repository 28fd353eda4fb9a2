"""The three models that read text on photographs, beside ONNX Runtime.

They are those of the package `rapidocr-onnxruntime`, which is wanted for its model files alone:
without it there are no such workloads.
"""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.frameworks import Array
from benchmarks.workload import Case, Contest, Target
from benchmarks.workloads.models import onnxruntime_session

FILES = {
    "detect": "ch_PP-OCRv4_det_infer.onnx",
    "direction": "ch_ppocr_mobile_v2.0_cls_infer.onnx",
    "recognise": "ch_PP-OCRv4_rec_infer.onnx",
}

SIZES = {
    "detect": {"320x480": (1, 3, 320, 480), "736x736": (1, 3, 736, 736)},
    "direction": {"1": (1, 3, 48, 192), "6": (6, 3, 48, 192)},
    "recognise": {"1": (1, 3, 48, 320), "6": (6, 3, 48, 320)},
}
"""Pictures to find lines on; one or six lines, as the package feeds them."""

_TITLES = {
    "detect": "where text is on a picture of {}",
    "direction": "which way up text is, lines at once: {}",
    "recognise": "reading text, lines at once: {}",
}


def folder() -> Path | None:
    """Return where the models are, None where the package is not installed."""
    found = importlib.util.find_spec("rapidocr_onnxruntime")
    if found is None or not found.submodule_search_locations:
        return None
    return Path(found.submodule_search_locations[0]) / "models"


def _model(kind: str) -> Path:
    where = folder()
    assert where is not None
    return where / FILES[kind]


def _pixels(shape: tuple[int, ...]) -> Array:
    """Return white pages with rows of dark blots, which the models take for text."""
    count, _, height, width = shape
    pages = np.ones(shape, np.float32)
    blots = np.random.default_rng(1).random((count, 1, 5, width // 4)) < 0.5
    letters = np.kron(blots, np.ones((4, 4), np.float32))
    for top in range(12, height - 20, 40):
        pages[:, :, top : top + 20] -= 1.8 * letters
    return pages


def _graphfw(kind: str, shape: tuple[int, ...]) -> Case:
    import graphfw as gf

    pixels: Any = _pixels(shape)
    graph = gf.onnx.load(_model(kind))
    plan = gf.Session(graph).compile(graph.outputs[0], feeds=["x"])
    return Case(lambda: plan(pixels))


def _onnxruntime(kind: str, shape: tuple[int, ...]) -> Case:
    pixels = _pixels(shape)
    session = onnxruntime_session(str(_model(kind)))
    return Case(lambda: session.run(None, {"x": pixels})[0])


def _contest(kind: str, size: str) -> Contest:
    shape = SIZES[kind][size]
    makers = {
        "graphfw": functools.partial(_graphfw, kind, shape),
        "onnxruntime": functools.partial(_onnxruntime, kind, shape),
    }
    title = _TITLES[kind].format(size)
    return Contest(f"ocr-{kind}-{size}", title, makers, (Target(0.9, "onnxruntime"),), atol=1e-4)


WORKLOADS = [_contest(kind, size) for kind in SIZES for size in SIZES[kind]] if folder() else []
