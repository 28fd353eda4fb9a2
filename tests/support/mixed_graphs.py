"""Graphs in mixed precision, and what tests ask of them."""

import graphfw as gf
from graphfw.ir.rebuild import derive
from graphfw.ir.verify import verify
from graphfw.passes.mixed import MixedPrecision
from graphfw.passes.mixed_policy import checked_policy


def mixed(graph, outputs, overrides=None, precision="mixed-bf16"):
    """The graph in mixed precision, and the conversions."""
    policy = checked_policy(precision, overrides)
    policy.check(graph)
    casts = []
    made = MixedPrecision(precision, policy, casts)(derive(graph, outputs))
    verify(made)
    assert [t.type for t in made.outputs] == [t.type for t in outputs]
    return made, casts


def nodes_of(graph, name):
    return [node for node in graph.nodes if node.op.name == name]


def dtypes(graph, name):
    """The names of the dtypes of all that operations of a name make."""
    return [kind.dtype.name for node in nodes_of(graph, name) for kind in node.types]


def weight(*shape, name="w", trainable=True):
    return gf.Variable(gf.nn.init.zeros, shape=shape, name=name, trainable=trainable)
