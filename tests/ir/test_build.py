"""`emit`: types, places, names, errors, and whose graph a node goes to."""

import asyncio
import contextlib
import contextvars
import inspect
import threading

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import DTypeError, GraphError, GraphfwError, ShapeError
from graphfw.ir import ambient
from graphfw.ir.build import constant, emit, emit_all
from graphfw.ir.graph import AMBIENT
from graphfw.ir.op import REGISTRY
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import TensorType
from graphfw.ir.walk import ancestors

Add, MatMul = REGISTRY["add"], REGISTRY["matmul"]


def line() -> int:
    """The caller's line."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def ops(graph: gf.Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


# What a node knows.


def test_types_are_those_of_the_inputs_at_hand():
    """An op without fields remembers the types that it inferred last."""
    with gf.Graph():
        x = gf.placeholder(("n", 3), name="x")
        for _ in range(2):
            for y in (x, x[0], gf.astype(x, gf.float64), x):
                assert emit(Add(), y, y).type == y.type
                assert emit(REGISTRY["sin"](), y).type == y.type
                assert emit(REGISTRY["equal"](), y, y).type == TensorType(gf.bool, y.shape)
        with pytest.raises(ShapeError):
            emit(Add(), x, x[:, :2])


def test_emit_infers_and_appends():
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3), name="x")
        y = emit(Add(), x, x, name="y")
    assert str(y.type) == "float32[n, 3]"
    assert y.name == "y"
    assert y.graph is g
    assert [node.op.name for node in g.nodes] == ["placeholder", "add"]
    assert y.node.inputs[0] is x
    assert y.node.outputs[0] is y
    assert g.find("y") is y


def test_the_place_is_the_users_line():
    with gf.Graph():
        x = gf.placeholder((3,), name="x")
        y, here = gf.tanh(x) + 1, line()
    for node in ancestors([y])[1:]:
        assert node.loc.file == __file__
        assert node.loc.line == here
        assert node.loc.function == "test_the_place_is_the_users_line"
    assert y.node.loc.short() == f"test_build.py:{here}"
    assert y.node.loc.describe().endswith(
        f":{here} in test_the_place_is_the_users_line:   y, here = gf.tanh(x) + 1, line()"
    )


def test_a_line_is_one_place_however_often_it_runs():
    with gf.Graph():
        x = gf.placeholder((3,))
        first, *rest = [gf.sin(gf.exp(x)).node.loc for _ in range(3)]
        assert all(loc is first for loc in rest)
        assert (first.line, first.function) == (line() - 2, "<listcomp>")
        with gf.name_scope("layer"):
            assert gf.exp(x).node.loc.layer == "layer"


def test_places_are_those_of_the_code_that_runs():
    """Code that was dropped may leave its place in memory to other code."""
    for number in range(1, 60):
        code = compile("\n" * number + "y = gf.exp(x)", f"user{number}.py", "exec")
        with gf.Graph():
            names = {"gf": gf, "x": gf.placeholder((3,)), "__name__": f"user{number}"}
            exec(code, names)
        assert names["y"].node.loc[:2] == (f"user{number}.py", number + 1)
        del code, names


def test_a_string_that_a_user_runs_is_a_place():
    """Other than the code that dataclass generates for the package's own classes."""
    with gf.Graph():
        names = {"gf": gf}
        exec("y = gf.tanh(gf.placeholder((3,)))", names)
    assert names["y"].node.loc[:3] == ("<string>", 1, "<module>")


def test_scopes_name_tensors_and_layers():
    with gf.Graph() as g:
        with gf.name_scope("model") as outer, gf.name_scope("fc") as inner:
            x = gf.placeholder((3,), name="x")
            y = x * 2
        z = x + 1
    assert (outer, inner) == ("model", "model.fc")
    assert x.name == "model.fc.x"
    assert g.find("model.fc.x") is x
    assert y.node.loc.layer == "model.fc"
    assert z.node.loc.layer == ""


@pytest.mark.parametrize("name", ["", "a b", "a\n"])
def test_scopes_have_names(name: str):
    with pytest.raises(gf.ArgumentError, match="is not a name") as caught, gf.name_scope(name):
        pass
    assert caught.value.at.file == __file__  # not contextlib's, which stands between


@pytest.mark.parametrize(
    "make",
    [
        lambda: gf.placeholder((2,), name=3),
        lambda: gf.Variable(1.0, name=3),
        lambda: gf.constant(1.0, name=3),
        lambda: gf.identity(gf.zeros(2), name=3),
        lambda: gf.random.normal((2,), name=3),
        lambda: gf.random.permutation(2, name=3),
        lambda: gf.name_scope(3),
    ],
)
def test_a_name_is_a_string(make):
    with gf.Graph():
        for scope in (contextlib.nullcontext(), gf.name_scope("a")):
            with scope, pytest.raises(gf.ArgumentError, match="name=3 is no string") as caught:
                make()
            assert caught.value.fix == 'use text, such as name="weight"'
            assert "test_build.py" in str(caught.value)


def test_scopes_are_left_on_errors():
    with pytest.raises(ZeroDivisionError), gf.name_scope("a"):
        raise ZeroDivisionError
    assert ambient.current_scope.get() == ""


def test_nodes_are_immutable():
    x = gf.asarray(1.0)
    with pytest.raises(AttributeError, match="nodes are immutable: passes rebuild"):
        x.node.name = "other"


# Errors.


def test_an_error_has_everything():
    with gf.Graph():
        h = gf.placeholder(("batch", 128), name="h1")
        w = gf.placeholder((64, 10), name="W2")
        with pytest.raises(ShapeError) as caught:
            gf.matmul(h, w)
    here = caught.value.at
    assert here is not None
    assert str(caught.value).splitlines() == [
        "matmul: contracting dims differ: x1[-1] = 128, x2[-2] = 64",
        f'  x1   "h1"  float32[batch, 128]  placeholder  test_build.py:{here.line - 3}',
        f'  x2   "W2"  float32[64, 10]      placeholder  test_build.py:{here.line - 2}',
        f"  at   {here.describe()}",
        "  fix  the dims that meet must be equal: x2 needs 128 rows, or x1 64 columns",
    ]
    assert caught.value.summary.startswith("matmul: ")
    assert [o.name for o in caught.value.operands] == ["h1", "W2"]
    assert isinstance(caught.value, ValueError)


def test_an_error_says_why_symbols_differ():
    with gf.Graph():
        x = gf.placeholder(("batch",), name="x")
        y = gf.placeholder(("n",), name="y")
        with pytest.raises(ShapeError) as caught:
            x + y
    error = caught.value
    assert error.why.startswith('`batch` is dim 0 of "x", test_build.py:')
    assert '; `n` is dim 0 of "y", test_build.py:' in error.why
    assert error.fix.startswith('name both dims "batch"')
    assert len(str(error).splitlines()) <= 6


def test_an_error_shows_what_the_user_passed():
    """The operands are the user's: not the ones that promotion made of them."""
    with gf.Graph():
        x = gf.placeholder((3,), gf.int32, name="x")
        y = gf.placeholder((4,), gf.float64, name="y")
        with pytest.raises(ShapeError) as caught:
            x * y
    assert [o.type for o in caught.value.operands] == ["int32[3]", "float64[4]"]


def test_dtype_errors_of_promotion():
    with gf.Graph():
        x = gf.placeholder((3,), gf.int32, name="x")
        y = gf.placeholder((3,), gf.uint64, name="y")
        with pytest.raises(DTypeError, match="no integer dtype holds both int32 and uint64") as e:
            x + y
    text = str(e.value)
    assert text.startswith("add: ")
    assert "test_build.py" in text
    assert "fix  convert one of them first" in text


def test_tracebacks_end_at_the_users_line():
    with pytest.raises(ShapeError) as caught, gf.Graph():
        gf.placeholder((3,), name="x") + gf.placeholder((4,), name="y")
    assert caught.traceback[-1].path.name == "test_build.py"


def test_full_tracebacks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GRAPHFW_ERRORS", "full")
    with pytest.raises(ShapeError) as caught, gf.Graph():
        gf.placeholder((3,), name="x") + gf.placeholder((4,), name="y")
    assert caught.traceback[-1].path.name != "test_build.py"


# Whose graph.


def test_another_graphs_tensors_are_refused():
    with gf.Graph():
        x = gf.placeholder((3,), name="x")
    with gf.Graph():
        y = gf.placeholder((3,), name="y")
        with pytest.raises(GraphError, match="add: its operand belongs to another graph") as caught:
            y + x
    text = str(caught.value)
    assert '"x"  float32[3]  placeholder' in text
    assert "fix  build both in one graph" in text


def test_nodes_are_made_inside_the_graph():
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
    with pytest.raises(GraphError, match="makes a node outside the graph") as caught:
        x * 2
    assert "describe inside `with graph:`" in str(caught.value)
    before = len(g.nodes)
    with g:
        y = x * 2
    assert y.graph is g
    assert len(g.nodes) > before


def test_graphs_nest():
    with gf.Graph() as outer:
        x = gf.placeholder((3,), name="x")
        with gf.Graph() as inner:
            gf.placeholder((3,), name="x")
            assert gf.current_graph() is inner
            with outer:
                y = x + 1
            assert gf.current_graph() is inner
        assert gf.current_graph() is outer
    assert gf.current_graph() is AMBIENT
    assert y.graph is outer
    assert ops(inner) == ["placeholder"]


def test_tensors_of_no_graph_are_adopted(rng: np.random.Generator):
    """Nodes that they depend on come along: nothing is computed now."""
    a = rng.normal(size=3).astype("float32")
    c = gf.tanh(gf.asarray(a)) * 2
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
        y = x + c
    assert ops(g) == ["placeholder", "constant", "tanh", "constant", "multiply", "add"]
    assert all(node.graph is g for node in g.nodes)
    assert c.graph is AMBIENT
    adopted = y.node.inputs[1]
    assert adopted.node.loc == c.node.loc
    np.testing.assert_array_equal(adopted.numpy(), np.tanh(a) * np.float32(2))
    with gf.Session(g) as session:
        np.testing.assert_allclose(session.run(y, {x: a}), a + np.tanh(a) * 2, rtol=1e-6)


def test_tensors_with_a_value_are_adopted_as_constants():
    c = gf.asarray([1.0, 2.0]) * 3
    c.numpy()
    with gf.Graph() as g:
        y = gf.placeholder((2,), name="x") + c
    assert ops(g) == ["placeholder", "constant", "add"]
    np.testing.assert_array_equal(y.node.inputs[1].numpy(), [3, 6])


def test_random_draws_are_adopted_as_values():
    draw = gf.random.uniform((4,))
    with gf.Graph() as g:
        y = gf.placeholder((4,), name="x") + draw
    assert ops(g) == ["placeholder", "constant", "add"]
    np.testing.assert_array_equal(y.node.inputs[1].numpy(), draw.numpy())


def test_adopting_a_long_chain_does_not_recurse():
    c = gf.asarray(0.0)
    for _ in range(20_000):
        c = emit(Add(), c, c)
    with gf.Graph() as g:
        x = gf.placeholder((), name="x")
        emit(Add(), x, c)
    assert len(g.nodes) == 20_003


def test_tensors_of_no_graph_are_collected():
    import gc
    import weakref

    x = gf.asarray([1.0])
    y = x + 1
    node = y.node
    ref = weakref.ref(y)
    del y
    gc.collect()
    assert ref() is None
    assert node.outputs[0].node is node  # made again on demand


def test_constant_keeps_what_it_was_given(rng: np.random.Generator):
    a = rng.normal(size=(2, 3))
    kept = a.copy()
    t = constant(a)
    a[:] = 0
    np.testing.assert_array_equal(t.numpy(), kept)
    with pytest.raises(ValueError, match="read-only"):
        t.numpy()[0, 0] = 1


# no_grad.


def test_no_grad_stops_gradients():
    x = gf.asarray([1.0, 2.0])
    with gf.no_grad():
        y = gf.tanh(x)
        counts = gf.argmax(x)
    assert y.node.op.name == "stop_gradient"
    assert counts.node.op.name == "argmax"
    with pytest.raises(gf.GradientError, match="only through stop_gradient"):
        gf.grad(gf.sum(y), x)


def test_no_grad_is_left_on_errors():
    with pytest.raises(ZeroDivisionError), gf.no_grad():
        raise ZeroDivisionError
    x = gf.asarray(2.0)
    assert float(gf.grad(x * x, x)) == 4


# Threads and tasks.


def test_ambient_state_is_each_threads_own():
    seen = []

    def look() -> None:
        seen.append((gf.current_graph() is AMBIENT, gf.get_default_dtype(), gf.asarray(1.5).dtype))

    with gf.Graph(), gf.default_dtype(gf.float64), gf.name_scope("a"):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert seen == [(True, gf.float32, gf.float32)]


def test_one_thread_builds_a_graph():
    """A second thread that enters, or appends without entering, is told so."""
    errors: list[GraphfwError] = []
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")

        def enter() -> None:
            try:
                with g:
                    pass
            except GraphError as error:
                errors.append(error)

        def append() -> None:
            try:
                x + 1
            except GraphError as error:
                errors.append(error)

        for run in (enter, lambda: contextvars.copy_context().run(append)):
            context = contextvars.copy_context()
            thread = threading.Thread(target=context.run, args=(run,))
            thread.start()
            thread.join()
        y = x + 1  # the builder goes on
    assert y.graph is g
    assert [e.summary for e in errors] == ["this graph is being built by another thread"] * 2
    assert "give each thread a graph of its own" in errors[0].fix
    assert "enter the graph in the thread that builds it" in errors[1].fix


def test_threads_take_turns():
    g = gf.Graph()

    def build(name: str) -> None:
        with g:
            gf.placeholder((3,), name=name)

    for name in ("x", "y"):
        thread = threading.Thread(target=build, args=(name,))
        thread.start()
        thread.join()
    assert [t.name for t in g.placeholders] == ["x", "y"]


def test_threads_build_graphs_of_their_own():
    results: dict[int, gf.Graph] = {}
    start = threading.Barrier(4)

    def build(i: int) -> None:
        start.wait()
        with gf.Graph() as g, gf.name_scope(f"s{i}"):
            t: Tensor = gf.placeholder((3,), name="x")
            for _ in range(200):
                t = t + i
        results[i] = g

    threads = [threading.Thread(target=build, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, g in results.items():
        assert len(g.nodes) == 401
        assert g.placeholders[0].name == f"s{i}.x"
        assert {node.graph for node in g.nodes} == {g}


def test_tasks_interleave():
    """Tasks of one thread each build their own graph, and may build one together."""
    shared = gf.Graph()

    async def build(i: int) -> gf.Graph:
        with gf.Graph() as g, gf.name_scope(f"s{i}"), gf.default_dtype(("float32", "float64")[i]):
            t = gf.placeholder((3,), name="x")
            for _ in range(5):
                await asyncio.sleep(0)
                t = t + 1
                assert gf.current_graph() is g
                with shared:
                    await asyncio.sleep(0)
                    gf.identity(gf.asarray(float(i)))
        return g

    async def both() -> list[gf.Graph]:
        return await asyncio.gather(build(0), build(1))

    graphs = asyncio.run(both())
    for i, g in enumerate(graphs):
        assert len(g.nodes) == 11
        assert g.placeholders[0].name == f"s{i}.x"
        assert str(g.placeholders[0].dtype) == ("float32", "float64")[i]
    assert len(shared.nodes) == 20
    assert gf.current_graph() is AMBIENT


def test_several_outputs_have_names():
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
        ys = emit_all(REGISTRY["custom_gradient"](2, abs), x, x, x, name="pair")
    assert [y.name for y in ys] == ["pair:0", "pair:1"]
    assert g.find("pair") is ys[0]
    assert [y.index for y in ys] == [0, 1]
