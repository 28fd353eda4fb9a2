"""Constants and initial values in the text of graphs."""

import math
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphfw as gf
from graphfw.errors import GraphError, ParseError
from graphfw.ir import dtype as dtypes
from graphfw.ir.build import emit
from graphfw.ir.literal import Literal
from graphfw.ir.parser import parse
from graphfw.ir.printer import INLINE_SIZE, graph_text, literal_text
from graphfw.ir.sources import ConstantOp
from graphfw.ir.syntax import array_of, call
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import TensorType
from tests.support.graph_text import assert_same, round_trip

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
            emit(ConstantOp(Literal(np.asarray(array))))
        gf.Variable(small, name="small", dtype=kind)
        gf.Variable(large, name="large", dtype=kind)
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
        gf.Variable(np.zeros(40), name="v", dtype="float64")
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
        start = gf.reshape(emit(ConstantOp(Literal(np.arange(3)))), (3, 1))
        gf.Variable(start, name="inside")
        gf.Variable(outside, name="outside")
    text = str(g)
    assert 'variable("inside", initial=%1)' in text
    assert 'variable("outside", initial=[2.0, 3.0])' in text
    again = round_trip(g)
    assert again.variables[0].initial is again.nodes[1].outputs[0]


def _ambient_constant(value) -> Tensor:
    return emit(ConstantOp(Literal(np.asarray(value, np.float32))))


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
    text = 'graph "" opset 2 {\n  %0 = variable("v") : float32[2, 3]\n}'
    again = parse(text)
    assert graph_text(again, locations=False) == text
    assert again.variables[0].initial is None
    assert again.variables[0].shape == (2, 3)


# Mistakes.


def test_an_initialiser_whose_options_have_no_text_is_known_by_name():
    with gf.Graph() as g:
        gf.Variable(gf.nn.init.constant(value=float("inf")), name="w", shape=(2,))
    (variable,) = round_trip(g).variables
    with pytest.raises(GraphError, match=r"Constant\(value=inf\) is known by name only"):
        variable.initial((2,), gf.float32)
