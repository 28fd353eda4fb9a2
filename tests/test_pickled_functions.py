"""Public functions and classes can be pickled: for worker processes, and in graphs and layers."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

import graphfw as gf
from graphfw.hints.public import everything, find

PUBLIC = [f"{path}.{name}" for path, name in everything()]


@pytest.mark.parametrize("path", sorted({path.rpartition(".")[0] for path in PUBLIC}))
def test_they_are_themselves_again(path: str):
    values = [find(each) for each in PUBLIC if each.rpartition(".")[0] == path]
    for value in values:
        if callable(value):
            # Initialisers are objects, of which equal ones compute the same.
            assert pickle.loads(pickle.dumps(value)) == value


def test_another_process_reads_them():
    code = (
        "import pickle, sys; relu, i0, tanh = pickle.loads(sys.stdin.buffer.read()); "
        "import graphfw as gf; assert (relu, i0) == (gf.relu, gf.special.i0); "
        "print(tanh.activation is gf.tanh)"
    )
    with gf.Graph():
        layer = gf.nn.TransformerEncoderLayer(4, 2, activation=gf.tanh)
    pickled = pickle.dumps((gf.relu, gf.special.i0, layer))
    ran = subprocess.run([sys.executable, "-c", code], input=pickled, capture_output=True)
    assert ran.stdout.split() == [b"True"], ran.stderr.decode()


def test_a_row_is_found_where_it_was_made_and_nothing_else():
    from graphfw.ops.elementwise import table

    assert table.relu is gf.relu
    with pytest.raises(AttributeError, match="has no attribute 'cat'"):
        table.cat  # noqa: B018  # looked up
