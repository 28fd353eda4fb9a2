"""Models beside ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import graphfw as gf
from tests.onnx.runtime import started


@pytest.fixture
def compare(tmp_path):
    def compared(proto, feeds):
        """Compare all outputs of a model with ONNX Runtime's, and return the graph."""
        graph = gf.onnx.load(proto)
        with gf.Session(graph) as session:
            made = session.run(list(graph.outputs), feeds)
        proto.ir_version = 10  # ONNX Runtime is behind the package onnx
        onnx.save(proto, tmp_path / "m.onnx")
        wanted = started(tmp_path / "m.onnx").run(None, feeds)
        for value, reference in zip(made, wanted, strict=True):
            np.testing.assert_allclose(value, reference, 1e-4, 1e-5)
            assert (value.dtype, value.shape) == (reference.dtype, reference.shape)
        return graph

    return compared
