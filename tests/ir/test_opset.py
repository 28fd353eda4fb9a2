"""Opsets: what functions mean is a fact of the graph that they are called in, and of its nodes."""

import json
from pathlib import Path

import mpmath
import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError
from graphfw.ir.graph import current_graph
from graphfw.runtime.limits import compiles

GOLDEN = Path(__file__).parent / "golden"


def ops(graph):
    return [node.op.name for node in graph.nodes]


def gelu_at(x, **options):
    with gf.Graph(**options) as g:
        fed = gf.placeholder(("n",), x.dtype.name, name="x")
        y = gf.gelu(fed)
        (slope,) = gf.grad(gf.sum(y), [fed])
    with gf.Session(g) as session:
        return g, *session.run([y, slope], {fed: x})


def test_a_saved_graph_keeps_its_bits():
    """The text and the bits were written by a version in which there was opset 1 only."""
    text = (GOLDEN / "gelu_opset_1.txt").read_text()
    golden = json.loads((GOLDEN / "gelu_opset_1.json").read_text())
    g = gf.parse(text)
    assert g.opset == 1
    assert str(g).splitlines()[0] == text.splitlines()[0]
    x = np.array(golden["x"], np.float32)
    with gf.Session(g) as session:
        found = session.run(["y", "z", "dy", "dz"], {"x": x, "h": x.astype(np.float16)})
    if compiles():
        assert [array.tobytes().hex() for array in found] == list(golden["bits"].values())
    else:  # node by node NumPy computes, which has bits of its own
        for array, bits in zip(found, golden["bits"].values(), strict=True):
            saved = np.frombuffer(bytes.fromhex(bits), array.dtype)
            np.testing.assert_allclose(array, saved, rtol=0.02)


def test_a_saved_graph_goes_on_with_the_meanings_that_it_has():
    g = gf.parse((GOLDEN / "gelu_opset_1.txt").read_text())
    with g:
        again = gf.gelu(g.find("x"))
    with gf.Session(g) as session:
        x = np.linspace(-9, 3, 50, dtype=np.float32)
        old, new = session.run(["y", again], {"x": x, "h": x.astype(np.float16)})
    np.testing.assert_array_equal(old.view(np.int32), new.view(np.int32))


def test_the_graph_chooses_what_functions_mean():
    x = np.array([-5.0, -6.5], np.float32)
    g, y, _ = gelu_at(x, opset=1)
    assert "erf" in ops(g)
    np.testing.assert_array_equal(y, np.float32([-1.4901161e-06, 0]))
    g, y, _ = gelu_at(x)
    assert (g.opset, "ndtr" in ops(g), "erf" in ops(g)) == (2, True, False)
    np.testing.assert_allclose(y, [-1.4332579e-06, -2.6105e-10], rtol=1e-4)


def test_a_body_has_the_opset_of_the_graph_around_it():
    def step(carry):
        assert current_graph().opset == opset
        return gf.gelu(carry)

    for opset in (1, 2):
        with gf.Graph(opset=opset) as g:
            x = gf.placeholder((1,), name="x")
            y = gf.fori_loop(0, 1, lambda i, carry: step(carry), x)
            (slope,) = gf.grad(gf.sum(y), [x])
            lanes = gf.vmap(step)(gf.placeholder((3,), name="lanes"))
        again = gf.parse(str(g))
        assert again.opset == opset
        fed = np.float32([-6.5])
        for graph in (g, again):
            with gf.Session(graph) as session:
                (value,) = session.run([graph.nodes[g.nodes.index(y.node)].outputs[0]], {"x": fed})
            assert (value == 0) == (opset == 1)
        assert slope.graph is lanes.graph is g


def test_a_subgraph_of_another_opset_keeps_its_nodes():
    x = gf.asarray(np.float32([-6.5]))
    newest = gf.gelu(x)  # made outside of any graph: of the newest opset
    with gf.Graph(opset=1):
        both = gf.concat([newest, gf.gelu(x)])
    np.testing.assert_allclose(both.numpy(), [-2.6105e-10, 0], rtol=1e-4)


@pytest.mark.parametrize("opset", [0, 3, -1, True, "2", 1.0])
def test_opsets_that_there_are_not(opset):
    with pytest.raises(ArgumentError, match=r"is not an int from 1 to 2\n(.*\n)*.*leave it out"):
        gf.Graph(opset=opset)


# GELU.


def exact_gelu(x):
    x = mpmath.mpf(float(x))
    return x * mpmath.ncdf(x), mpmath.ncdf(x) + x * mpmath.npdf(x)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_gelu_and_its_gradient_are_exact_in_the_tail(dtype):
    kind = gf.zeros(1, dtype=dtype).numpy().dtype
    lowest = {"float16": -5.0, "bfloat16": -12.0, "float32": -12.5, "float64": -37.0}[dtype]
    x = np.concatenate([np.linspace(lowest, 8, 301), np.linspace(-4.1, -3.9, 20)]).astype(kind)
    _, y, slope = gelu_at(x)
    exact, derivative = np.transpose([[float(v) for v in exact_gelu(value)] for value in x])
    eps = {"float16": 2**-11, "bfloat16": 2**-8, "float32": 2**-23, "float64": 2**-52}[dtype]
    least = 2**-25 if dtype == "float16" else 0.0  # half of the smallest number
    np.testing.assert_allclose(y.astype(float), exact, rtol=11 * eps, atol=least)
    # x² of the derivative's exponential is rounded, and near its zero, -0.75, two terms cancel.
    scale = np.abs(derivative) + 0.2 * (x > -2)
    off = np.abs(slope.astype(float) - derivative)
    assert np.all(off <= eps * (12 + x.astype(float) ** 2) * scale + least)


def test_fields_keep_their_earlier_names():
    """The text was written by a version in which fields of convolutions had other names."""
    golden = json.loads((GOLDEN / "convolutions.json").read_text())
    g = gf.parse((GOLDEN / "convolutions.txt").read_text())
    again = gf.parse(str(g))
    assert "places=" not in str(g)
    assert "output_sizes=(2, 2)" in str(g)
    for graph in (g, again):
        feeds = {
            name: np.array(values, graph.find(name).dtype.name)
            for name, values in golden["feeds"].items()
        }
        with gf.Session(graph) as session:
            found = session.run(list(golden["values"]), feeds)
        for array, wanted in zip(found, golden["values"].values(), strict=True):
            np.testing.assert_array_equal(array, wanted)


def test_messages_keep_the_earlier_name_of_their_field(capsys):
    graph = gf.parse("""
        graph "" opset 2 {
          %0 = placeholder(name="x") : float32[2]
          %1 = print(%0, number=1, parts=(("x is ", 0, ".1f"),), summarize=3) : bool[]
          %2 = barrier(%0, %1, count=1) : float32[2]
          happens %1
        }
    """)
    assert 'fragments=(("x is ", 0, ".1f"),)' in str(graph)
    with gf.Session(graph) as session:
        session.run(graph.nodes[-1].outputs[0], {"x": np.ones(2, np.float32)})
    assert capsys.readouterr().out == "x is [1.0 1.0]\n"
