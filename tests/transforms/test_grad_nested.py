"""`grad` and `value_and_grad` with respect to nested structures of tensors."""

from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, GradientError


class Pair(NamedTuple):
    weight: Any
    bias: Any


def scalars(*values: float) -> list[gf.Tensor]:
    return [gf.asarray(float(value)) for value in values]


def floats(value: Any) -> Any:
    """Return nested tensors as nested numbers."""
    if isinstance(value, dict):
        return {key: floats(one) for key, one in value.items()}
    if isinstance(value, Pair):
        return Pair(*map(floats, value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(floats, value))
    return float(value)


def test_gradients_are_nested_as_the_xs_are():
    a, b, c, d = scalars(2, 3, 5, 7)
    y = a * b * c * d
    xs = {"first": Pair(a, [b]), "rest": (c, {"d": d, 0: a}), "none": {}}
    by_xs = gf.grad(y, xs)
    expected = {"first": Pair(105, [70]), "rest": (42, {"d": 30, 0: 105}), "none": {}}
    assert floats(by_xs) == expected
    assert isinstance(by_xs["first"], Pair)
    assert list(by_xs["rest"][1]) == ["d", 0]


@pytest.mark.parametrize(
    ("xs", "expected"),
    [
        (lambda a, b: a, 3),
        (lambda a, b: [a, b], [3, 2]),
        (lambda a, b: (a, b), [3, 2]),
        (lambda a, b: iter([a, b]), [3, 2]),
        (lambda a, b: {"a": a, "b": b}.values(), [3, 2]),
        (lambda a, b: [], []),
        (lambda a, b: (), []),
        (lambda a, b: Pair(a, b), Pair(3, 2)),
        (lambda a, b: {"b": b, "a": a}, {"b": 2, "a": 3}),
        (lambda a, b: OrderedDict(b=b), {"b": 2}),
        (lambda a, b: (a, [b]), (3, [2])),
        (lambda a, b: [(a,), b], [(3,), 2]),
        (lambda a, b: iter([(a,), b]), [(3,), 2]),
        (lambda a, b: {}, {}),
    ],
)
def test_forms_of_the_results(xs: Any, expected: Any):
    a, b = scalars(2, 3)
    y = a * b
    got = gf.grad(y, xs(a, b))
    assert type(got) is (gf.Tensor if expected == 3 else type(expected))
    assert floats(got) == expected
    value, slopes = gf.value_and_grad(y, xs(a, b))
    assert value is y
    assert floats(slopes) == expected


def test_a_training_step_on_a_dict_of_variables(rng: np.random.Generator):
    values = rng.normal(size=(5, 3)).astype(np.float32)
    with gf.Graph() as g:
        x = gf.placeholder(("batch", 3), name="x")
        w = gf.Variable(np.ones((3, 2), np.float32), name="w")
        b = gf.Variable(np.zeros(2, np.float32), name="b")
        p = {"w": w, "b": [b]}
        loss = gf.mean((x @ p["w"] + p["b"][0]) ** 2)
        slopes = gf.grad(loss, p)
        alone = gf.grad(loss, [w, b])
    assert slopes["w"].type == w.type
    with gf.Session(g) as session:
        (got, expected) = session.run([slopes, alone], {x: values})
    np.testing.assert_array_equal(got["w"], expected[0])
    np.testing.assert_array_equal(got["b"][0], expected[1])


def test_gradients_of_gradients():
    a, b = scalars(2, 3)
    first = gf.grad(a**2 * b**3, {"a": a, "b": b})
    second = gf.grad(first["a"], {"of": (a, {"b": b})})
    assert floats(second) == {"of": (2 * 27, {"b": 2 * 2 * 27})}


def test_inside_of_vmap_and_scan():
    with gf.Graph() as g:
        x = gf.placeholder(("batch",), gf.float64, name="x")

        def slopes(one: gf.Tensor) -> Any:
            p = {"sin": gf.sin(one), "pair": Pair(one * 1, one * 2)}
            return gf.grad(p["sin"] * p["pair"].weight + p["pair"].bias ** 2, p)

        mapped = gf.vmap(slopes)(x)
        _, scanned = gf.scan(lambda carry, one: (carry, slopes(one)), gf.asarray(0.0), x)
    values = np.array([0.5, 1.0, 2.0])
    with gf.Session(g) as session:
        for got in session.run([mapped, scanned], {x: values}):
            np.testing.assert_allclose(got["sin"], values)
            np.testing.assert_allclose(got["pair"].weight, np.sin(values))
            np.testing.assert_allclose(got["pair"].bias, 4 * values)


# Mistakes.


@pytest.mark.parametrize(
    ("xs", "text"),
    [
        (lambda a: {"w": [a, 2.0]}, r"grad: xs\['w'\]\[1\] is a float, not a tensor"),
        (lambda a: {"w": Pair(a, "b")}, r"grad: xs\['w'\]\.bias is a str, not a tensor"),
        (lambda a: [a, None], r"grad: xs\[1\] is a NoneType, not a tensor"),
        (lambda a: {3: {"b": np.ones(2)}}, r"grad: xs\[3\]\['b'\] is a ndarray, not a tensor"),
        (lambda a: {1, 2}, r"grad: xs\[0\] is an int, not a tensor"),
    ],
)
def test_a_leaf_that_is_no_tensor_is_named(xs: Any, text: str):
    (a,) = scalars(2)
    with pytest.raises(ArgumentError, match=text) as caught:
        gf.grad(a * a, xs(a))
    assert "tensors that y is computed from" in str(caught.value)


def test_a_leaf_without_a_path_is_named():
    with gf.Graph():
        a, b = gf.placeholder((), name="a"), gf.placeholder((), name="b")
        xs = {"used": a, "layers": [{"weight": b}]}
        text = r"""grad: y does not depend on xs\['layers'\]\[0\]\['weight'\] "b\""""
        with pytest.raises(GradientError, match=text) as caught:
            gf.grad(a * a, xs)
        assert [o.label for o in caught.value.operands] == ["y", "xs['layers'][0]['weight']"]
        zeros = gf.grad(a * a, xs, missing="zeros")
        assert zeros["layers"][0]["weight"].type == b.type
        with pytest.raises(GradientError, match=r"only through stop_gradient") as caught:
            gf.grad(a * gf.stop_gradient(b), xs)
        assert "xs['layers'][0]['weight']" in str(caught.value)


def test_an_integer_leaf_is_named():
    a, n = gf.asarray(2.0), gf.asarray(3)
    with pytest.raises(GradientError, match="with respect to int64 values is not defined") as e:
        gf.grad(a * n, {"a": a, "n": n})
    assert [o.label for o in e.value.operands] == ["xs['n']"]
