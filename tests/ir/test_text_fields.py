"""Values of ops' fields, and places in the user's program, in the text of graphs."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphfw as gf
from graphfw.ir import dtype as dtypes
from graphfw.ir.dim import symbol
from graphfw.ir.dim_text import parse_dim
from graphfw.ir.parser import parse
from graphfw.ir.printer import loc_text, quoted, value_text
from graphfw.ir.syntax import call, loc_of, value_of
from graphfw.loc import UNKNOWN, Loc

N = symbol("n")

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


@pytest.mark.slow
@given(fields, fields)
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


@given(st.text())
def test_quoted(text):
    assert eval(quoted(text)) == text
    assert quoted(text).isprintable()


# Places.

words = st.one_of(st.sampled_from(["<lambda>", "forward", "a.b.0"]), st.text(min_size=1))
files = st.sampled_from(["a.py", "<doctest x.y[0]>", "a b.py", 'it"s | a:3.py', "C:\\a, b.py"])


def locations_with(grad_of: st.SearchStrategy) -> st.SearchStrategy[Loc]:
    return st.builds(
        Loc,
        st.one_of(files, st.text(min_size=1)),
        st.integers(0, 10**6),
        words,
        st.one_of(st.just(""), words),
        grad_of,
        st.just(()),
        st.just(""),  # which function was called is not in the text
    )


locations = locations_with(st.none())
gradients = locations_with(st.none() | locations)


@given(gradients, st.none() | locations, st.lists(gradients, max_size=3))
def test_places_round_trip(loc, forward, merged):
    if any("/" in location.file for location in (loc, forward, *merged) if location):
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


@pytest.mark.smoke
def test_places_of_all_statements():
    location = Loc("model.py", 7, "f", "layer")
    with gf.Graph() as g, g.located(location):
        x = gf.placeholder((2,), name="x")
        v = gf.Variable(np.zeros(2, np.float32), name="v")
        gf.update(v, x)
    again = parse(str(g))
    assert again.nodes[0].loc == again.updates[0].loc == location
    assert again.nodes[1].loc.line == v.node.loc.line
    assert again.nodes[1].loc.short() == v.node.loc.short()


def test_lines_without_a_place_name_the_text():
    text = (
        'graph "" opset 2 {  # by hand\n'
        "  # a remark\n\n"
        "  %0 = placeholder() : float32[2] # a remark: see below\n"
        "}\n"
    )
    again = parse(text)
    assert again.nodes[0].loc == Loc("<graph text>", 4, "<module>")
