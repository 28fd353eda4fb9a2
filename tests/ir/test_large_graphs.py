"""Large graphs: time in proportion to their nodes, few objects for each, and long sizes."""

import cProfile
import gc

import numpy as np
import pytest

import graphfw as gf


def chain(n):
    y = gf.placeholder((8,), name="x")
    for _ in range(n):
        y = gf.sin(y) + 1.0


def variables(n):
    y = gf.placeholder((8,), name="x")
    for i in range(n):
        y = y * gf.Variable(gf.nn.init.ones, shape=(8,), name=f"w{i}")


def layers(n):
    x = gf.placeholder(("b", 4), name="x")
    model = gf.nn.Sequential(*[gf.nn.Linear(4, 4) for _ in range(n)])
    gf.optim.SGD(0.1).minimize(gf.mean(model(x)))


@pytest.mark.parametrize("build", [chain, variables, layers])
def test_calls_are_in_proportion(build):
    calls = []
    for n in (1, 50, 200):  # the first makes what a process makes once
        with cProfile.Profile() as counted, gf.Graph():
            build(n)
        calls.append(sum(entry.callcount for entry in counted.getstats()))
    assert calls[2] < 4.5 * calls[1]


def test_a_node_is_few_objects():
    """The garbage collector walks them all, again and again."""
    with gf.Graph() as g:
        chain(10)
        before, nodes = len(gc.get_objects()), len(g.nodes)
        chain_of = gf.placeholder((8,), name="y")
        for _ in range(500):
            chain_of = gf.sin(chain_of)
        assert len(gc.get_objects()) - before < 3.2 * (len(g.nodes) - nodes)


def test_a_constant_is_few_objects():
    with gf.Graph():
        y = gf.placeholder((8,), name="x")
        [y * 0.5]
        before = len(gc.get_objects())
        for i in range(500):
            y = y * (i + 0.25)
        # Of a product three, of its number four, and one to find it again.
        assert len(gc.get_objects()) - before < 500 * (3 + 5.2)


def test_ops_of_equal_fields_are_one_object():
    with gf.Graph():
        x = gf.placeholder(("n", 4), name="x")
        one, other = gf.sum(x, axis=1), gf.sum(x, axis=-1)
        assert one.node.op is other.node.op
        assert one.node.types is other.node.types
        assert gf.max(x, axis=1).node.op is not gf.min(x, axis=1).node.op
        kept, again = gf.sum(x, axis=1, keepdims=True), gf.sum(x, axis=1, keepdims=1)
        assert kept.type is again.type
        assert (kept.node.op.keepdims, again.node.op.keepdims) == (True, 1)
        assert repr(again.node.op) == "Sum(axes=(1,), keepdims=1)"


def test_names_of_layers_that_became_submodules_are_used_again():
    with gf.Graph():
        layers = [gf.nn.Linear(2, 2) for _ in range(20)]
        assert [one.path for one in layers][::19] == ["linear", "linear_19"]
        first_layers = gf.nn.Sequential(*layers[:15])
        assert [one.path for one in first_layers][:2] == ["sequential.0", "sequential.1"]
        more = [gf.nn.Linear(2, 2).path for _ in range(16)]
        assert more == ["linear", *[f"linear_{i}" for i in [*range(1, 15), 20]]]


def test_a_name_is_taken_by_whom_it_was_given_to():
    with gf.Graph():
        layer = gf.nn.Linear(2, 2)
        with pytest.raises(gf.GraphError, match=r'"linear\.weight" exists already'):
            gf.Variable([1.0], name="linear.weight")
        layer.extra = gf.Variable([1.0], name="own")
        assert layer.extra.name == "linear.extra"
        gf.Variable([1.0], name="own")


@pytest.mark.slow  # some seconds
def test_sizes_may_be_nested_deeply(monkeypatch):
    """Python reads no more than some hundred brackets in one another."""
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    with gf.Graph() as g:
        x, skipped = gf.placeholder(("n",), name="x"), gf.placeholder(("k",), name="skipped")
        y = x
        for _ in range(220):
            y = y[skipped.shape[0] :]
    with gf.Session(g) as session:
        plan = session.compile(y, [x, skipped])
        array = np.arange(500, dtype=np.float32)
        np.testing.assert_array_equal(plan(array, np.zeros(2, np.float32)), array[440:])
        np.testing.assert_array_equal(plan(array, np.zeros(3, np.float32)), array[500:])


@pytest.mark.slow  # some seconds
def test_sizes_may_have_one_subexpression_again_and_again():
    """Written out, the size of each concatenation is twice as long as the one before."""
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        y = x
        for _ in range(20):
            y = gf.concat([y, y[:1]])
        g.outputs = (y, gf.grad(gf.sum(y), x))
    assert str(gf.parse(str(g))) == str(g)
    with gf.Session(g) as session:
        plan = session.compile([*g.outputs], feeds=[x])
        for size in (0, 3):
            array = np.arange(1, size + 1, dtype=np.float32)
            repeated, gradient = plan(array)
            np.testing.assert_array_equal(repeated, [*array, *array[:1].repeat(20)])
            np.testing.assert_array_equal(gradient, [21, 1, 1][:size])
