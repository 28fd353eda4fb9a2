"""`custom_gradient`: a rule of one's own, checked where it is used."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import GradientError


def test_the_rule_replaces_the_gradient():
    @gf.custom_gradient
    def clipped(x):
        """Pass x on, and a cotangent of at most 1."""
        return x * 1, lambda ct: gf.clip(ct, -1.0, 1.0)

    x = gf.asarray([1.0, 2.0])
    y = clipped(x)
    np.testing.assert_array_equal(y.numpy(), [1, 2])
    np.testing.assert_array_equal(gf.grad(gf.sum(y * 5.0), x).numpy(), [1, 1])
    assert clipped.__name__ == "clipped"
    assert clipped.__doc__ == "Pass x on, and a cotangent of at most 1."


def test_several_arguments_and_results(rng: np.random.Generator):
    @gf.custom_gradient
    def both(a, scale, *, b):
        return (a + b, a * b), lambda ct1, ct2: (ct1 * scale, ct2)

    a, b = (gf.asarray(rng.normal(size=3)) for _ in range(2))
    total, product = both(a, 10.0, b=b)
    np.testing.assert_allclose(total.numpy(), a.numpy() + b.numpy())
    y = gf.sum(total * 2) + gf.sum(product * 3)
    by_a, by_b = gf.grad(y, [a, b])
    np.testing.assert_array_equal(by_a.numpy(), [20] * 3)
    np.testing.assert_array_equal(by_b.numpy(), [3] * 3)


def test_an_unused_result_has_cotangent_zero():
    @gf.custom_gradient
    def twice(x):
        return (x, x), lambda ct1, ct2: ct1 + 100 * ct2

    x = gf.asarray([1.0, 2.0])
    first, _ = twice(x)
    np.testing.assert_array_equal(gf.grad(gf.sum(first), x).numpy(), [1, 1])


def test_a_rule_can_be_differentiated(rng: np.random.Generator):
    @gf.custom_gradient
    def cube(x):
        return x * x * x, lambda ct: ct * 3 * x * x

    x = gf.asarray(rng.normal(size=4))
    first = gf.grad(gf.sum(cube(x)), x)
    second = gf.grad(gf.sum(first), x)
    np.testing.assert_allclose(second.numpy(), 6 * x.numpy(), rtol=1e-6)


def test_a_rule_may_say_none():
    @gf.custom_gradient
    def first_only(a, b):
        return a * b, lambda ct: (ct, None)

    a, b = gf.asarray(2.0), gf.asarray(3.0)
    y = first_only(a, b)
    assert float(gf.grad(y, a)) == 1
    assert float(gf.grad(y, b, missing="zeros")) == 0
    with pytest.raises(GradientError):
        gf.grad(y, b)


def test_in_a_session(rng: np.random.Generator):
    @gf.custom_gradient
    def straight_through(x):
        return gf.round(x), lambda ct: ct

    a = rng.normal(size=5).astype("float32")
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        y = straight_through(x)
        slope = gf.grad(gf.sum(y * y), x)
    with gf.Session(g) as session:
        value, gradient = session.run([y, slope], {x: a})
    np.testing.assert_array_equal(value, np.round(a))
    np.testing.assert_array_equal(gradient, 2 * np.round(a))


@pytest.mark.parametrize("returned", [1.0, (1, 2), None, lambda: 0])
def test_a_function_returns_its_result_and_a_rule(returned: object):
    @gf.custom_gradient
    def wrong(x):
        return returned

    with pytest.raises(GradientError) as caught:
        wrong(gf.asarray(1.0))
    text = str(caught.value)
    assert text.startswith("custom_gradient: wrong must return its result and a gradient rule")
    assert "return y, rule" in text
    assert "test_custom.py" in text


def test_a_rule_returns_one_gradient_a_tensor():
    @gf.custom_gradient
    def wrong(a, b):
        return a + b, lambda ct: ct

    a = gf.asarray(1.0)
    with pytest.raises(GradientError, match="the rule returns 1 gradient for 2 tensors") as caught:
        gf.grad(wrong(a, gf.asarray(2.0)), a)
    assert "return one gradient, or None, for each tensor" in str(caught.value)


def test_a_rule_returns_the_right_shape():
    @gf.custom_gradient
    def wrong(a):
        return a + 0, lambda ct: gf.sum(ct)

    a = gf.asarray([1.0, 2.0])
    with pytest.raises(GradientError, match=r"custom_gradient gives float32\[\] for an input"):
        gf.grad(gf.sum(wrong(a)), a)


def test_what_the_rule_alone_uses_is_not_computed():
    @gf.custom_gradient
    def odd(x):
        slope = gf.exp(x)
        return x * 2, lambda ct: ct * slope

    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
        y = odd(x)
        slope = gf.grad(gf.sum(y), x)
    with gf.Session(g) as session:
        names = [
            {node.op.name for node in session.compile(fetch, [x]).program.graph.nodes}
            for fetch in (y, slope)
        ]
    assert ["exp" in found for found in names] == [False, True]
    assert not any("custom_gradient" in found for found in names)


def scaled_by(w, stop=False):
    @gf.custom_gradient
    def scaled(x):
        factor = gf.stop_gradient(w) if stop else w
        return gf.sin(factor) * x, lambda ct: ct * gf.sin(w)

    return scaled


@pytest.mark.parametrize("kind", ["placeholder", "computed"])
def test_tensors_from_around_have_no_gradient(kind: str):
    with gf.Graph() as g:
        x = gf.placeholder((), name="x")
        w = gf.placeholder((), name="w")
        w = w * 2 if kind == "computed" else w
        scaled = scaled_by(w)
        y = scaled(x)
        assert gf.grad(y, x).type == x.type
        with pytest.raises(GradientError) as caught:
            gf.grad(y, [x, w])
    text = str(caught.value)
    assert "the function uses a tensor from around it, and its rule gives that no gradient" in text
    assert "gf.stop_gradient" in text
    assert "test_custom.py" in text
    assert g.placeholders


REGIONS = {
    "scan": lambda f, x: gf.scan(lambda c, _: (f(c), None), x, length=2)[0],
    "while": lambda f, x: gf.fori_loop(0, gf.asarray(2), lambda i, c: f(c), x),
    "cond": lambda f, x: gf.cond(x > 0, f, lambda v: v, x),
    "checkpoint": lambda f, x: gf.checkpoint(f)(x),
    "map": lambda f, x: gf.sum(gf.map(f, gf.stack([x, x]))),
    "cond in scan": lambda f, x: REGIONS["scan"](lambda c: REGIONS["cond"](f, c), x),
    "scan in while": lambda f, x: REGIONS["while"](lambda c: REGIONS["scan"](f, c), x),
}


@pytest.mark.parametrize("where", REGIONS)
def test_in_loops_and_branches_tensors_from_around_have_no_gradient_either(where: str):
    with gf.Graph() as g:
        x, w, v = (gf.placeholder((), name=name) for name in "xwv")
        scaled = scaled_by(w)
        y = REGIONS[where](lambda c: scaled(c) * v, x)
        found = gf.grad(y, [x, v])
        _, tangent = gf.jvp(lambda x: REGIONS[where](lambda c: scaled(c) * v, x), (x,), (1.0,))
        with pytest.raises(GradientError, match="uses a tensor from around it") as caught:
            gf.grad(y, w)
        assert "lambda c: scaled(c) * v" in str(caught.value)
        # What the rule says.
        slope = gf.grad(REGIONS[where](lambda c: gf.sin(w) * c * v, x), x)
    with gf.Session(g) as session:
        made = session.run([*found, tangent, slope], {x: 3.0, w: 2.0, v: 0.5})
    np.testing.assert_allclose(made[0], made[3], rtol=1e-6)
    np.testing.assert_allclose(made[2], made[3], rtol=1e-6)
    assert made[1] != 0


@pytest.mark.parametrize("kind", ["scan", "while"])
def test_a_carry_that_a_rule_uses_from_around_has_no_gradient(kind: str):
    def step(c):
        return scaled_by(c)(gf.asarray(1.0))

    x = gf.asarray(3.0)
    y = REGIONS[kind](step, x)
    with pytest.raises(GradientError, match="uses a tensor from around it"):
        gf.grad(y, x)


@pytest.mark.parametrize("where", REGIONS)
def test_effects_of_rules_happen_in_loops_and_branches(where: str, capsys):
    @gf.custom_gradient
    def watched(x):
        def rule(ct):
            gf.print("rule {:.1f}", ct)
            return ct

        return x * 1, rule

    with gf.Graph() as g:
        x = gf.placeholder((), name="x")
        y = REGIONS[where](watched, x)
        slope = gf.grad(y, x)
    count = {"cond": 1, "checkpoint": 1, "scan in while": 4}.get(where, 2)
    with gf.Session(g) as session:
        assert session.run(y, {x: 3.0}) == (6 if where == "map" else 3)
        assert capsys.readouterr().out == ""
        assert session.run(slope, {x: 3.0}) == (2 if where == "map" else 1)
        assert capsys.readouterr().out == "rule 1.0\n" * count


def test_constants_from_around_in_a_branch():
    x, w = gf.asarray(3.0), gf.asarray(1.0) + 1
    y = gf.cond(x > 0, scaled_by(w, stop=True), lambda x: x, x) + w
    by_x, by_w = gf.grad(y, [x, w])
    assert float(by_x) == pytest.approx(np.sin(2.0))
    assert float(by_w) == 1


def test_forward_mode_of_what_uses_tensors_from_around():
    w, x = gf.asarray(2.0), gf.asarray(3.0)
    _, tangent = gf.jvp(scaled_by(w), (x,), (gf.asarray(10.0),))
    assert float(tangent) == pytest.approx(10 * np.sin(2.0))


def test_ambient_tensors_from_around_have_no_gradient():
    w, x = gf.asarray(2.0), gf.asarray(3.0)
    y = scaled_by(w)(x)
    assert float(gf.grad(y, x)) == pytest.approx(np.sin(2.0))
    with pytest.raises(GradientError, match="a tensor from around it"):
        gf.grad(y, w)


def test_tensors_from_around_may_be_constants():
    w, x = gf.asarray(2.0), gf.asarray(3.0)
    y = scaled_by(w, stop=True)(x) + w
    assert float(gf.grad(y, w)) == 1


def test_batches_of_what_uses_tensors_from_around():
    w, xs = gf.asarray(2.0), gf.asarray([1.0, 2.0, 3.0])
    slopes = gf.vmap(lambda x: gf.grad(scaled_by(w)(x), x))(xs)
    np.testing.assert_allclose(slopes.numpy(), np.sin([2.0] * 3), rtol=1e-6)
    with pytest.raises(GradientError, match="a tensor from around it"):
        gf.grad(gf.sum(gf.vmap(scaled_by(w))(xs)), w)
