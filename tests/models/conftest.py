"""Fixtures of the tests of models."""

import pytest


@pytest.fixture(autouse=True)
def _node_by_node(request, monkeypatch):
    """Compute without native code, which takes longer to compile than small models to run."""
    if not request.node.get_closest_marker("slow"):
        monkeypatch.setenv("GRAPHFW_JIT", "0")
