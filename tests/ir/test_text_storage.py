"""Constants and initial values in the text of graphs, of dtypes that numbers are only kept in."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ParseError
from graphfw.ir.build import emit
from graphfw.ir.dtype import BY_NAME, STORAGE, DType
from graphfw.ir.literal import Literal
from graphfw.ir.parser import parse
from graphfw.ir.printer import literal_text
from graphfw.ir.sources import ConstantOp
from tests.support.graph_text import assert_same, round_trip


def codes(dtype: DType) -> np.ndarray:
    """Return each byte; of numbers of few bits that is each of them with bits that don't count."""
    return np.arange(256, dtype=np.uint8).view(dtype.dtype)


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("dtype", STORAGE, ids=str)
def test_every_code_survives(dtype):
    with gf.Graph() as graph:
        for code in codes(dtype):
            emit(ConstantOp(Literal(np.array(code))))
        emit(ConstantOp(Literal(codes(dtype).reshape(2, 128))))
    assert_same(graph, round_trip(graph))


@pytest.mark.parametrize("dtype", STORAGE, ids=str)
def test_initial_values_survive(dtype):
    with gf.Graph() as graph:
        gf.Variable(codes(dtype)[:4], name="small")
        gf.Variable(codes(dtype), name="large")
        gf.Variable(codes(dtype)[:0].reshape(3, 0), name="empty")
    for old, new in zip(graph.variables, round_trip(graph).variables, strict=True):
        assert new.initial.dtype == old.initial.dtype
        assert new.initial.shape == old.initial.shape
        assert new.initial.tobytes() == old.initial.tobytes()


@pytest.mark.parametrize("dtype", STORAGE, ids=str)
def test_what_makes_constants(dtype):
    with gf.Graph() as graph:
        x = gf.placeholder((3,), name="x")
        gf.astype(gf.concat([gf.ones((2,), dtype=dtype), gf.astype(x, dtype)]), gf.float32)
    assert_same(graph, round_trip(graph))


@pytest.mark.parametrize(
    ("name", "bits", "text"),
    [
        ("float8_e4m3fn", [0x80, 0x7E, 0x3A, 0xFF], "-0.0, 448.0, 1.25, -float.nan"),
        ("float8_e5m2", [0x01, 0xFC, 0x7E], "1.52587890625e-05, -float.inf, float.nan"),
        ("float8_e5m2fnuz", [0x00, 0xC0], "0.0, -1.0"),
        ("float8_e8m0fnu", [0x7F, 0x80, 0xFF], "1.0, 2.0, float.nan"),
        ("float4_e2m1fn", [0x01, 0x08, 0x0F], "0.5, -0.0, -6.0"),
        ("int4", [0x07, 0x08, 0x0F], "7, -8, -1"),
        ("uint2", [0, 3], "0, 3"),
    ],
)
def test_small_ones_are_written_out(name, bits, text):
    array = np.array(bits, np.uint8).view(BY_NAME[name].dtype)
    assert literal_text(Literal(array)) == f"[{text}]"


def test_nan_with_a_payload_is_written_by_its_digest():
    array = np.array([0x7D], np.uint8).view(BY_NAME["float8_e5m2"].dtype)
    assert literal_text(Literal(array)).startswith("@")


@pytest.mark.parametrize(
    ("text", "name", "reason"),
    [
        ("8", "int4", "does not fit int4"),
        ("-1", "uint2", "does not fit uint2"),
        (f"{10**400}", "int4", "does not fit int4"),
        (f"{2**63}", "int4", "does not fit int4"),
        ("1.0", "int4", "1.0 is no element of int4"),
        ("True", "float8_e5m2", "True is no element of float8_e5m2"),
        ("500.0", "float8_e4m3fn", "does not fit float8_e4m3fn"),
        ("float.inf", "float8_e4m3fn", "does not fit float8_e4m3fn"),
        (f"{10**400}", "float8_e4m3fn", "does not fit float8_e4m3fn"),
        ("1e5", "float8_e5m2", "does not fit float8_e5m2"),
        ("float.nan", "float4_e2m1fn", "does not fit float4_e2m1fn"),
        ("7.0", "float4_e2m1fn", "does not fit float4_e2m1fn"),
        ("-1.0", "float8_e8m0fnu", "does not fit float8_e8m0fnu"),
        ("0.0", "float8_e8m0fnu", "does not fit float8_e8m0fnu"),
        ("1e39", "bfloat16", "does not fit bfloat16"),
        (f"{10**400}", "bfloat16", "does not fit bfloat16"),
    ],
    ids=lambda text: text[:20],
)
def test_what_does_not_fit(text, name, reason):
    with pytest.raises(ParseError, match=reason):
        parse(f'graph "g" opset 2 {{\n  %0 = constant([{text}]) : {name}[1]\n}}')


def test_large_integers_stand_for_complex_numbers():
    graph = parse(f'graph "g" opset 2 {{\n  %0 = constant([{10**30}, 1]) : complex64[2]\n}}')
    np.testing.assert_array_equal(graph.nodes[0].op.value.array, np.array([1e30, 1], np.complex64))


def test_numbers_between_are_rounded():
    graph = parse('graph "g" opset 2 {\n  %0 = constant([0.1, 1]) : float8_e4m3fn[2]\n}')
    assert "constant([0.1015625, 1.0])" in str(graph)
