"""`gf.op` and `gf.apply`: ops from outside of the package."""

import re
import typing
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import graphfw as gf
from graphfw.extend import ELEMENTWISE, NONDIFF, PURE, RANDOM, Rng, leading, require
from graphfw.ir.op import REGISTRY
from graphfw.runtime.kernels.primitives import PRIMITIVES


@pytest.fixture(autouse=True)
def _registry_restored():
    before = dict(REGISTRY)
    yield
    REGISTRY.clear()
    REGISTRY.update(before)


class Cube(gf.Op):
    """x^3.  x: [*A]  ->  [*A]"""

    factor: float = 1.0
    traits = frozenset({PURE, ELEMENTWISE})

    def shape(self, x):
        return x

    def dtype(self, x):
        require(x.is_floating, "wants floats", error=gf.DTypeError)
        return x

    def eval(self, xp, x):
        return x * x * x * self.factor

    def scalar(self, k, x):
        return k.mul(k.mul(k.mul(x, x), x), self.factor)

    def vjp(self, ct, y, x):
        return (ct * 3 * x * x * self.factor,)


class Extremes(gf.Op):
    """The least and the largest of each row.  x: [*B, N]  ->  [*B], [*B]"""

    multiple = True
    batch = leading
    vjp = NONDIFF

    def shape(self, x):
        require(len(x) > 0, "wants a dim to reduce")
        return (x[:-1], x[:-1])

    def dtype(self, x):
        return (x, x)

    def eval(self, xp, x):
        return xp.asarray(x.min(axis=-1)), xp.asarray(x.max(axis=-1))


@pytest.mark.parametrize("jit", ["1", "0"])
def test_values_gradients_fusion(jit: str, monkeypatch, rng: np.random.Generator):
    monkeypatch.setenv("GRAPHFW_JIT", jit)
    cube = gf.op("tests.cube")(Cube)
    a = rng.uniform(-2, 0.2, size=(5, 3)).astype("float32")
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3), name="x")
        y = gf.exp(gf.apply(cube(2.0), x + 1))
        slope = gf.grad(gf.sum(gf.apply(cube(), x)), x)
        curve = gf.grad(gf.sum(slope), x)
    with gf.Session(g) as session:
        values = session.run([y, slope, curve], {x: a})
        text = session.compile(y, feeds=[x]).explain()
    assert ("add tests.cube exp" in text) == (jit == "1")
    np.testing.assert_allclose(values[0], np.exp(2 * (a + 1) ** 3), rtol=1e-4)
    np.testing.assert_allclose(values[1], 3 * a * a, rtol=1e-5)
    np.testing.assert_allclose(values[2], 6 * a, rtol=1e-5)


def test_several_results_batches_and_text(rng: np.random.Generator):
    extremes = gf.op("tests.extremes")(Extremes)
    a = rng.normal(size=(5, 3))
    low, high = gf.apply(extremes(), a)
    np.testing.assert_array_equal(low.numpy(), a.min(1))
    np.testing.assert_array_equal(high.numpy(), a.max(1))
    lows, _ = gf.vmap(lambda x: gf.apply(extremes(), x))(gf.asarray(a))
    np.testing.assert_array_equal(lows.numpy(), a.min(1))
    with gf.Graph("g") as g:
        x = gf.placeholder(("n", 3), name="x")
        g.outputs = gf.apply(extremes(), x)
    assert "%1, %2 = tests.extremes(%0) : (float32[n], float32[n])" in str(g)
    assert str(gf.parse(str(g))) == str(g)


def test_a_random_op():
    @gf.op("tests.noise")
    class Noise(gf.Op):
        key: str
        traits = frozenset({PURE, RANDOM})
        vjp = NONDIFF

        def shape(self, x):
            return x

        def dtype(self, x):
            return x

        def eval(self, xp, x, *, rng: Rng):
            return xp.full(x.shape, rng.step, x.dtype)

    with gf.Graph() as g:
        x = gf.placeholder((2,), name="x")
        y = gf.apply(Noise("mine"), x)
    with gf.Session(g) as session:
        first, second = (session.run(y, {x: [0.0, 0.0]}) for _ in range(2))
    assert first[0] != second[0]


def test_the_same_definition_again_replaces_and_another_does_not():
    def define():
        return gf.op("tests.again")(type("Again", (Cube,), {}))

    first, second = define(), define()
    assert REGISTRY["tests.again"] is second is not first
    with pytest.raises(gf.GraphError, match=r"an op named 'tests.again' exists already: Again"):
        gf.op("tests.again")(Cube)
    assert REGISTRY["tests.again"] is second
    assert float(gf.apply(first(), 2.0)) == 8  # what exists goes on working


@pytest.mark.parametrize("jit", ["1", "0"])
@pytest.mark.parametrize(
    ("result", "said"),
    [
        (lambda x: x.sum(), "its eval gives float32[], and float32[2] is promised"),
        (lambda x: x.astype("float64"), "its eval gives float64[2], and float32[2]"),
        (lambda x: [1.0], "its eval gives a list, and float32[2]"),
    ],
)
def test_what_eval_gives_is_checked(jit: str, result, said: str, monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", jit)

    @gf.op("tests.wrong")
    class Wrong(Cube):
        scalar = None

        def eval(self, xp, x):
            return result(x)

    with gf.Graph() as g:
        x = gf.placeholder((2,), name="x")
        y = gf.apply(Wrong(), x) + 1
    with gf.Session(g, verify="off") as session:
        with pytest.raises(gf.ExecutionError) as caught:
            session.run(y, {x: [1.0, 2.0]})
    assert f"tests.wrong: {said}" in str(caught.value)


@pytest.mark.parametrize(
    ("vjp", "said"),
    [
        (lambda self, ct, y, x: ct, "its vjp returns a Tensor for 1 input"),
        (lambda self, ct, y, x: (ct, ct), "its vjp returns (a Tensor, a Tensor) for 1 input"),
        (lambda self, ct, y, x: (np.ones(2),), "its vjp returns (a ndarray) for 1 input"),
        (lambda self, ct, y, x: None, "its vjp returns a NoneType for 1 input"),
    ],
)
def test_what_vjp_gives_is_checked(vjp, said: str):
    wrong = gf.op("tests.wrong")(type("Wrong", (Cube,), {"vjp": vjp}))
    x = gf.asarray([1.0, 2.0])
    with pytest.raises(gf.GraphError) as caught:
        gf.grad(gf.sum(gf.apply(wrong(), x)), x)
    assert f"tests.wrong: {said}" in str(caught.value)
    assert "return a tuple" in caught.value.fix


def test_what_batch_gives_is_checked():
    def batch(self, mapped, batched, x):
        del mapped, batched, x

    wrong = gf.op("tests.wrong")(type("Wrong", (Cube,), {"batch": batch}))
    with pytest.raises(gf.GraphError, match=r"tests.wrong: its batch returns a NoneType"):
        gf.vmap(lambda x: gf.apply(wrong(), x))(gf.ones((2, 3)))


@pytest.mark.parametrize("rule", ["shape", "eval", "vjp"])
def test_a_rule_that_is_missing_is_shown(rule):
    rules = {"shape": lambda self, x: x, "dtype": lambda self, x: x, "vjp": None}
    rules = {**rules, "eval": lambda self, xp, x: x, rule: ...}
    del rules[rule]
    with pytest.raises(gf.GraphError, match=f"does not say its {rule}") as caught:
        gf.op("tests.lacking")(type("Lacking", (gf.Op,), rules))
    assert caught.value.fix.startswith(f"write def {rule}(self")


@pytest.mark.parametrize(
    ("scalar", "said"),
    [
        (lambda k, x: k.nope(x), "its scalar fails: there is no primitive function 'nope'"),
        (lambda k, x: x + 1, "its scalar fails: unsupported operand"),
        (lambda k, x: 3, "its scalar gives an int, and its dtype says float32"),
        (lambda k, x: k.lt(x, 2), "its scalar gives bool, and its dtype says float32"),
    ],
)
def test_what_scalar_gives_is_checked(scalar, said: str, monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    cls = gf.op("tests.wrong")(type("Wrong", (Cube,), {"scalar": lambda self, k, x: scalar(k, x)}))
    with gf.Graph() as g:
        x = gf.placeholder((2,), name="x")
        y = gf.apply(cls(), x) + 1
    with gf.Session(g) as session, pytest.raises(gf.GraphError) as caught:
        session.compile(y, feeds=[x])
    assert f"tests.wrong: {said}" in str(caught.value)


@pytest.mark.parametrize("name", ["cube", "a b.c", ".cube", "tests.", "tests.1", 3, "gf.cube"])
def test_names(name: object):
    with pytest.raises(gf.GraphError, match=r"does not name an op|one of graphfw's own"):
        gf.op(name)


def replaced(**attributes: object) -> type:
    return type("Bad", (Cube,), attributes)


@pytest.mark.parametrize(
    ("cls", "said"),
    [
        (int, "<class 'int'> is no subclass of gf.Op"),
        (type("Empty", (gf.Op,), {}), "does not say its shape, dtype, eval, vjp"),
        (replaced(__annotations__={"dtype": "str"}), "a field can't be called 'dtype'"),
        (replaced(__annotations__={"values": "str"}), "a field can't be called 'values'"),
        (replaced(traits=PURE), "not a set of traits"),
        (replaced(traits={"pure"}), "not a set of traits"),
        (replaced(eval=lambda self, xp, x, y: x), "its eval takes 2 inputs, its shape 1"),
        (replaced(vjp=lambda self, ct, x: x), "its vjp takes 0 inputs, its shape 1"),
        (replaced(scalar=lambda self: 0), "its scalar has too few parameters"),
        (replaced(eval=3), "its eval is an int, not a method"),
        (replaced(traits=frozenset({PURE})), "has a scalar, which is of use to elementwise ops"),
        (replaced(multiple=True), "is ELEMENTWISE and has several results"),
    ],
)
def test_bad_registrations(cls: type, said: str):
    with pytest.raises(gf.GraphError) as caught:
        gf.op("tests.bad")(cls)
    assert said in str(caught.value)
    assert "tests.bad" not in REGISTRY


def test_what_belongs_to_the_class_is_no_field():
    class Scaled(gf.Op):
        factor: float
        made: ClassVar[int] = 0
        bare: typing.ClassVar = 0
        text: "typing.ClassVar[int]" = 0
        offset: float = 0.0

    assert Scaled.fields == ("factor", "offset")
    assert Scaled(2.0).values == (2.0, 0.0)


def test_what_rules_must_look_like_is_shown():
    with pytest.raises(gf.GraphError) as caught:
        gf.op("tests.bad")(replaced(vjp=lambda self, ct, x: x))
    assert "def vjp(self, ct, y, x)" in caught.value.fix


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"shape": lambda self, x: [3]}, "its shape returns a list: [3]"),
        ({"shape": lambda self, x: (3.0,)}, "its shape returns a tuple: (3.0,)"),
        ({"shape": lambda self, x: None}, "its shape returns a NoneType: None"),
        ({"dtype": lambda self, x: "float32"}, "its dtype returns a str: 'float32'"),
        ({"dtype": lambda self, x: (x,)}, "its dtype returns a tuple: (graphfw.float32,)"),
    ],
)
def test_what_type_rules_return_is_checked(rules: dict, said: str):
    made = gf.op("tests.ruled")(replaced(**rules))
    with pytest.raises(gf.GraphError) as caught:
        gf.apply(made(), gf.ones(3))
    assert f"tests.ruled: {said}" in str(caught.value)


@pytest.mark.parametrize("value", [[1], {"a": 1}, np.ones(2)], ids=["list", "dict", "array"])
def test_fields_that_can_change_are_refused(value):
    made = gf.op("tests.scaled")(replaced())
    with pytest.raises(gf.ArgumentError, match=r"is no constant(.|\n)*write tuples"):
        gf.apply(made(value), gf.ones(3))


def test_bad_applications():
    cube = gf.op("tests.cube")(Cube)
    with pytest.raises(gf.ArgumentError, match="apply: the class Cube is no op"):
        gf.apply(cube, 1.0)
    with pytest.raises(gf.ArgumentError, match="apply: Bare is not registered"):
        gf.apply(type("Bare", (Extremes,), {})(), [1.0])
    with pytest.raises(gf.ArgumentError, match=r"tests\.cube: takes x, and is given 2 inputs"):
        gf.apply(cube(), 1.0, 2.0)
    with pytest.raises(gf.DTypeError) as caught:
        gf.apply(cube(), [1, 2])
    assert str(caught.value).startswith("tests.cube: wants floats")
    with pytest.raises(TypeError, match="unexpected keyword argument 'power'"):
        cube(power=2)


def test_sizes_that_depend_on_elements():
    @gf.op("tests.positive")
    class Positive(gf.extend.Measuring):
        """The positive elements, in order.  x: [N]  ->  [K]"""

        def shape(self, x):
            gf.extend.require(len(x) == 1, "wants a vector")
            return self.dims

        def dtype(self, x):
            return x

        def eval(self, xp, x):
            return x[x > 0]

    def positive(x):
        (made,) = gf.extend.measure(Positive, ["positive"], gf.asarray(x))
        return made

    np.testing.assert_array_equal(positive([1.0, -2.0, 3.0]).numpy(), [1, 3])
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        y = positive(x) * 2
    for debug in (False, True):
        with gf.Session(g, debug=debug) as session:
            np.testing.assert_array_equal(session.run(y, {x: [1.0, -2.0, 3.0]}), [2, 6])
            assert session.run(y, {x: [-1.0]}).shape == (0,)


def test_a_long_formula_is_written_once():
    def saturate(xp, x):
        return x / xp.sqrt(1 + x * x)

    @gf.op("tests.saturate")
    class Saturate(gf.Op):
        """x / sqrt(1 + x²), in float64, elementwise.  x: [*A]  ->  [*A]"""

        traits = frozenset({gf.extend.PURE, gf.extend.ELEMENTWISE})
        vjp = gf.extend.NONDIFF

        def shape(self, x):
            return x

        def dtype(self, x):
            return x

        def eval(self, xp, x):
            return gf.extend.rounded(saturate)(xp, x)

        def scalar(self, k, x):
            return gf.extend.native(saturate)(k, x)

    given = np.linspace(-3, 3, 9, dtype=np.float32)
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        y = gf.apply(Saturate(), x)
    with gf.Session(g) as session:
        wanted = (given / np.sqrt(1 + given.astype(np.float64) ** 2)).astype(np.float32)
        np.testing.assert_array_max_ulp(session.run(y, {x: given}), wanted, 1)


def test_the_page_on_ops_lists_functions_that_there_are():
    page = (Path(__file__).parent.parent.parent / "docs" / "adding-an-op.md").read_text("utf-8")
    listed = page.partition("The functions of `k` take")[2].partition("To write a long formula")[0]
    names = set(re.findall(r"`(\w+)[`(]", listed)) - {"k", "getattr"}
    assert len(names) > 40
    assert names - {"const"} <= set(PRIMITIVES)
