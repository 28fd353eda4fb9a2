"""Graphs, tensors, variables, updates and layers: pickled, and copied."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

import graphfw as gf
from tests.support.samples import OWN


def pickled(value):
    return pickle.loads(pickle.dumps(value))


AGAIN = pytest.mark.parametrize("again", [pickled, copy.deepcopy])


@pytest.fixture
def batch(rng):
    return rng.standard_normal((6, 4), np.float32), rng.integers(0, 3, 6)


def network():
    """Return a graph with layers that keep statistics and draw, and its training step."""
    with gf.Graph("net") as g:
        x = gf.placeholder(("batch", 4), name="x")
        y = gf.placeholder(("batch",), gf.int64, name="y")
        model = gf.nn.Sequential(
            gf.nn.Linear(4, 8), gf.nn.BatchNorm(8), gf.nn.Dropout(0.5), gf.nn.Linear(8, 3)
        )
        loss = gf.nn.cross_entropy(model(x), y)
        train = gf.optim.Adam(1e-2).minimize(loss)
    return g, x, y, model, loss, train


def losses(g, x, y, model, loss, train, batch):
    with gf.Session(g, seed=3) as session:
        feeds = dict(zip((x, y), batch, strict=True))
        values = [float(session.run([loss, train], feeds)[0]) for _ in range(3)]
        return values, {v.name: session[v] for v in model.variables()}


@AGAIN
def test_a_copy_trains_to_the_same_bits(again, batch):
    made = network()
    expected, weights = losses(*made, batch)
    copied = again(made)
    assert str(copied[0]) == str(made[0])
    found, others = losses(*copied, batch)
    assert found == expected
    assert others.keys() == weights.keys()
    for name, array in weights.items():
        np.testing.assert_array_equal(others[name], array)
    assert not {*copied[0].nodes} & {*made[0].nodes}


@AGAIN
@pytest.mark.parametrize("order", [(0, 1, 3, 5), (5, 3, 1, 0)])
def test_what_is_copied_together_has_one_graph(again, order):
    made = network()
    copied = again([made[i] for i in order])
    g = copied[order.index(0)]
    assert g is not made[0]
    assert copied[order.index(1)] is g.find("x")
    assert copied[order.index(3)].parameters()[0] is g.variables[0]
    assert copied[order.index(5)] is g.updates[-1]


@AGAIN
def test_a_layer_brings_its_graph_and_keeps_its_names(again):
    g, *_ = network()
    model = network()[3]
    copied = again(model)
    (other,) = {v.graph for v in copied.variables()}
    assert other not in (g, model.parameters()[0].graph)
    assert [v.name for v in copied.variables()] == [v.name for v in model.variables()]
    layer = again(model[0])
    assert layer.path == "sequential.0"
    with other:  # it goes on as the first graph would
        another = gf.nn.Sequential(gf.nn.Linear(2, 2))
        assert another.path == "sequential_1"
        larger = gf.nn.Sequential(copied, name="larger")
    assert copied[0].weight.name == "larger.0.0.weight"
    assert larger.path == "larger"


@AGAIN
def test_a_copy_knows_what_was_called_for_evaluation(again):
    with gf.Graph() as g:
        x = gf.placeholder((4, 3), name="x")
        model = gf.nn.Sequential(gf.nn.Linear(3, 3), gf.nn.Dropout(0.5)).eval()
        y = model(x)
    graph, result = again((g, y))
    assert graph.evaluations[0].results[0] is result
    with graph, pytest.warns(UserWarning, match="called for evaluation at test_pickled"):
        gf.optim.SGD(0.1).minimize(gf.sum(result))


@AGAIN
def test_a_copied_graph_can_be_extended(again, batch):
    g, x, y, model, loss, _ = network()
    other, x2 = again((g, x))
    with other:
        with pytest.raises(gf.GraphError, match='the name "x" is taken'):
            gf.placeholder((3,), name="x")
        with pytest.raises(gf.GraphError, match=r'"sequential\.0\.weight" exists'):
            gf.Variable([1.0], name="sequential.0.weight")
        total = gf.sum(x2 * 2)
    with other, pytest.raises(gf.GraphError, match="another graph"):
        x + x2
    expected = 2 * batch[0].sum()
    np.testing.assert_allclose(gf.Session(other).run(total, {x2: batch[0]}), expected, rtol=1e-4)


@AGAIN
def test_variables_begin_with_the_same_values(again):
    outside = gf.full((2, 3), 5)
    with gf.Graph() as other:
        elsewhere = gf.ones((2, 3)) * 6
    with gf.Graph() as g:
        gf.Variable(outside, name="outside")
        gf.Variable(elsewhere, name="elsewhere")
        gf.Variable(gf.ones((2, 3)) * 4, name="inside")
        layer = gf.nn.Linear(3, 2)
        average = copy.deepcopy(layer)
        later = gf.nn.Sequential(layer, copy.deepcopy(average))
    copied, weight = again((g, average.weight))
    assert weight.graph is copied
    assert [v.name for v in copied.variables] == [v.name for v in g.variables]
    inside = copied.variables[2].initial
    assert inside.graph is copied
    with gf.Session(g, seed=1) as one, gf.Session(copied, seed=1) as two:
        for before, after in zip(g.variables, copied.variables, strict=True):
            np.testing.assert_array_equal(two[after], one[before])
    assert again(later)[1].weight.name == later[1].weight.name
    assert not other.variables


@AGAIN
def test_control_flow_sizes_by_values_and_effects(again, capsys):
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        chosen = x[x > 0]
        looped = gf.fori_loop(0, 3, lambda i, c: c * 2 + gf.sum(x), chosen)
        folded, _ = gf.scan(lambda c, a: (gf.cond(a > 1, lambda: c + a, lambda: c), a), 0.0, x)
        gf.print("sum {}", folded)
        (slope,) = gf.grad(gf.sum(looped), [x])
    feeds = np.array([0.5, -1.0, 2.0, 3.0], np.float32)
    expected = gf.Session(g).run([looped, folded, slope], {x: feeds})
    shown = capsys.readouterr()
    other, x2, *fetches = again((g, x, looped, folded, slope))
    for one, two in zip(expected, gf.Session(other).run(fetches, {x2: feeds}), strict=True):
        np.testing.assert_array_equal(one, two)
    assert capsys.readouterr().out == shown.out
    with other:  # the sizes that runs find out are known to be equal
        again_chosen = x2[x2 > 0]
        assert again_chosen.shape == fetches[0].shape


def test_ops_of_all_kinds():
    for op_class in OWN.values():
        for case in op_class.cases():
            if case.error is None:
                op = op_class(**case.fields)
                assert pickled(op) == op


@AGAIN
def test_a_long_chain_needs_no_deep_recursion(again):
    with gf.Graph() as g:
        y = gf.placeholder((), name="x")
        for _ in range(4_000):  # several times the recursion limit
            y = y + 1
    other, y2 = again((g, y))
    assert len(other.nodes) == len(g.nodes)
    assert y2.graph is other


@AGAIN
def test_constants(again):
    made = gf.exp(gf.asarray([0.0, 1.0]))
    np.testing.assert_array_equal(again(made).numpy(), made.numpy())
    with gf.Graph() as g:
        inside = gf.asarray([1, 2]) + 1
        other = again(made)  # outside of any graph, also where one is open
    assert other.graph.is_ambient
    assert len(g.nodes) == 3
    assert again(inside).numpy().tolist() == [2, 3]
    literal = again(inside.node.inputs[0].node.op.value)
    assert not literal.array.flags.writeable


def test_copies_inside_of_an_open_graph_are_for_that_graph():
    g, x, _, model, *_ = network()
    with g:
        ema = copy.deepcopy(model)
        assert ema.path == "sequential_1"
        names = [v.name for v in ema.variables()]
        assert names == [v.name.replace("sequential", "sequential_1") for v in model.variables()]
        pairs = list(zip(ema.variables(), model.variables(), strict=True))
        assert all(a is not b and a.trainable == b.trainable for a, b in pairs)
        moved = gf.group(*[gf.update(a, 0.5 * a + 0.5 * b) for a, b in pairs])
        changed = gf.update(model[0].weight, model[0].weight + 1)
        assert copy.deepcopy(x) is x
        twice = [copy.deepcopy(model[0].bias) for _ in range(2)]
        assert [v.name for v in twice] == [
            "sequential.0.bias_copy",
            "sequential.0.bias_copy1",
        ]
    with gf.Session(g, seed=1) as session:
        for a, b in pairs:  # the same initial values, draws among them
            np.testing.assert_array_equal(session[a], session[b])
        session.run(changed)
        session.run(moved)
        weight = session[model[0].weight]
        np.testing.assert_allclose(session[ema[0].weight], weight - 0.5, rtol=1e-6)


def test_a_layer_is_copied_into_another_open_graph():
    g, *_ = network()
    model = network()[3]
    with gf.Graph() as other:
        copied = copy.deepcopy(copy.deepcopy(model))
        x = gf.placeholder(("batch", 4))
        out = copied(x)
    assert {v.graph for v in copied.variables()} == {other}
    assert out.shape[1] == 3
    with gf.Session(other, seed=1) as one, gf.Session(model[0].weight.graph, seed=1) as two:
        np.testing.assert_array_equal(one[copied[0].weight], two[model[0].weight])


def test_shared_layers_stay_shared():
    class Tied(gf.nn.Module):
        def __init__(self):
            self.one = gf.nn.Linear(3, 3)
            self.two = self.one
            self.weight = self.one.weight

        def forward(self, x):
            return self.two(self.one(x))

    with gf.Graph():
        model = Tied()
        copied = copy.deepcopy(model)
    assert copied.one is copied.two
    assert copied.weight is copied.one.weight
    assert copied.weight.name == "tied_1.one.weight"


def test_copy_copy():
    g, x, _, model, _, train = network()
    assert copy.copy(x) is x
    assert copy.copy(train) is train
    assert copy.copy(x.node) is x.node
    assert str(copy.copy(g)) == str(g)
    assert copy.copy(g) is not g
    assert copy.copy(model).parameters()[0] is model.parameters()[0]


@gf.function
def doubled(x):
    return x * 2


def test_functions_are_pickled_by_name():
    assert pickled(doubled) is doubled


def test_scikit_learn_and_joblib(tmp_path):
    joblib = pytest.importorskip("joblib")
    base = pytest.importorskip("sklearn.base")

    class Estimator(base.BaseEstimator):
        def __init__(self, graph=None, weight=None):
            self.graph = graph
            self.weight = weight

    g, *_ = network()
    cloned = base.clone(Estimator(g, g.variables[0]))
    assert str(cloned.graph) == str(g)
    joblib.dump((g, g.variables[0]), tmp_path / "x")
    other, weight = joblib.load(tmp_path / "x")
    assert weight is other.variables[0]


_READER = """
import pickle, sys
import numpy as np
import graphfw as gf
g, x, y = pickle.load(sys.stdin.buffer)
print(gf.Session(g).run(y, {x: np.ones(3, np.float32)}).tolist(), y.node.loc.short())
"""


def test_another_process_reads_it():
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        y = gf.sum(gf.gelu(x)) * 0 + x
    done = subprocess.run(
        [sys.executable, "-c", _READER],
        input=pickle.dumps((g, x, y)),
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode().split(" test_pickled")[0] == "[1.0, 1.0, 1.0]"


def test_what_can_t_be_pickled_says_what_to_do_instead():
    g, x, y, _, loss, train = network()
    session = gf.Session(g)
    plan = session.compile([loss, train], feeds=[x, y])
    for one, fix in ((session, "session.save(path)"), (plan, "compile the plan with a Session")):
        for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
            kind = type(one).__name__
            with pytest.raises(gf.GraphError, match=f"a {kind} can't be copied") as caught:
                duplicate(one)
            assert fix in caught.value.fix
    with pytest.raises(gf.GraphError, match="a graph that passes made can't be copied"):
        copy.deepcopy(plan.program.graph)
    seen = []
    with gf.Graph():
        gf.fori_loop(0, 3, lambda i, c: seen.append(c) or c + 1, gf.placeholder(()))
    with pytest.raises(gf.GraphError, match="a tensor of the body of a fori_loop can't be copied"):
        pickle.dumps(seen[0])
    wrong = gf.Graph(collect_errors=True)
    with pytest.raises(gf.GraphErrors), wrong:
        gf.placeholder((2,)) + gf.placeholder((3,))
        gf.placeholder((2,)) + gf.placeholder((3,))
    with pytest.raises(gf.GraphErrors):
        pickle.dumps(wrong)


def test_an_op_that_is_not_registered_says_so():
    function, _ = gf.exp(gf.asarray(1.0)).node.op.__reduce__()
    with pytest.raises(gf.GraphError, match="no op named 'no such op at all'") as caught:
        function("graphfw.ops.elementwise.table", "no such op at all", ())
    assert caught.value.fix == "import the module that registers it first"
