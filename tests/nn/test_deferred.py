"""Layers that find a size in their first call: `Linear(None, 10)`."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, CallError, GraphError, ShapeError, UnknownNameError

LAYERS: dict[str, tuple[Callable[[Any], gf.nn.Module], tuple[Any, ...], int]] = {
    "Linear": (lambda n: gf.nn.Linear(n, 3), ("batch", "time", 4), 4),
    "Linear, no bias": (lambda n: gf.nn.Linear(n, 3, bias=False, dtype="float64"), ("b", 4), 4),
    "Conv1d": (lambda n: gf.nn.Conv1d(n, 6, 3, groups=2), ("batch", 4, "time"), 4),
    "Conv2d": (lambda n: gf.nn.Conv2d(n, 6, 3, padding="same"), (None, 4, None, None), 4),
    "Conv3d": (lambda n: gf.nn.Conv3d(n, 2, 1), (1, 4, 2, 2, 2), 4),
    "ConvTranspose1d": (lambda n: gf.nn.ConvTranspose1d(n, 6, 3, groups=2), ("batch", 4, 5), 4),
    "ConvTranspose2d": (lambda n: gf.nn.ConvTranspose2d(n, 2, 3), ("batch", 4, 5, 6), 4),
    "ConvTranspose3d": (lambda n: gf.nn.ConvTranspose3d(n, 2, 1), (1, 4, 2, 2, 2), 4),
    "BatchNorm": (lambda n: gf.nn.BatchNorm(n), ("batch", 4), 4),
    "BatchNorm, axis": (lambda n: gf.nn.BatchNorm(n, momentum=None, axis=1), (2, 4, 3), 4),
    "BatchNorm, plain": (
        lambda n: gf.nn.BatchNorm(n, affine=False, track_running_stats=False),
        ("batch", 4),
        4,
    ),
    "BatchNorm1d": (lambda n: gf.nn.BatchNorm1d(n), ("batch", 4, "time"), 4),
    "BatchNorm2d": (lambda n: gf.nn.BatchNorm2d(n), ("batch", 4, 3, 3), 4),
    "BatchNorm3d": (lambda n: gf.nn.BatchNorm3d(n), ("batch", 4, 2, 2, 2), 4),
    "InstanceNorm1d": (lambda n: gf.nn.InstanceNorm1d(n, affine=True), ("batch", 4, 5), 4),
    "InstanceNorm2d": (
        lambda n: gf.nn.InstanceNorm2d(n, affine=True, track_running_stats=True),
        ("batch", 4, 3, 3),
        4,
    ),
    "InstanceNorm3d": (lambda n: gf.nn.InstanceNorm3d(n), ("batch", 4, 2, 2, 2), 4),
    "GroupNorm": (lambda n: gf.nn.GroupNorm(2, n, axis=1), ("batch", 4, "time"), 4),
    "LayerNorm": (lambda n: gf.nn.LayerNorm(n), ("batch", "time", 4), 4),
    "RMSNorm": (lambda n: gf.nn.RMSNorm(n), ("batch", "time", 4), 4),
}
each_layer = pytest.mark.parametrize(("make", "shape", "size"), LAYERS.values(), ids=LAYERS)


@each_layer
def test_it_is_the_layer_with_the_size(make: Any, shape: tuple[Any, ...], size: int):
    def graph(argument: int | None) -> tuple[gf.Graph, gf.nn.Module]:
        with gf.Graph() as g:
            x = gf.placeholder(shape, name="x")
            layer = make(argument)
            gf.identity(layer(x), name="y")
        return g, layer

    (found, layer), (given, expected) = graph(None), graph(size)
    assert sorted(map(str, found.variables)) == sorted(map(str, given.variables))
    assert repr(layer) == repr(expected)
    assert [name for name, _ in layer.named_variables()] == [
        name for name, _ in expected.named_variables()
    ]
    values = np.random.default_rng(0).normal(size=[d if isinstance(d, int) else 5 for d in shape])
    results = []
    for g in (found, given):
        with gf.Session(g, seed=3) as session:
            results.append(session.run("y", {"x": values.astype(np.float32)}))
    np.testing.assert_array_equal(*results)


@each_layer
def test_variables_are_refused_before(make: Any, shape: tuple[Any, ...], size: int):
    with gf.Graph():
        layer = make(None)
        model = gf.nn.Sequential(layer, gf.nn.ReLU())
        for ask in (
            model.parameters,
            model.variables,
            model.buffers,
            model.named_parameters,
            layer.named_variables,
        ):
            with pytest.raises(GraphError, match=r"first call") as caught:
                ask()
            assert "call the model before, model(x), or give" in str(caught.value)
            assert '"sequential.0" finds' in str(caught.value)
        with pytest.raises(UnknownNameError, match=r"has no weight yet: .* in its first call"):
            layer.weight  # noqa: B018  # looked up
        assert not hasattr(layer, "bias") or make is LAYERS["RMSNorm"][0]
        assert "=None)" in repr(layer)
        assert "=None)" in repr(model)
        model(gf.placeholder(shape, name="x"))
        assert model.variables() == layer.variables()


def test_a_model_is_trained_and_restored(rng: np.random.Generator, tmp_path: Any):
    with gf.Graph() as g:
        x = gf.placeholder(("batch", 6), name="x")
        model = gf.nn.Sequential(
            gf.nn.Linear(None, 8), gf.nn.BatchNorm(None), gf.nn.ReLU(), gf.nn.Linear(None, 2)
        )
        loss = gf.mean(model(x) ** 2)
        train = gf.optim.Adam(1e-2).minimize(loss, model.parameters())
        scores = model(x, training=False)
    assert [v.name for v in g.variables][:2] == ["sequential.0.weight", "sequential.0.bias"]
    values = rng.normal(size=(9, 6)).astype(np.float32)
    with gf.Session(g) as session:
        first, *_, last = [session.run([loss, train], {x: values})[0] for _ in range(20)]
        assert last < first
        state, expected = model.state_dict(session), session.run(scores, {x: values})
    with gf.Session(g, seed=1) as session:
        model.load_state_dict(session, state)
        np.testing.assert_array_equal(session.run(scores, {x: values}), expected)


def test_a_second_call_checks_the_size():
    with gf.Graph():
        layer = gf.nn.Linear(None, 3)
        layer(gf.placeholder((5, 4)))
        with pytest.raises(ShapeError, match="matmul") as caught:
            layer(gf.placeholder((5, 6)))
    assert "Linear(in_features=4) receives 6 features" in str(caught.value)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_before_the_first_call(copied: Any):
    with gf.Graph():
        model = gf.nn.Sequential(gf.nn.Linear(None, 3, weight_init=gf.nn.init.ones))
    other = copied(model)  # with its graph
    graph = other._names.graph
    with graph:
        y = other(gf.placeholder((2, 4), name="x"))
    assert other[0].weight.shape == (4, 3)
    assert [v.name for v in graph.variables] == ["sequential.0.weight", "sequential.0.bias"]
    with pytest.raises(GraphError, match="first call"):
        model.parameters()
    with gf.Session(graph, seed=0) as session:
        bias = session[other[0].bias]
        np.testing.assert_allclose(
            session.run(y, {"x": np.ones((2, 4), np.float32)}), 4 + bias[None].repeat(2, 0)
        )


def test_a_copy_in_the_same_graph_has_a_size_of_its_own():
    with gf.Graph() as g:
        model = gf.nn.Linear(None, 3)
        other = copy.deepcopy(model)
        model(gf.placeholder((2, 4)))
        other(gf.placeholder((2, 5)))
        late = copy.deepcopy(model)
    assert (model.weight.shape, other.weight.shape, late.weight.shape) == ((4, 3), (5, 3), (4, 3))
    assert len({v.name for v in g.variables}) == 6


def test_first_calls_inside_of_bodies():
    with gf.Graph() as g:
        x = gf.placeholder(("time", 4), name="x")
        cell, each, branch = (gf.nn.Linear(None, 4) for _ in range(3))
        carry, _ = gf.scan(lambda c, row: (cell(c) + row, ()), x[0], x)
        mapped = gf.vmap(each)(x)
        chosen = gf.cond(gf.sum(x) > 0, lambda: branch(x), lambda: x)
        total = gf.sum(carry) + gf.sum(mapped) + gf.sum(chosen)
        train = gf.optim.SGD(0.1).minimize(total)
    names = [v.name for v in (*cell.variables(), *each.variables(), *branch.variables())]
    assert len(set(names)) == 6
    with gf.Session(g) as session:
        before = session.state_dict()
        session.run(train, {x: np.ones((3, 4), np.float32)})
        now = session.state_dict()
    assert all(not np.array_equal(before[name], now[name]) for name in names)


def test_modules_that_a_function_makes():
    @gf.function
    def step(x: Any) -> Any:
        return gf.nn.Linear(None, 3)(x)

    first = step(np.ones((2, 4), np.float32))
    np.testing.assert_array_equal(step(np.ones((5, 4), np.float32))[:2], first)


def test_the_first_call_is_in_the_layers_graph():
    with gf.Graph() as g:
        layer = gf.nn.Linear(None, 3)
        for call in (gf.make_graph, gf.eval_shape):
            with pytest.raises(GraphError, match="its first call finds in_features") as caught:
                call(layer, ((2, 4), "float32"))
            assert "call it first inside `with` of its graph" in str(caught.value)
    with gf.Graph(), pytest.raises(GraphError, match="is not in its graph"):
        layer(gf.placeholder((2, 4)))
    with g:
        layer(gf.placeholder((2, 4)))
    assert layer.weight.shape == (4, 3)


def test_layers_of_a_functions_session_are_called_before():
    with gf.Graph() as g:
        layer = gf.nn.Linear(None, 3)
    with gf.Session(g) as session:
        call = gf.function(lambda x: layer(x), session=session)
        with pytest.raises(GraphError, match="its first call finds in_features"):
            call(np.ones((2, 4), np.float32))
        with g:
            layer(gf.placeholder((1, 4)))
        assert call(np.ones((2, 4), np.float32)).shape == (2, 3)


def test_collected_errors_start_no_second_one():
    with pytest.raises(gf.GraphErrors) as caught, gf.Graph(collect_errors=True):
        h = gf.placeholder((5, 4), name="x") @ gf.ones((3, 2))
        gf.nn.BatchNorm(None)(gf.nn.Linear(None, 3)(h))
    assert "1 mistake" in str(caught.value)


def test_a_summary_leaves_it_as_it_is():
    with gf.Graph() as g:
        model = gf.nn.Sequential(gf.nn.Linear(None, 8), gf.nn.BatchNorm(None))
        table = model.summary(("batch", 4))
        assert [(row.parameters, row.trained) for row in table.rows] == [(0, 0), (40, 40), (32, 16)]
        assert not g.variables
        with pytest.raises(GraphError, match="first call"):
            model.parameters()
        assert model.summary(("batch", 6)).parameters == 88
        model(gf.placeholder(("batch", 4)))
    assert model[0].weight.name == "sequential.0.weight"


def test_layers_that_are_not_called():
    class Model(gf.nn.Module):
        def __init__(self) -> None:
            self.used, self.unused = gf.nn.Linear(None, 2), gf.nn.Linear(None, 2)

        def forward(self, x: Any) -> Any:
            return self.used(x)

    with gf.Graph() as g:
        model = Model()
        model.eval()
        loss = gf.sum(model(gf.placeholder((3, 4), name="x")))
        with pytest.raises(GraphError, match=r'"model\.unused" finds in_features'):
            gf.optim.SGD(0.1).minimize(loss, model.parameters())
        gf.optim.SGD(0.1).minimize(loss, model.used.parameters())
    with gf.Session(g) as session, pytest.raises(GraphError, match="first call"):
        model.state_dict(session)


# Mistakes.


@pytest.mark.parametrize("name", ["Linear", "Conv2d", "BatchNorm", "GroupNorm", "LayerNorm"])
def test_a_size_that_is_not_known(name: str):
    make, shape, size = LAYERS[name]
    shape = tuple("unknown" if dim == size else dim for dim in shape)
    with gf.Graph():
        layer = make(None)
        with pytest.raises(ArgumentError, match="a dim that is not known yet") as caught:
            layer(gf.placeholder(shape))
        assert caught.value.layer
        assert "=None)" in repr(layer)
        layer(gf.placeholder(tuple(size if dim == "unknown" else dim for dim in shape)))


def test_other_mistakes():
    with gf.Graph():
        with pytest.raises(ArgumentError, match="out_features=None is no int"):
            gf.nn.Linear(3, None)
        with pytest.raises(ArgumentError, match="in_channels=6 is no multiple of groups=4"):
            gf.nn.Conv1d(None, 8, 3, groups=4)(gf.placeholder((1, 6, 5)))
        with pytest.raises(ArgumentError, match="out_channels=6 is no multiple of groups=4"):
            gf.nn.Conv1d(None, 6, 3, groups=4)
        with pytest.raises(ArgumentError, match="channels=5 is no multiple of groups=2"):
            gf.nn.GroupNorm(2, None)(gf.placeholder((1, 5)))
        with pytest.raises(ShapeError, match="x has no dims"):
            gf.nn.Linear(None, 3)(gf.placeholder(()))
        with pytest.raises(ShapeError, match="x has no dims"):
            gf.nn.LayerNorm(None)(gf.placeholder(()))
        with pytest.raises(ShapeError, match="has 3 dims"):
            gf.nn.Conv2d(None, 3, 3)(gf.placeholder((3, 8, 8)))
        with pytest.raises(CallError, match="missing a required argument"):
            gf.nn.Linear(None, 3)()
        with pytest.raises(CallError, match="Linear"):
            gf.nn.Linear(None, 3)(gf.placeholder((3,)), 4)


def test_arguments_by_name_and_subclasses():
    class Scaled(gf.nn.Linear):
        def __init__(self) -> None:
            super().__init__(None, 3)
            self.gain = gf.Variable(np.ones(3, np.float32))

        def forward(self, x: Any, scale: float) -> Any:
            return super().forward(x) * self.gain * scale

    with gf.Graph():
        layer = Scaled()
        with pytest.raises(GraphError, match="first call"):
            layer.parameters()
        layer(scale=2.0, x=gf.placeholder((5, 4)))
        assert [name for name, _ in layer.named_parameters()] == ["gain", "weight", "bias"]


def test_what_was_assigned_before_is_not_replaced():
    with gf.Graph():
        layer = gf.nn.Linear(None, 3)
        layer.weight = gf.Variable(np.ones((4, 3), np.float32))
        with pytest.raises(ArgumentError, match=r"Linear\.weight was assigned before the first"):
            layer(gf.placeholder((5, 4)))
