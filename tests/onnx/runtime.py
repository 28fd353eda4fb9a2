"""ONNX Runtime, where it is installed: what saved models are compared with."""

from __future__ import annotations

import os
from typing import Any

import pytest


def started(path: str | os.PathLike[str]) -> Any:
    """Return a session of ONNX Runtime for a model; skip the test where there is none."""
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
