"""The text of graphs: print → parse → print is the identity; mistakes come with their line.

Long: each thing that text can hold is written, read back and broken.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfw as gf
from graphfw.errors import GraphError, ParseError, VerifyError
from graphfw.ir import dtype as dtypes
from graphfw.ir.build import emit, emit_all
from graphfw.ir.dim import dim_max, symbol
from graphfw.ir.dim_text import parse_dim
from graphfw.ir.graph import Graph
from graphfw.ir.literal import Literal
from graphfw.ir.op import NONDIFF, RANDOM, REGISTRY, Op, op
from graphfw.ir.parser import parse
from graphfw.ir.printer import INLINE_SIZE, graph_text, literal_text, loc_text, quoted, value_text
from graphfw.ir.rebuild import derive
from graphfw.ir.sources import Constant, Placeholder
from graphfw.ir.syntax import array_of, call, loc_of, value_of
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import TensorType, parse_type
from graphfw.ir.variable import Update
from graphfw.loc import UNKNOWN, Loc

N, M = symbol("n"), symbol("m")


def round_trip(graph: Graph, **options) -> Graph:
    text = str(graph)
    again = parse(text, constants=graph.constants(), **options)
    assert str(again) == text
    return again


def assert_same(graph: Graph, again: Graph) -> None:
    """Compare what the text may not show."""
    assert (again.name, again.opset) == (graph.name, graph.opset)
    assert again.is_derived == graph.is_derived
    assert [n.op for n in again.nodes] == [n.op for n in graph.nodes]
    assert [n.types for n in again.nodes] == [n.types for n in graph.nodes]
    assert [n.name for n in again.nodes] == [n.name for n in graph.nodes]
    assert all(n.graph is again for n in again.nodes)
    where = {node: i for i, node in enumerate(graph.nodes)}
    where_again = {node: i for i, node in enumerate(again.nodes)}
    for node, other in zip(graph.nodes, again.nodes, strict=True):
        assert [(where[t.node], t.index) for t in node.inputs] == [
            (where_again[t.node], t.index) for t in other.inputs
        ]


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
        'graph "mlp" opset 1 {\n'
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
    part = derive(g, [y])
    text = graph_text(part, locations=False)
    assert text == (
        'graph "whole" opset 1 derived {\n'
        '  %0 = placeholder(name="x") : float32[3]\n'
        '  %1 = variable("v", trainable=False) : float32[3]\n'
        "  %2 = multiply(%0, %1) : float32[3]\n"
        "  output %2\n"
        "}"
    )
    assert part.constants() == {}
    assert_same(part, round_trip(part))


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


# Constants and initial values.

SPECIAL = [0.0, -0.0, 1.0, 0.1, -2.5, 1e-7, 65504.0, math.inf, -math.inf, math.nan, -math.nan]


def sample(kind: dtypes.DType) -> np.ndarray:
    if kind.is_bool:
        return np.array([[True, False, True]])
    if kind.is_integer:
        info = np.iinfo(kind.dtype)
        return np.array([[info.min, info.max], [0, 1]], kind.dtype)
    if kind.is_complex:
        values = [complex(a, b) for a, b in zip(SPECIAL, reversed(SPECIAL), strict=True)]
        return np.array(values, kind.dtype)
    info = ml_dtypes.finfo(kind.dtype)
    extreme = [info.max, info.tiny, info.smallest_subnormal, info.eps]
    with np.errstate(over="ignore"):
        return np.array([*SPECIAL, *extreme]).astype(kind.dtype)


@pytest.mark.parametrize("kind", dtypes.ALL, ids=str)
def test_constants_of_all_dtypes(kind):
    small, large = sample(kind), np.resize(sample(kind), (5, 7))
    with gf.Graph() as g:
        for array in (small, small.ravel()[0], small[:0], large):
            emit(Constant(Literal(np.asarray(array))))
        gf.Variable(small, name="small")
        gf.Variable(large, name="large")
    assert str(g).count("@") == 2
    assert list(g.constants()) == [Literal(large).digest]
    again = round_trip(g)
    assert_same(g, again)
    for old, new in zip(g.variables, again.variables, strict=True):
        assert new.initial.dtype == old.initial.dtype
        assert new.initial.tobytes() == old.initial.tobytes()


def test_short_floats_are_short():
    for kind in (np.float16, np.float32, np.float64, ml_dtypes.bfloat16):
        assert literal_text(Literal(np.array([0.1, -3.0]).astype(kind))) == "[0.1, -3.0]"


@given(st.integers(0, 2**32 - 1))
def test_every_float32_survives(bits):
    array = np.array([bits], np.uint32).view(np.float32)
    text = literal_text(Literal(array))
    if text.startswith("@"):
        assert np.isnan(array[0])  # one with a payload
        return
    (node,), _ = call(text)
    assert array_of(node, TensorType(dtypes.float32, (1,))).tobytes() == array.tobytes()


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 1, 1), (2, 1, 3)], ids=str)
def test_constants_of_odd_shapes(shape, rng):
    with gf.Graph() as g:
        gf.Variable(rng.normal(size=shape), name="v")
    (again,) = round_trip(g).variables
    np.testing.assert_array_equal(again.initial, g.variables[0].initial)
    assert again.shape == shape


def test_where_arrays_become_large():
    for size, is_large in ((INLINE_SIZE, False), (INLINE_SIZE + 1, True)):
        assert literal_text(Literal(np.arange(size))).startswith("@") == is_large


def test_nan_with_a_payload_keeps_its_bits():
    array = np.array([0x7FC00123, 0], np.uint32).view(np.float32)
    with gf.Graph() as g:
        gf.Variable(array, name="v")
    assert round_trip(g).variables[0].initial.tobytes() == array.tobytes()


def test_constants_that_do_not_fit_their_digest():
    with gf.Graph() as g:
        gf.Variable(np.zeros(40), name="v")
    (digest,) = g.constants()
    with pytest.raises(ParseError, match=f"@{digest} is not among the constants"):
        parse(str(g))
    with pytest.raises(ParseError, match=r"says float64\[40\], @\w+ is float64\[4\]"):
        parse(str(g), constants={digest: np.zeros(4)})
    with pytest.raises(ParseError, match="has other contents"):
        parse(str(g), constants={digest: np.ones(40)})


def test_initial_value_that_is_a_tensor():
    outside = gf.Tensor.__add__(_ambient_constant([1.0, 2.0]), 1.0)
    with gf.Graph() as g:
        start = gf.reshape(emit(Constant(Literal(np.arange(3)))), (3, 1))
        gf.Variable(start, name="inside")
        gf.Variable(outside, name="outside")
    text = str(g)
    assert 'variable("inside", initial=%1)' in text
    assert 'variable("outside", initial=[2.0, 3.0])' in text
    again = round_trip(g)
    assert again.variables[0].initial is again.nodes[1].outputs[0]


def _ambient_constant(value) -> Tensor:
    return emit(Constant(Literal(np.asarray(value, np.float32))))


@dataclass(frozen=True)
class Uniform:
    low: float = -1.0
    mode: str = "in"

    def __call__(self, shape, dtype):
        return np.full(shape, self.low, dtype.dtype)


def ones(shape, dtype):
    return np.ones(shape, dtype.dtype)


def test_initializers():
    with gf.Graph() as g:
        gf.Variable(Uniform(-0.5, mode='a "b" # c'), name="a", shape=(40, 3))
        gf.Variable(ones, name="b", shape=(40,), dtype=gf.float64)
    made = round_trip(g, initializers={"Uniform": Uniform, "ones": ones}).variables
    assert made[0].initial == Uniform(-0.5, mode='a "b" # c')
    assert made[1].initial is ones

    unknown = round_trip(g).variables
    with pytest.raises(GraphError, match=r"Uniform\(low=-0.5, .*\) is known by name only"):
        unknown[0].initial((40, 3), gf.float32)
    with pytest.raises(ParseError, match="can't make the initialiser Uniform"):
        parse(str(g), initializers={"Uniform": ones})


def test_variable_without_initial_value():
    text = 'graph "" opset 1 {\n  %0 = variable("v") : float32[2, 3]\n}'
    again = parse(text)
    assert graph_text(again, locations=False) == text
    assert again.variables[0].initial is None
    assert again.variables[0].shape == (2, 3)


# Values of fields.

dims = st.recursive(
    st.sampled_from(["a", "b", "float", "dtype", "nan", "slice", "λ"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*"), inner).map(" ".join).map("({})".format),
        st.tuples(inner, st.integers(1, 9)).map(lambda p: f"({p[0]} // {p[1]})"),
        st.tuples(inner, st.integers(2, 9)).map(lambda p: f"({p[0]} % {p[1]})"),
        st.tuples(inner, inner).map(lambda p: f"max({p[0]}, {p[1]}, 1)"),
        st.tuples(inner, inner).map(lambda p: f"min({p[0]}, {p[1]})"),
    ),
    max_leaves=4,
).map(parse_dim)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(),
    st.complex_numbers(allow_nan=False), st.sampled_from(dtypes.ALL), dims,
)  # fmt: skip
bounds = st.one_of(st.none(), st.integers(-9, 9), dims)
fields = st.recursive(
    st.one_of(scalars, st.builds(slice, bounds, bounds, bounds)),
    lambda inner: st.lists(inner, max_size=4).map(tuple),
    max_leaves=8,
)


def same(a: object, b: object) -> bool:
    """Equal, of one type throughout, with one sign of zero."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, slice) and isinstance(b, slice):
        return same((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    return type(a) is type(b) and a == b and (isinstance(a, str) or repr(a) == repr(b))


@given(fields, fields)
@settings(max_examples=300)
def test_fields_round_trip(first, second):
    text = f"payload={value_text(first)}, other={value_text(second)}"
    assert "\n" not in text
    positional, named = call(text)
    assert positional == []
    assert same(value_of(named["payload"]), first)
    assert same(value_of(named["other"]), second)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (math.inf, "float.inf"),
        (-math.inf, "-float.inf"),
        (math.nan, "float.nan"),
        (-0.0, "-0.0"),
        (complex(1, -0.0), "complex(1.0, -0.0)"),
        (gf.float32, "dtype.float32"),
        (slice(None, N + 1, -1), "slice(None, n + 1, -1)"),
        ((3,), "(3,)"),
        ((), "()"),
        ('it\'s "a"\n', '"it\'s \\"a\\"\\n"'),
    ],
)
def test_what_values_look_like(value, text):
    assert value_text(value) == text
    _, named = call(f"x={text}")
    assert repr(value_of(named["x"])) == repr(value)


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


@given(st.text())
def test_quoted(text):
    assert eval(quoted(text)) == text
    assert quoted(text).isprintable()


# Places.

words = st.one_of(st.sampled_from(["<lambda>", "forward", "a.b.0"]), st.text(min_size=1))
files = st.sampled_from(["a.py", "<doctest x.y[0]>", "a b.py", 'it"s | a:3.py', "C:\\a, b.py"])


def places_with(grad_of: st.SearchStrategy) -> st.SearchStrategy[Loc]:
    return st.builds(
        Loc,
        st.one_of(files, st.text(min_size=1)),
        st.integers(0, 10**6),
        words,
        st.one_of(st.just(""), words),
        grad_of,
        st.just(()),
    )


places = places_with(st.none())
gradients = places_with(st.none() | places)


@given(gradients, st.none() | places, st.lists(gradients, max_size=3))
@settings(max_examples=300)
def test_places_round_trip(loc, forward, merged):
    if any("/" in place.file for place in (loc, forward, *merged) if place):
        return  # a path is shortened where it can be
    loc = loc._replace(grad_of=forward, merged=tuple(merged))
    assert loc_of(loc_text(loc)) == loc


def test_what_places_look_like():
    loc = Loc("model.py", 12, "forward", "fc")
    assert loc_text(loc) == "model.py:12 in forward, layer fc"
    assert loc_text(loc.as_gradient()) == "model.py:12 in forward, layer fc | grad"
    other = Loc("train.py", 3, "<module>", grad_of=loc)
    assert loc_text(other) == "train.py:3 | grad of model.py:12 in forward, layer fc"
    merged = loc._replace(merged=(other, UNKNOWN))
    assert loc_text(merged) == (
        "model.py:12 in forward, layer fc"
        " | also train.py:3 | grad of model.py:12 in forward, layer fc | also <unknown>:0"
    )
    assert loc_of(loc_text(merged)) == merged


def test_places_of_all_statements():
    place = Loc("model.py", 7, "f", "layer")
    with gf.Graph() as g, g.located(place):
        x = gf.placeholder((2,), name="x")
        v = gf.Variable(np.zeros(2, np.float32), name="v")
        gf.update(v, x)
    again = parse(str(g))
    assert again.nodes[0].loc == again.updates[0].loc == place
    assert again.nodes[1].loc.line == v.node.loc.line
    assert again.nodes[1].loc.short() == v.node.loc.short()


def test_lines_without_a_place_name_the_text():
    text = (
        'graph "" opset 1 {  # by hand\n'
        "  # a remark\n\n"
        "  %0 = placeholder() : float32[2] # a remark: see below\n"
        "}\n"
    )
    again = parse(text)
    assert again.nodes[0].loc == Loc("<graph text>", 4, "<module>")


# Mistakes.

GOOD = """graph "g" opset 1 {
  %0 = placeholder(name="x") : float32[n, 3]
  %1 = variable("w", initial=[1.0, 2.0, 3.0]) : float32[3]
  %2 = multiply(%0, %1) : float32[n, 3]
  %3 = sum(%2, axes=(0,), keepdims=False) : float32[3]
  update "w" = %3
  output %2
}"""


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ('graph "g"', "grap g", 1, "does not begin with a graph"),
        ("opset 1", "opset 99", 1, "has opset 99, this version reads up to 1"),
        ("\n}", "", 7, "the graph's closing } is missing"),
        ("sum(", "sums(", 5, "(?s)there is no op named 'sums'.*did you mean \"sum\""),
        ("keepdims=", "keepdim=", 5, "(?s)has no field 'keepdim'.*did you mean \"keepdims\""),
        ("axes=(0,), ", "", 5, "field 'axes' is missing"),
        ("axes=(0,)", "axes=[0]", 5, r"\[0\] is no value of a field"),
        ("axes=(0,)", "axes=0, axes=1", 5, "axes is given twice"),
        ("axes=(0,)", 'axes=("a",)', 5, "axis 'a' is no int"),
        ("axes=(0,)", "axes=dtype.flot32", 5, '(?s)flot32 is no dtype.*did you mean "float32"'),
        ("axes=(0,)", "axes=(lambda: 0)", 5, "is no value of a field"),
        ("axes=(0,)", "axes=__import__('os')", 5, "is no value of a field"),
        ("axes=(0,)", "**{}", 5, r"\*\* is not allowed"),
        ("axes=(0,)", "axes=%0", 5, "%0 is no value of a field"),
        ("sum(%2", "sum(2", 5, "2 stands where a tensor should"),
        ("sum(%2", "sum(%5", 5, "%5 is not defined above this line"),
        ("sum(%2", "sum(%2, %2", 5, "takes x; the line has 2 tensors"),
        ("%3 = sum", "%2 = sum", 5, "%2 is defined twice"),
        ("%3 = sum", "%3, %4 = sum", 5, "2 names stand for 1 results"),
        ("False) : float32[3]", "False) : float32[n]", 5, r"says float32\[n\], sum gives"),
        ("False) : float32[3]", "False) : flot[3]", 5, "is not a tensor type"),
        ("False) : float32[3]", "False) : float32[3 3]", 5, "cannot read the size"),
        ("False) : float32[3]", "False)", 5, "this is no statement"),
        ("multiply(%0, %1)", "matmul(%1, %0)", 4, "matmul: "),
        (": float32[n, 3]\n  %1", ": float32[-3, 3]\n  %1", 2, "is negative"),
        ('(name="x")', '("x")', 2, "a placeholder has a name and one type"),
        ('(name="x")', "(name=3)", 2, "name=3 is no string"),
        ('(name="x")', '(nam="x")', 2, "(?s)no field 'nam'.*did you mean \"name\""),
        ('variable("w"', "variable(3", 3, "write it like variable"),
        ("initial=", "inital=", 3, "(?s)no field 'inital'.*did you mean \"initial\""),
        ("2.0, 3.0]", "2.0]", 3, "does not have the shape of"),
        ("2.0, 3.0]", "True, 3.0]", 3, r"True is no element of float32\[3\]"),
        ("2.0, 3.0]", "1e300, 3.0]", 3, "does not fit float32"),
        ("[1.0, 2.0, 3.0]", "%0", 3, r"says float32\[3\], its initial value is float32\[n, 3\]"),
        ('update "w"', 'update "v"', 6, 'there is no variable "v"'),
        (
            'update "w" = %3',
            'update "w" = %2',
            6,
            r'"w" is float32\[3\], the value float32\[n, 3\]',
        ),
        ('update "w" = %3', "update w = %3", 6, "can't read this update"),
        ("output %2", "output %9", 7, "%9 is not defined"),
        ("output %2", "output %2\n  output %3", 8, "outputs already"),
        ("output %2", "outputs %2", 7, "this is no statement"),
    ],
)
def test_mistakes(old, new, line, message):
    parse(GOOD)
    assert GOOD.count(old) == 1
    text = GOOD.replace(old, new)
    with pytest.raises(ParseError, match=message) as caught:
        parse(text)
    assert caught.value.at.line == line
    assert caught.value.at.text == text.split("\n")[line - 1]
    assert f"  at   line {line}:   {caught.value.at.text.strip()}" in str(caught.value)


def test_names_that_are_taken():
    again = GOOD.replace("  output", '  %4 = placeholder(name="x") : float32[]\n  output')
    with pytest.raises(ParseError, match='the name "x" is taken'):
        parse(again)
    again = GOOD.replace("  output", '  %4 = variable("w") : float32[]\n  output')
    with pytest.raises(ParseError, match='a variable named "w" exists already'):
        parse(again)


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing"])
def test_no_graph_at_all(text):
    with pytest.raises(ParseError, match="has no graph in it"):
        parse(text)


@given(st.randoms(use_true_random=False), st.text("%@#:=(),[]{}\"'. -+n03x\\", max_size=3))
@settings(max_examples=300)
def test_damaged_text_never_fails_otherwise(source: random.Random, junk: str):
    start = source.randrange(len(GOOD))
    damaged = GOOD[:start] + junk + GOOD[start + source.randrange(4) :]
    try:
        again = parse(damaged)
    except (ParseError, VerifyError):
        return
    assert str(parse(str(again))) == str(again)


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


def test_an_initialiser_whose_options_have_no_text_is_known_by_name():
    with gf.Graph() as g:
        gf.Variable(gf.nn.init.constant(value=float("inf")), name="w", shape=(2,))
    (variable,) = round_trip(g).variables
    with pytest.raises(GraphError, match=r"Constant\(value=inf\) is known by name only"):
        variable.initial((2,), gf.float32)
