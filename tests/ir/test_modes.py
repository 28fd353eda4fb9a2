"""Function modes: objects of users that answer for public functions inside of a `with` block."""

import asyncio
import dataclasses
import inspect
import threading
from pathlib import Path

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir import modes
from graphfw.ir.functions import OVERRIDABLE


class Names(gf.FunctionMode):
    """Notes what is called."""

    def __init__(self, label="", notes=None):
        self.label = label
        self.notes = [] if notes is None else notes

    def __graphfw_function__(self, func, types, args, kwargs):
        self.notes.append(self.label + func.__name__)
        return func(*args, **kwargs)


def noted(function):
    with Names() as mode:
        function()
    assert not modes.OPEN
    return mode.notes


# What is intercepted.

NOT_INTERCEPTED = frozenset(
    # scopes, defaults and graphs
    "current_graph default_dtype default_executor get_default_dtype get_default_executor "
    "make_graph model_session_options name_scope no_grad parse reset_default_executor "
    "set_default_dtype set_default_executor set_seed training verify "
    # of functions, whose calls are intercepted
    "custom_gradient eval_shape function hessian hvp jacfwd jacobian jacrev jvp linearize op vjp "
    "vmap "
    # of no tensors, or of arrays
    "__array_namespace_info__ bisect group nn.lora optim.chain optim.layer_updates to_numpy".split()
)


def public_functions():
    """Yield the public functions of the API list, but those for errors and for extensions."""
    for line in (Path(__file__).parents[1] / "public_api.txt").read_text().splitlines():
        path = line.partition("(")[0].split(".")[1:]
        found = gf
        for attribute in path:
            owner, found = found, getattr(found, attribute, None)
        # Some are as layers: what they call is intercepted.
        layers = {
            "augment",
            "data",
            "distributions",
            "metrics",
            "models",
            "testing",
            "train",
            "tree",
        }
        inner = {"errors", "extend", "schedules", "transforms", *layers} & set(path)
        if "(" in line and path and not inner and not inspect.isclass(owner):
            if inspect.isfunction(found):
                yield ".".join(path), found


def test_each_public_function_is_intercepted_or_named_above():
    known = {id(function) for function in OVERRIDABLE.values()}
    wrapper = gf.placeholder.__code__  # as all that `interceptable` returns
    left = {
        path
        for path, function in public_functions()
        if id(function) not in known and function.__code__ is not wrapper
    }
    assert left == NOT_INTERCEPTED, "put `interceptable` on it, or name it in NOT_INTERCEPTED"


def test_functions_without_tensors_are_intercepted():
    def make():
        gf.zeros(3)
        gf.random.normal((2,))
        gf.asarray([1])
        with gf.Graph():
            gf.placeholder((3,), name="x")
            gf.constant(1.0)
        gf.linalg.lstsq(np.eye(2), np.ones(2))

    assert noted(make) == ["zeros", "normal", "asarray", "placeholder", "constant", "lstsq"]


def test_operators_methods_and_numpy_are_intercepted():
    x = gf.ones((2, 3))

    def use():
        _ = 1 + x * x
        _ = -x, x[0], x.T, x.at[0].set(1.0)
        x.sum(axis=0).reshape(3, 1)
        np.exp(x)
        list(x)

    assert noted(use) == [
        "multiply", "add", "negative", "getitem", "transpose_2d", "index_set", "sum", "reshape",
        "exp", "getitem", "getitem",
    ]  # fmt: skip


def test_what_layers_and_optimisers_call_is_intercepted():
    def step():
        with gf.Graph():
            layer = gf.nn.Sequential(gf.nn.Linear(3, 2), gf.nn.PReLU())
            loss = gf.mean(layer(gf.placeholder(("n", 3), name="x")) ** 2)
            gf.optim.Adam(0.1).minimize(loss, layer.parameters())

    names = noted(step)
    assert {"placeholder", "matmul", "add", "pow", "mean", "sqrt"} <= set(names)


def test_gradients_batching_and_passes_are_graphfws_own():
    x = gf.asarray([1.0, 2.0])
    assert noted(lambda: gf.grad(gf.sum(gf.gelu(x)), x)) == ["gelu", "sum", "grad"]
    assert noted(lambda: gf.vmap(lambda v: gf.gelu(v))(x)) == ["gelu"]
    assert noted(lambda: gf.jvp(lambda v: gf.gelu(v), [x], [x])) == ["gelu"]
    assert noted(lambda: gf.vjp(lambda v: gf.gelu(v), x)[1](x)) == ["gelu"]
    assert noted(lambda: gf.linearize(lambda v: gf.gelu(v), x)[1](x)) == ["gelu"]
    assert noted(lambda: gf.jacobian(lambda v: gf.gelu(v))(x)) == ["gelu"]

    def scalar(v):
        return gf.mean(gf.gelu(v))

    assert noted(lambda: gf.hessian(scalar)(x)) == ["gelu", "mean"]
    assert noted(lambda: gf.hvp(scalar, [x], [x])) == ["gelu", "mean"]
    with gf.Graph() as g:
        fed = gf.placeholder(("n",), name="x")
        weight = gf.Variable(lambda shape, dtype: gf.ones(shape, dtype=dtype), shape=(1,))
        y = gf.softmax(fed * weight)

    def run():
        with gf.Session(g) as session:
            session.run(y, {fed: [1.0, 2.0]})

    assert noted(run) == []


def test_functions_that_users_pass_are_intercepted():
    x = gf.asarray([1.0, 2.0])
    one = gf.asarray(1.0)
    assert noted(lambda: gf.scan(lambda c, v: (gf.sin(c), v), one, x)) == ["scan", "sin"]
    assert noted(lambda: gf.map(lambda v: gf.sin(v), x)) == ["map", "sin"]
    assert noted(lambda: gf.fori_loop(0, 2, lambda i, v: gf.sin(v), one)) == ["fori_loop", "sin"]
    end = gf.asarray(3)
    assert noted(lambda: gf.fori_loop(0, end, lambda i, v: gf.sin(v), one)) == ["fori_loop", "sin"]
    assert sorted(noted(lambda: gf.cond(True, lambda: gf.sin(x), lambda: gf.cos(x)))) == [
        "cond", "cos", "sin",
    ]  # fmt: skip
    assert noted(lambda: gf.while_loop(lambda v: gf.any(v), lambda v: gf.sin(v), one)) == [
        "while_loop", "any", "sin",
    ]  # fmt: skip
    assert set(noted(lambda: gf.associative_scan(gf.maximum, x))) == {
        "associative_scan", "maximum",
    }  # fmt: skip
    assert noted(lambda: gf.random.poisson(x)) == ["poisson"]  # its own loop is nobody's
    assert noted(lambda: gf.checkpoint(lambda v: gf.sin(v))(x)) == ["checkpoint", "sin"]


def test_functions_that_a_mode_passes_are_its_own():
    class Loops(gf.FunctionMode):
        def __graphfw_function__(self, func, types, args, kwargs):
            assert func is gf.sin
            return gf.fori_loop(0, 2, lambda i, v: gf.sin(v), *args)

    one = gf.asarray(1.0)
    with Loops():
        y = gf.sin(one)
    np.testing.assert_allclose(float(y), np.sin(np.sin(1)), rtol=1e-6)


# What a mode may answer.


def test_a_mode_gets_the_public_function_and_its_arguments():
    seen = []

    class Doubles(gf.FunctionMode):
        def __graphfw_function__(self, func, types, args, kwargs):
            seen.append((func, types, args, kwargs))
            return 2 * func(*args, **kwargs)

    with Doubles():
        y = gf.full((2,), 1.5, dtype="float64")
    assert seen == [(gf.full, (), ((2,), 1.5), {"dtype": "float64"})]
    assert y.numpy().tolist() == [3, 3]


def test_the_base_class_changes_nothing():
    with gf.FunctionMode():
        assert (gf.ones(2) + 1).numpy().tolist() == [2, 2]


def test_not_implemented_leaves_it_to_the_next_and_then_to_the_function():
    class Passes(gf.FunctionMode):
        def __graphfw_function__(self, func, types, args, kwargs):
            return NotImplemented

    outer = Names()
    with outer, Passes():
        assert gf.ones(2).numpy().tolist() == [1, 1]
    assert outer.notes == ["ones"]
    with Passes():
        assert gf.ones(2).numpy().tolist() == [1, 1]


def test_modes_are_asked_before_arguments_that_answer_for_themselves():
    class Length:
        def __graphfw_function__(self, func, types, args, kwargs):
            return "answered"

    class Types(Names):
        def __graphfw_function__(self, func, types, args, kwargs):
            self.notes.append(types)
            return func(*args, **kwargs)

    with Types() as mode:
        assert gf.add(Length(), 1) == "answered"
    assert mode.notes == [(Length,)]


def test_errors_are_at_the_line_that_is_intercepted():
    class Calls(gf.FunctionMode):
        def __graphfw_function__(self, func, types, args, kwargs):
            return func(*args, **kwargs)

    with Calls(), pytest.raises(gf.ShapeError, match=r"test_modes\.py") as caught:
        gf.matmul(gf.ones(2), gf.ones(3))  # here
    assert "# here" in str(caught.value)
    assert gf.ones(2).numpy().tolist() == [1, 1]


# Nesting and scope.


def test_modes_nest():
    notes = []
    with Names("outer ", notes), Names("inner ", notes):
        gf.ones(2)
    assert notes == ["inner ones", "outer ones"]


def test_the_outer_mode_intercepts_what_the_inner_one_calls():
    class Composes(gf.FunctionMode):
        def __graphfw_function__(self, func, types, args, kwargs):
            return gf.exp(args[0]) - 1 if func is gf.expm1 else func(*args, **kwargs)

    notes = []
    with Names("", notes), Composes():
        gf.expm1(gf.ones(1))
    assert notes == ["ones", "exp", "subtract"]


def test_bodies_ask_all_modes_that_are_open_where_the_function_is_called():
    notes = []
    with Names("outer ", notes), Names("inner ", notes):
        gf.map(lambda v: gf.sin(v), np.ones(2, np.float32))
    assert notes == ["inner map", "outer map", "inner sin", "outer sin"]


def test_a_mode_holds_for_its_own_thread():
    seen = []
    with Names() as mode:
        thread = threading.Thread(target=lambda: seen.append(gf.ones(2)))
        thread.start()
        thread.join(30)
        gf.zeros(2)
    assert len(seen) == 1
    assert mode.notes == ["zeros"]


def test_a_mode_holds_for_its_own_task():
    async def task(label, notes):
        with Names(label, notes):
            await asyncio.sleep(0)
            gf.ones(2)
            await asyncio.sleep(0)

    async def main():
        notes = []
        await asyncio.gather(task("a ", notes), task("b ", notes))
        return notes

    assert asyncio.run(main()) == ["a ones", "b ones"]


def test_a_mode_that_a_generator_enters_holds_while_it_runs():
    mode = Names()

    def generator():
        with mode:
            yield gf.ones(2)
            yield gf.zeros(2)

    made = generator()
    next(made)
    gf.eye(2)
    next(made)
    made.close()
    assert mode.notes == ["ones", "zeros"]
    assert not modes.OPEN


def test_a_mode_is_left_on_exceptions():
    class Fails(gf.FunctionMode):
        def __graphfw_function__(self, func, types, args, kwargs):
            raise KeyError(func.__name__)

    with pytest.raises(KeyError, match="ones"), Fails():
        gf.ones(2)
    assert gf.ones(2).shape == (2,)
    assert not modes.OPEN


# Functions that are traced once.


def test_a_function_is_traced_for_each_mode():
    @dataclasses.dataclass
    class Scales(gf.FunctionMode):  # equal to others, and without a hash
        by: list

        def __graphfw_function__(self, func, types, args, kwargs):
            y = func(*args, **kwargs)
            return y * self.by[0] if func is gf.sin else y

    @gf.function
    def f(x):
        return gf.sin(x)

    x = np.ones(1, np.float32)
    plain = f(x)
    first, second = [2.0], [2.0]
    with Scales(first):
        np.testing.assert_allclose(f(x), 2 * plain)
    other = Scales(second)
    second[0] = 3.0
    with other:
        np.testing.assert_allclose(f(x), 3 * plain)
        np.testing.assert_allclose(f(x), 3 * plain)
    np.testing.assert_array_equal(f(x), plain)
