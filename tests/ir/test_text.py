"""The text of graphs: print → parse → print is the identity."""

import math
from collections.abc import Iterator

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ParseError
from graphfw.ir import dtype as dtypes
from graphfw.ir.build import emit, emit_all
from graphfw.ir.dim import dim_max, symbol
from graphfw.ir.op import NONDIFF, RANDOM, REGISTRY, Op, op
from graphfw.ir.parser import parse
from graphfw.ir.printer import graph_text
from graphfw.ir.rebuild import derive
from graphfw.ir.sources import Placeholder
from graphfw.ir.tensor import Node
from graphfw.ir.types import parse_type
from graphfw.ir.variable import Update
from graphfw.loc import UNKNOWN, Loc
from tests.support.graph_text import assert_same, round_trip

N, M = symbol("n"), symbol("m")


@pytest.fixture
def own_ops() -> Iterator[tuple[type[Op], type[Op], type[Op]]]:
    """Ops that only these tests have: two outputs, no output, any field."""

    @op("test_halves")
    class Halves(Op):
        axis: int
        multiple = True
        vjp = NONDIFF

        def shape(self, x):
            half = x[self.axis] // 2
            dims = tuple(half if i == self.axis else dim for i, dim in enumerate(x))
            return dims, dims

        def dtype(self, x):
            return x, dtypes.int64

        def eval(self, xp, x): ...

    @op("test_sink")
    class Sink(Op):
        multiple = True
        vjp = NONDIFF

        def shape(self, x):
            return ()

        def dtype(self, x):
            return ()

        def eval(self, xp, x): ...

    @op("test_holder")
    class Holder(Op):
        payload: object
        other: object = 3
        vjp = NONDIFF

        def shape(self, x):
            return x

        def dtype(self, x):
            return x

        def eval(self, xp, x): ...

    yield Halves, Sink, Holder
    for name in ("test_halves", "test_sink", "test_holder"):
        del REGISTRY[name]


# Whole graphs.


def test_the_text_itself():
    with gf.Graph("mlp") as g, g.located(Loc("model.py", 3, "build", "fc")):
        x = gf.placeholder(("batch", 3), name="x")
        w = gf.Variable(np.ones((3, 2), np.float32), name="w", trainable=False)
        y = gf.matmul(x, w)
        gf.update(w, w * 2.0)
    g.outputs = (y,)
    assert graph_text(g, locations=False) == (
        'graph "mlp" opset 2 {\n'
        '  %0 = placeholder(name="x") : float32[batch, 3]\n'
        '  %1 = variable("w", trainable=False, initial=[[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]])'
        " : float32[3, 2]\n"
        "  %2 = matmul(%0, %1) : float32[batch, 2]\n"
        "  %3 = constant(2.0) : float32[]\n"
        "  %4 = multiply(%1, %3) : float32[3, 2]\n"
        '  update "w" = %4\n'
        "  output %2\n"
        "}"
    )
    line = graph_text(g).splitlines()[3]
    assert line.split("#") == [
        "  %2 = matmul(%0, %1) : float32[batch, 2]".ljust(66),
        " model.py:3 in build, layer fc",
    ]


def test_round_trip_of_a_model(rng):
    with gf.Graph("model") as g:
        x = gf.placeholder(("batch", 5, None), name="x")
        mask = gf.placeholder((), dtypes.bool_, name="mask")
        w = gf.Variable(rng.normal(size=(7, 5)).astype(np.float32), name="w")
        with gf.name_scope("block"):
            b = gf.Variable(rng.normal(size=(7, 1)).astype(np.float32), name="b")
            h = gf.identity(gf.matmul(w, x) + b, name="h")
        flat = gf.reshape(h, (-1,))
        pair = gf.permute_dims(h, (2, 0, 1))
        y = gf.stop_gradient(gf.sum(h * h, axis=(0, 2), keepdims=True))
        gf.group(gf.update(w, w * 0.5), gf.update(b, b + 1.0))
    g.outputs = (y, flat, pair, mask)
    again = round_trip(g)
    assert_same(g, again)
    assert [v.name for v in again.variables] == ["w", "block.b"]
    for variable, other in zip(g.variables, again.variables, strict=True):
        np.testing.assert_array_equal(other.initial, variable.initial)
        assert other.graph is again
    both = again.updates[-1]
    assert len(again.updates) == len(g.updates)
    assert all(v is w for (v, _), w in zip(both.pairs, again.variables, strict=True))
    assert again.outputs[1].type == flat.type
    assert again.find("block.h").shape == h.shape


def test_an_open_scope_adds_nothing():
    with gf.Graph() as g, gf.name_scope("inner"):
        gf.Variable([1.0], name="w")
        gf.identity(gf.placeholder((3,), name="x"), name="y")
    text = str(g)
    with gf.Graph(), gf.name_scope("elsewhere"):
        again = parse(text)
    assert str(again) == text
    assert again.variables[0].name == "inner.w"


def test_empty_graph():
    g = gf.Graph('a "name"\nof # two lines')
    assert_same(g, round_trip(g))


def test_symbolic_dims():
    with gf.Graph() as g:
        x = gf.placeholder((N // 2, N + 1, dim_max(N, M)), name="x")
        y = gf.reshape(x, (-1, N // 2))
        gf.broadcast_to(gf.sum(y), (N % 4, 2 * N * M - 1, dim_max(N - M, 3)))
    assert_same(g, round_trip(g))


def test_several_outputs_and_none(own_ops):
    halves, sink, _ = own_ops
    with gf.Graph() as g:
        x = gf.placeholder((N, 6), gf.float16, name="x")
        left, right = emit_all(halves(0), x)
        emit_all(sink(), right)
        emit_all(halves(1), left, name="second")
    text = str(g)
    assert "%1, %2 = test_halves(%0, axis=0) : (float16[n//2, 6], int64[n//2, 6])" in text
    assert "  test_sink(%2) : ()" in text
    again = round_trip(g)
    assert_same(g, again)
    assert again.nodes[3].inputs[0] is again.nodes[1].outputs[0]


def test_every_op_of_the_registry():
    """One graph of all `ok` samples: a field whose values have no text fails here."""
    count = 0
    with gf.Graph() as g, g.located(UNKNOWN):
        for cls in list(REGISTRY.values()):
            for case in cls.cases():
                if case.error is not None:
                    continue
                types = map(parse_type, case.types)
                inputs = [emit(Placeholder(kind.shape, kind.dtype)) for kind in types]
                emit_all(cls(**case.fields), *inputs)
                count += 1
    assert count > 10
    assert "opaque" not in str(g)
    assert_same(g, round_trip(g))


def test_updates_that_are_carried():
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
        mean = gf.Variable(np.zeros(3, np.float32), name=" carried by %9")
        y, z = x - mean, x * mean
        update = gf.update(mean, x)
        gf.update(mean, y)
        g.carried += [(update, y), (update, z)]
    assert " = %0 carried by %2, %3 " in str(g)
    again = round_trip(g)
    assert [(u, t.node.op.name) for u, t in again.carried] == [
        (again.updates[0], "subtract"),
        (again.updates[0], "multiply"),
    ]


def test_derived_graph():
    with gf.Graph("whole") as g:
        x = gf.placeholder((3,), name="x")
        start = gf.constant([1.0, 2.0, 3.0]) + 1.0
        v = gf.Variable(start, name="v", trainable=False)
        w = gf.Variable(np.zeros(3, np.float32), name="w")
        y = x * v
        gf.update(w, y)
    derived = derive(g, [y])
    text = graph_text(derived, locations=False)
    assert text == (
        'graph "whole" opset 2 derived {\n'
        '  %0 = placeholder(name="x") : float32[3]\n'
        '  %1 = variable("v", trainable=False) : float32[3]\n'
        "  %2 = multiply(%0, %1) : float32[3]\n"
        "  output %2\n"
        "}"
    )
    assert derived.constants() == {}
    assert_same(derived, round_trip(derived))


def test_extending_a_parsed_graph_takes_new_names():
    with gf.Graph() as g:
        gf.placeholder((None, None), name="x")
        gf.Variable(1.0)
        gf.Variable(2.0)
        for _ in range(3):
            gf.random.uniform((3,))
    again = round_trip(g)
    with again:
        gf.random.uniform((3,))
        fresh = again.fresh_symbol("x_1")
        third = gf.Variable(3.0)
    assert str(fresh) not in str(again).partition("variable")[0]
    assert third.name == "variable_2"
    keys = [node.op.key for node in again.nodes if RANDOM in node.op.traits]
    assert len(set(keys)) == len(keys) == 4


def test_broken_graph_is_printed():
    with gf.Graph() as g, gf.Graph():
        elsewhere = gf.placeholder((2,), name="x")
    with g:
        identity = REGISTRY["identity"]()
        g.append(Node(identity, (elsewhere,), (elsewhere.type,), UNKNOWN, "", g))
    assert "(%?) : float32[2]" in str(g)
    with pytest.raises(ParseError, match=r"%\? is not defined above this line"):
        parse(str(g))


# Values of fields.


def test_fields_in_a_graph(own_ops):
    _, _, holder = own_ops
    payloads = [
        "%0, %1 # : = ) @ab \" ' \\ é \ud800 \x85 \u2028",
        ((N % 4, "n"), slice(0, N // 2, None)),
        (None, True, 1, 1.0, dtypes.bool_, (-math.inf,)),
    ]
    with gf.Graph() as g:
        x = gf.placeholder((N,), name="x")
        for payload in payloads:
            x = emit(holder(payload), x)
    again = round_trip(g)
    assert [n.op.payload for n in again.nodes[1:]] == payloads
    assert_same(g, again)


def test_field_without_text(own_ops):
    _, _, holder = own_ops
    with gf.Graph() as g:
        emit(holder(frozenset()), gf.placeholder((1,), name="x"))
    assert 'payload=opaque("frozenset()")' in str(g)
    with pytest.raises(ParseError, match="is a value that has no text"):
        parse(str(g))


# Mistakes.


def test_empty_update():
    with gf.Graph() as g:
        Update([], g, UNKNOWN)
    assert round_trip(g).updates[0].pairs == ()


def test_a_parsed_training_graph_runs(rng: np.random.Generator):
    with gf.Graph() as g:
        x = gf.placeholder(("batch", 5), name="x")
        labels = gf.placeholder(("batch",), gf.int64, name="labels")
        model = gf.nn.Sequential(gf.nn.Linear(5, 30), gf.nn.ReLU(), gf.nn.Linear(30, 3))
        train = gf.optim.Adam(1e-2).minimize(gf.nn.cross_entropy(model(x), labels))
    again = gf.parse(str(g), constants=g.constants())
    feeds = {"x": rng.normal(size=(7, 5)).astype("float32"), "labels": rng.integers(0, 3, 7)}
    session, parsed = gf.Session(g, seed=3), gf.Session(again, seed=3)
    for _ in range(2):
        session.run(train, feeds)
        parsed.run(again.updates, feeds)
    state = parsed.state_dict()
    for name, array in session.state_dict().items():
        np.testing.assert_array_equal(state.pop(name), array)
    assert not state
