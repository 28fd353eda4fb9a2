"""`gf.testing.check_gradients`: what it accepts, what it finds, and how it says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, CallError, GradientError, GraphError, GraphfwError

check = gf.testing.check_gradients


@gf.custom_gradient
def halved(x):
    """x² whose gradient is wrong beyond index 1."""
    return x * x, lambda ct: ct * 2 * gf.where(gf.arange(x.shape[-1]) > 1, x / 2, x)


def draw(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).normal(size=shape)


@pytest.mark.smoke
def test_several_nested_inputs_and_results():
    def fn(x, p):
        y = gf.tanh(x @ p["w"]) + p["b"][0]
        return {"y": y, "norms": (gf.sum(y * y, axis=1), [gf.exp(x)])}

    check(fn, (draw(4, 3), {"w": draw(3, 2), "b": [draw(2)]}), order=2)


def test_numbers_tensors_and_complex_arrays():
    check(lambda x, y: x * gf.sin(y), (2.0, gf.asarray(draw(3))))
    check(lambda z: (gf.abs(z), gf.real(z) * z), [draw(3) + 1j * draw(3)], order=2)


def test_inputs_that_nothing_depends_on_and_empty_ones():
    check(lambda x, y: x + 1, (draw(2), draw(3)))
    check(lambda x: gf.sum(x), (np.zeros(0),))
    check(lambda x: x[:0], (draw(3),))
    check(lambda p: (p["w"] * 2, None, {}), ({"w": draw(3), "b": None},), order=2)


def test_layers():
    with gf.default_dtype("float64"):
        layer = gf.nn.Linear(3, 2)
        check(lambda x: gf.tanh(layer(x)), (draw(4, 3),))


@pytest.mark.parametrize("index", [(0, 3), (2, 2)])
def test_the_element_of_a_wrong_gradient_is_named(index: tuple[int, int]):
    x = np.zeros((3, 4))
    x[index] = 1.5
    message = (
        rf"^check_gradients: the derivative of result\['y'\]\[{index[0]}, {index[1]}\] by "
        rf"inputs\[1\]\['x'\]\[{index[0]}, {index[1]}\] is 1.5 by the gradient and 3 by differences"
    )
    with pytest.raises(GradientError, match=message):
        check(lambda one, p: {"one": one * 2, "y": halved(p["x"])}, (draw(2), {"x": x}))


def test_a_component_of_a_complex_number_is_named():
    @gf.custom_gradient
    def square(x):
        return x * x, lambda ct: ct * 2 * x

    with pytest.raises(GradientError, match=r"by inputs\[0\]\.(real|imag) is -?6 by the"):
        check(square, (1j * 3.0,))


def test_a_wrong_second_derivative_is_named():
    @gf.custom_gradient
    def slope(x):
        return 2 * x, lambda ct: ct * 3

    @gf.custom_gradient
    def square(x):
        return x * x, lambda ct: ct * slope(x)

    check(square, (draw(3),))
    with pytest.raises(GradientError, match=r"of gradient\[0\]\[\d\] by inputs\[0\]\[\d\] is"):
        check(square, (draw(3),), order=2)


def test_kinks_and_poles_are_no_derivatives():
    with pytest.raises(GradientError, match=r"is 0 by the gradient and 0\.5 by") as caught:
        check(gf.relu, (np.zeros(3),))
    assert "kink" in caught.value.fix
    with pytest.raises(GradientError, match="nan"):
        check(gf.log, (-np.ones(2),))


WRONG = {
    "float32": (lambda x: x, ([draw(3).astype("float32")],), {}, r"inputs\[0\] is float32"),
    "complex64": (lambda x: x, ([draw(3).astype("complex64")],), {}, r"astype\(np\.complex128"),
    "bfloat16": (lambda x: x, ([draw(3).astype(gf.bfloat16.dtype)],), {}, r"astype\(np\.float64"),
    "integers": (lambda x, n: x * n, ((1.0, [2, 3]),), {}, r"inputs\[1\]\[0\] is int"),
    "text": (lambda x: x, (("x",),), {}, r"inputs\[0\] is str"),
    "narrow results": (lambda x: gf.astype(x, gf.float32), ([1.0],), {}, "result is float32"),
    "integer results": (lambda x: (x, gf.argmax(x)), ([draw(3)],), {}, r"result\[1\] is int64"),
    "an array": (lambda x: x, (draw(3),), {}, r"inputs is a ndarray, not a tuple"),
    "no function": (3.0, ([1.0],), {}, "fn"),
    "order": (lambda x: x, ([1.0],), {"order": 0}, "order=0 must be"),
    "seed": (lambda x: x, ([1.0],), {"seed": -1}, "seed=-1 must be an int from 0 up"),
    "text as eps": (lambda x: x, ([1.0],), {"eps": "1"}, "eps='1'"),
    "no result": (lambda x: None, ([1.0],), {}, "no tensor"),
    "eps": (lambda x: x, ([1.0],), {"eps": 0}, "eps=0 must be above 0"),
    "draws": (
        lambda x: x * gf.random.normal((), dtype=gf.float64),
        ([1.0],),
        {},
        "different results for equal inputs",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_mistakes(name: str):
    fn, args, options, message = WRONG[name]
    with pytest.raises(GraphfwError, match=message) as caught:
        check(fn, *args, **options)
    assert isinstance(caught.value, (GradientError, ArgumentError, CallError))


def test_graphs_that_are_described():
    with gf.Graph(), pytest.raises(GraphError, match="a graph is being described"):
        check(gf.sin, (1.0,))
