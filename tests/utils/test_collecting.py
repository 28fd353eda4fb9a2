"""The garbage collector is kept still for a moment, and is then as it was."""

import gc
import subprocess
import sys

import numpy as np
import pytest

import graphfw as gf
from graphfw.utils.collecting import without_collection


@pytest.fixture
def collections():
    """The collections that begin, which come often."""
    begun = []

    def note(phase, info):
        if phase == "start":
            begun.append(info["generation"])

    before = gc.get_threshold()
    gc.set_threshold(200, 10, 10)
    gc.callbacks.append(note)
    yield begun
    gc.callbacks.remove(note)
    gc.set_threshold(*before)


def test_it_goes_on_afterwards_also_after_an_error():
    assert gc.isenabled()
    with without_collection():
        assert not gc.isenabled()
        with without_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="odd"), without_collection():
        raise ValueError("odd")
    assert gc.isenabled()


def test_who_has_turned_it_off_finds_it_off():
    gc.disable()
    try:
        with without_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_gradients_and_updates_are_made_without_collections(collections):
    with gf.Graph():
        x = gf.Variable(np.ones(3), name="x")
        y = x
        for _ in range(400):
            y = gf.tanh(y * x)
        loss = gf.sum(y)
        described = len(collections)
        collections.clear()
        gf.optim.Adam(0.1).minimize(loss)
    assert described > 10
    assert len(collections) <= 5


def test_the_package_is_imported_almost_without_collections():
    program = """
import gc, numpy
begun = []
gc.callbacks.append(lambda phase, info: begun.append(phase))
import graphfw
print(begun.count("start"), gc.isenabled())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    count, is_on = done.stdout.split()
    assert int(count) <= 15
    assert is_on == "True"
