"""Errors about two graphs that were mixed up name both."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import GraphfwError


class Described:
    """A graph, and what belongs to it."""

    def __init__(self, name):
        with gf.Graph(name) as self.graph:
            self.x = gf.placeholder((2,), name="x")
            self.v = gf.Variable(np.ones(2, np.float32), name="v")
            self.loss = gf.sum(self.v * self.x)
            self.double = gf.update(self.v, self.v * 2)
            self.sgd = gf.optim.SGD(0.1)
            self.scale = gf.optim.LossScale(gf.optim.SGD(0.1))
            self.sgd.minimize(self.loss)
            self.scale.minimize(self.loss)


def session(described):
    return gf.Session(described.graph)


MIXED_UP = {
    "fetch": lambda a, b: session(b).run(a.loss),
    "fetch an update": lambda a, b: session(b).run(a.double),
    "feed": lambda a, b: session(b).run(b.loss, {a.x: np.ones(2)}),
    "contents": lambda a, b: session(b)[a.v],
    "operand": lambda a, b: a.x + b.x,
    "group": lambda a, b: gf.group(a.double),
    "update": lambda a, b: gf.update(b.v, a.v),
    "optimiser": lambda a, b: a.sgd.minimize(b.loss),
    "loss scale": lambda a, b: a.scale.minimize(b.loss),
    "parameters": lambda a, b: gf.optim.SGD(0.1).minimize(b.loss, [a.v]),
    "layer_updates": lambda a, b: gf.optim.layer_updates(a.loss),
    "grad": lambda a, b: gf.grad(b.loss, [a.v]),
    "bisect": lambda a, b: gf.bisect(session(a), session(b)),
}


@pytest.mark.parametrize("how", MIXED_UP)
def test_both_graphs_are_named(how):
    a, b = Described("mine"), Described("yours")
    with b.graph, pytest.raises(GraphfwError) as caught:
        MIXED_UP[how](a, b)
    assert 'the graph "mine"' in caught.value.why
    assert 'the graph "yours"' in caught.value.why


def test_a_graph_without_a_name_is_told_by_its_first_line():
    a, b = Described(""), Described("yours")
    with pytest.raises(GraphfwError) as caught:
        session(b).run(a.loss)
    assert "it belongs to the graph begun at test_owners.py:" in caught.value.why
