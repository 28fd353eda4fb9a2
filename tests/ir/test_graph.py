"""`Graph`: names, lookups, collected errors, the text of errors."""

import copy
import pickle
from collections.abc import Callable

import networkx
import pytest

import graphfw as gf
from graphfw.errors import AxisError, GraphError, GraphErrors, ShapeError
from graphfw.ir.build import emit_all
from graphfw.ir.op import REGISTRY
from graphfw.ir.verify import verify


def test_a_graph_lists_what_is_made():
    with gf.Graph("net") as g:
        x = gf.placeholder(("n", 3), name="x")
        w = gf.Variable([[1.0], [2.0], [3.0]], name="w")
        y = x @ w
        u = gf.update(w, w * 2)
    assert [node.op.name for node in g.nodes[:3]] == ["placeholder", "variable", "matmul"]
    assert g.placeholders[0] is x
    assert g.variables[0] is w
    assert g.updates == [u]
    assert g.nodes[2] is y.node
    assert repr(g) == f'<Graph "net": {len(g.nodes)} nodes, 1 variable>'
    verify(g)


def test_find():
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="input")
        w = gf.Variable(0.0, name="weight")
    assert g.find("input") is x
    assert g.find("weight") is w
    with pytest.raises(GraphError) as caught:
        g.find("inputs")
    assert caught.value.summary == 'nothing in this graph is named "inputs"'
    assert caught.value.fix == 'did you mean "input"?'
    with pytest.raises(GraphError, match="fix  it has: input, weight"):
        g.find("zzz")
    with pytest.raises(GraphError, match="fix  it has: no names"):
        gf.Graph().find("zzz")


def test_names_are_unique():
    with gf.Graph():
        gf.placeholder((3,), name="x")
        with pytest.raises(GraphError, match='the name "x" is taken') as caught:
            gf.placeholder((4,), name="x")
        assert 'first  "x"  float32[3]  placeholder' in str(caught.value)
        assert "fix  give each its own name, or use gf.name_scope" in str(caught.value)
        with gf.name_scope("b"):
            assert gf.placeholder((4,), name="x").name == "b.x"


def test_a_tensor_and_a_variable_have_different_names():
    with gf.Graph() as g:
        gf.placeholder((3,), name="x")
        gf.Variable(0.0, name="x")
    with pytest.raises(GraphError, match='a tensor and a variable are named "x"'):
        g.check_names()


def test_unnamed_dims_are_fresh():
    with gf.Graph():
        x = gf.placeholder((None, None), name="x")
        y = gf.placeholder((None, 3))
        dims = [*x.shape, *y.shape[:1]]
        assert len({str(d) for d in dims}) == 3
        with pytest.raises(ShapeError, match="a symbolic dim broadcasts with 1 and itself only"):
            gf.placeholder((None,)) + gf.placeholder((None,))


def test_placeholders_need_a_graph():
    for make, what in ((lambda: gf.placeholder((3,)), "a placeholder"),):
        with pytest.raises(GraphError) as caught:
            make()
        assert str(caught.value).startswith(f"{what} belongs to a graph, and none is open here")
        assert "with graphfw.Graph() as g:" in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "match"),
    [
        ((-1,), "a dim can't be -1"),
        ((2.5,), "2.5 is no dim"),
        ((True,), "True is no dim"),
        (("a b",), "'a b' can't name a dim"),
        (("_x",), "'_x' can't name a dim"),
        (("class",), "'class' can't name a dim"),
        (3, "shape=3 is not a sequence of dims"),
        (2.5, "shape=2.5 is not a sequence of dims"),
        ("batch", "shape='batch' is not a sequence of dims"),
    ],
)
def test_bad_placeholder_shapes(shape, match: str):
    with gf.Graph(), pytest.raises(ShapeError, match=match):
        gf.placeholder(shape)


@pytest.mark.parametrize("shape", [3, "batch", 2.5])
def test_assert_shape_wants_a_sequence(shape):
    with gf.Graph(), pytest.raises(ShapeError) as caught:
        gf.assert_shape(gf.placeholder(("n",)), shape)
    assert caught.value.summary == f"assert_shape: shape={shape!r} is not a sequence of dims"
    assert caught.value.fix == f"write ({shape!r},)"


def test_variables_are_named_once_even_when_renamed():
    with gf.Graph() as g:
        a, b = gf.Variable(0.0, name="a"), gf.Variable(1.0, name="b")
    g.check_names()
    b.rename(lambda: "a")
    with pytest.raises(GraphError, match='two variables are named "a"') as caught:
        g.check_names()
    assert [o.label for o in caught.value.operands] == ["first", "second"]
    assert a.name == b.name == "a"


def test_to_networkx():
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
        y = gf.tanh(x) * x
    graph = g.to_networkx()
    assert networkx.is_directed_acyclic_graph(graph)
    assert networkx.has_path(graph, x.node, y.node)
    assert graph.number_of_nodes() == len(g.nodes)


def test_constants_by_digest():
    import numpy as np

    array = np.arange(100.0)
    with gf.Graph() as g:
        gf.identity(gf.constant(array))
        gf.identity(gf.constant(array.copy()))
        gf.identity(gf.constant(3.0))
    (only,) = g.constants().values()
    np.testing.assert_array_equal(only, array)
    assert str(g).count(next(iter(g.constants()))) == 2


# Collected errors.


def test_mistakes_are_collected():
    with pytest.raises(GraphErrors) as caught, gf.Graph(collect_errors=True):
        x = gf.placeholder((3, 4), name="x")
        y = gf.placeholder((5, 6), name="y")
        bad = x @ y
        worse = bad + gf.placeholder((9, 9, 9), name="z") * y  # the product is a second mistake
        gf.tanh(worse) @ x  # this follows from them, and says nothing new
        x + gf.placeholder((4,), name="fine")
    errors = caught.value.errors
    assert [e.summary.split(":")[0] for e in errors] == ["matmul", "multiply"]
    text = str(caught.value)
    assert text.startswith("2 mistakes in this graph\n[1] ShapeError: matmul: contracting dims")
    assert "\n[2] ShapeError: multiply: " in text


def test_one_mistake():
    with pytest.raises(GraphErrors, match="1 mistake in this graph"), gf.Graph(collect_errors=True):
        gf.placeholder((3,), name="x") + gf.placeholder((4,), name="y")


def test_nothing_wrong():
    with gf.Graph(collect_errors=True) as g:
        gf.placeholder((3,), name="x") + 1
    g.check()


def test_other_errors_come_with_what_was_collected():
    with pytest.raises(GraphErrors) as caught, gf.Graph(collect_errors=True):
        x = gf.placeholder((3,), name="x")
        x + gf.placeholder((4,), name="y")
        gf.sum(x, axis=1)
    assert [type(e) for e in caught.value.errors] == [ShapeError, AxisError]


def test_foreign_errors_pass_through():
    with pytest.raises(ZeroDivisionError), gf.Graph(collect_errors=True):
        gf.placeholder((3,), name="x") + gf.placeholder((4,), name="y")
        raise ZeroDivisionError


def test_reentering_does_not_raise_early():
    with pytest.raises(GraphErrors, match="1 mistake"):
        with gf.Graph(collect_errors=True) as g:
            x = gf.placeholder((3,), name="x")
            with g:
                x + gf.placeholder((4,), name="y")
            x + 1


def test_stand_ins_have_as_many_outputs_as_the_op():
    with pytest.raises(GraphErrors) as caught, gf.Graph(collect_errors=True):
        x = gf.placeholder((5,), name="x")
        a, b, c = emit_all(REGISTRY["split"]((1, 1, 1), 0), x)
        (a + b) @ c
        gf.exp(gf.arange(3, dtype=gf.bool))
        gf.sum(gf.zeros((2,), dtype=gf.bool) @ gf.zeros((3,), dtype=gf.bool))
    assert [e.summary.split(":")[0] for e in caught.value.errors] == [
        "split",
        "arange",
        "matmul",
    ]


@pytest.mark.parametrize("again", [lambda e: pickle.loads(pickle.dumps(e)), copy.deepcopy])
def test_errors_can_be_copied(again: Callable[[GraphErrors], GraphErrors]):
    with pytest.raises(GraphErrors) as caught, gf.Graph(collect_errors=True):
        gf.placeholder(("n",), name="x") + gf.placeholder((4,), name="y")
    made = again(caught.value)
    assert type(made) is GraphErrors
    assert str(made) == str(caught.value)
    assert type(made.errors[0]) is ShapeError
    assert vars(made.errors[0]) == vars(caught.value.errors[0])


def test_a_training_step_after_a_mistake_adds_none():
    with pytest.raises(GraphErrors) as caught, gf.Graph(collect_errors=True):
        x = gf.placeholder(("batch", 4), name="x")
        labels = gf.placeholder(("batch",), gf.int64, name="labels")
        model = gf.nn.Sequential(gf.nn.Linear(4, 8), gf.nn.ReLU(), gf.nn.Linear(9, 2))
        loss = gf.nn.cross_entropy(model(x), labels)
        gf.optim.Adam(1e-3, clip_norm=1.0).minimize(loss)
    assert [type(e) for e in caught.value.errors] == [ShapeError]


def test_gradients_of_what_failed_are_stand_ins():
    with pytest.raises(GraphErrors) as caught, gf.Graph(collect_errors=True) as g:
        x = gf.placeholder(("batch", 4), name="x")
        w = gf.Variable([[1.0, 2.0]], name="w")
        wrong = x @ gf.ones((5, 2))
        of_wrong = gf.grad(wrong, [x, w])  # no scalar, and not dependent on w
        with_wrong = gf.grad(gf.sum(w), [w, wrong])
        (of_wrong[1] @ w) + gf.zeros((7,))  # follows
    assert len(caught.value.errors) == 1
    assert [t.type for t in of_wrong] == [x.type, w.type]
    assert [t.type for t in with_wrong] == [w.type, wrong.type]
    assert all(g.is_poisoned(t.node) for t in (*of_wrong, *with_wrong))


def test_an_error_that_follows_from_a_mistake_is_none_of_its_own():
    with pytest.raises(GraphErrors) as caught, gf.Graph(collect_errors=True):
        wrong = gf.ones((2, 3)) @ gf.ones((2, 3))
        gf.optim.SGD(0.1).minimize(wrong)  # refuses a loss that is no scalar
    assert [type(e) for e in caught.value.errors] == [ShapeError]
    with pytest.raises(GraphErrors) as caught, gf.Graph(collect_errors=True):
        gf.arange(3, dtype=gf.bool) @ gf.ones((5,))  # the stand-in has no dims
    assert [e.summary.split(":")[0] for e in caught.value.errors] == ["arange"]


def test_other_exceptions_tell_the_mistakes_too():
    with pytest.raises(AttributeError) as caught, gf.Graph(collect_errors=True):
        gf.ones((2, 3)) @ gf.ones((2, 3))
        None.shape  # noqa: B018  asking is the mistake
    (note,) = caught.value.__notes__
    assert note.startswith("1 mistake in this graph\n[1] ShapeError: matmul")
