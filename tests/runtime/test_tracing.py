"""`gf.make_graph`: placeholders from specs, outputs from what a function returns."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.types import parse_type


def types(graph: gf.Graph) -> list[str]:
    return [f"{t.name}: {t.type}" for t in graph.placeholders]


def test_specs_of_all_kinds():
    def function(x, options, pair, *rest):
        return {"sum": x + pair[0], "other": [options["y"], rest[0], None, 3]}

    with gf.Graph():
        like = gf.placeholder((2, "m"), gf.int8)
    g = gf.make_graph(
        function,
        (("n", 3), "float32"),
        {"y": parse_type("int64[n]")},
        [((1, 3), np.float32), ((), gf.bool)],
        np.zeros((4, 0), np.float16),
        like,
    )
    assert types(g) == [
        "x: float32[n, 3]",
        "options_y: int64[n]",
        "pair_0: float32[1, 3]",
        "pair_1: bool[]",
        "x3: float16[4, 0]",
        "x4: int8[2, m]",
    ]
    assert [str(t.type) for t in g.outputs] == [
        "float32[n, 3]",
        "int64[n]",
        "float16[4, 0]",
        "int64[]",
    ]
    assert g.name == "function"


def test_a_graph_runs_and_is_read_back(rng: np.random.Generator):
    g = gf.make_graph(lambda x, y: gf.sum(x * y, axis=0), (("n", 3), "float32"), ((3,), "float32"))
    assert str(gf.parse(str(g))) == str(g)
    x, y = rng.normal(size=(5, 3)).astype("f4"), rng.normal(size=3).astype("f4")
    with gf.Session(g) as session:
        (value,) = session.run(list(g.outputs), {"x": x, "y": y})
    np.testing.assert_allclose(value, (x * y).sum(0), rtol=1e-5)


def test_mistakes():
    with pytest.raises(gf.ArgumentError) as caught:
        gf.make_graph(lambda x: x, "float32")
    assert "make_graph: x is a str, which says no shape and dtype" in str(caught.value)
    with pytest.raises(gf.ArgumentError, match="y_0 is the class float32, which says no"):
        gf.make_graph(lambda y: y, [np.float32])
    with pytest.raises(
        gf.ArgumentError, match="<lambda> returns an object, which can't be the value"
    ):
        gf.make_graph(lambda: object()).name  # noqa: B018  asking is the mistake
    with pytest.raises(gf.ShapeError, match="shapes don't broadcast"):
        gf.make_graph(lambda x, y: x + y, ((3,), "float32"), ((4,), "float32"))


def test_large_constants_in_bodies_are_warned_of():
    large = np.ones(300_000)
    with pytest.warns(UserWarning, match=r"a float64\[300000\] of 2.3 MiB becomes a constant"):
        gf.make_graph(
            lambda x: gf.cond(x > 0, lambda: gf.sum(gf.asarray(large)), lambda: x), ((), "float64")
        )


def test_eval_shape_tells_types_and_computes_nothing():
    called = []

    def step(x, pair):
        called.append(gf.current_graph())
        y = x @ pair["w"]
        return {"y": y, "none": None}, (gf.sum(y, axis=0), 3)

    weights = {"w": ((4, 10**9), "float64")}  # which no memory holds
    found = gf.eval_shape(step, (("n", 4), "float64"), weights)
    assert len(called) == 1
    first, (second, third) = found
    assert first["none"] is None
    assert str(first["y"]) == "float64[n, 1000000000]"
    assert str(second) == "float64[1000000000]"
    assert third == gf.TensorType(gf.int64, ())
    with pytest.raises(gf.ArgumentError, match="eval_shape: x is a str, which says no shape"):
        gf.eval_shape(lambda x: x, "float32")
    assert gf.eval_shape(gf.sin, np.ones((2, 3))) == gf.TensorType(gf.float64, (2, 3))
