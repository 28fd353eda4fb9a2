"""Whole networks from ONNX files, against their numbers in float64."""

import pytest

from benchmarks import accuracy
from benchmarks.workloads.models import NETWORKS, image_of, model


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_float32_is_close_to_float64(name):
    proto = accuracy.without_softmax(model(name))
    image = image_of(proto)
    found = accuracy.graphfw(proto, image)
    assert accuracy.error(found, accuracy.reference(proto, image)) < accuracy.LIMIT
