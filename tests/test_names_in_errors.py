"""An error names the function that the user called, and not one that it is made of."""

from __future__ import annotations

import inspect
import itertools
import sys

import numpy as np
import pytest

import graphfw as gf
from graphfw.hints import public

GIVEN = {
    "scalar": np.float32(1),
    "vector": np.ones(3, np.float32),
    "empty": np.zeros((2, 0), np.float32),
    "bool": np.ones(3, bool),
    "complex": np.ones((2, 2), np.complex64),
    "ints": np.full(3, -5, np.int64),
}

ON_VALUES = (
    "a Python int wants a value",
    "bool() wants a value",
    "iteration of a 0-d tensor",
    "len() of a 0-d tensor",
    "only integer tensors become Python ints",
)
"""Errors of Python's own questions to a tensor, which is what a function has asked."""

OTHERS = {"gf.bisect", "gf.breakpoint", "gf.name_scope", "gf.verify", "gf.parse"}
"""Functions that take no tensors, and say so in other words."""

OTHERS.add("gf.value_and_grad")  # what is wrong with the gradient is called grad's

NO_DTYPE = "is not a dtype that graphfw has"


def _functions():
    """Yield public functions with one or two required arguments, by path."""
    for path in ("gf", "gf.fft", "gf.linalg", "gf.nn", "gf.random", "gf.special"):
        module, names = public.PUBLIC[path]
        for name in names:
            found = getattr(sys.modules[module], name)
            if not inspect.isfunction(found) or f"{path}.{name}" in OTHERS:
                continue
            parameters = inspect.signature(found).parameters.values()
            by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
            variadic = inspect.Parameter.VAR_POSITIONAL
            count = sum(
                p.kind not in (*by_name, variadic) and p.default is p.empty for p in parameters
            )
            if 1 <= count <= 2:
                yield pytest.param(found, name, count, id=f"{path}.{name}")


@pytest.mark.parametrize(("function", "name", "count"), list(_functions()))
def test_while_a_graph_is_described(function, name, count):
    summaries = set()
    for arrays in itertools.product(GIVEN.values(), repeat=count):
        with gf.Graph():
            given = [gf.placeholder(a.shape, str(a.dtype)) for a in arrays]
            try:
                function(*given)
            except gf.GraphfwError as error:
                summaries.add(error.summary)
    for summary in summaries:
        own = summary.removeprefix("random.").startswith((f"{name}: ", *ON_VALUES))
        assert own or NO_DTYPE in summary, summary


EMPTY = {
    "nanmax": gf.nanmax,
    "nanmin": gf.nanmin,
    "nanargmax": gf.nanargmax,
    "nanargmin": gf.nanargmin,
    "nanmedian": gf.nanmedian,
    "median": gf.median,
    "quantile": lambda x: gf.quantile(x, 0.5),
    "vector_norm": lambda x: gf.linalg.vector_norm(x, ord=gf.inf),
    "matrix_norm": lambda x: gf.linalg.matrix_norm(x[None], ord=2),
    "interp": lambda x: gf.interp(0.5, x, x),
    "take": lambda x: gf.take(x, [0]),
    "getitem": lambda x: x[0],
    "fftn": gf.fft.fftn,
    "random.choice": lambda x: gf.random.choice(x, (2,)),
    "random.categorical": gf.random.categorical,
    "max": lambda x: gf.map(gf.max, x[None]),
}


@pytest.mark.parametrize("debug", [False, True], ids=["compiled", "debug"])
@pytest.mark.parametrize("name", EMPTY)
def test_in_a_run(name, debug):
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        y = EMPTY[name](x)
    with gf.Session(g, debug=debug) as session, pytest.raises(gf.ExecutionError) as caught:
        session.run(y, {x: np.zeros(0, np.float32)})
    assert caught.value.summary.startswith((f"{name}: ", f"{name} failed: "))


def test_the_gradient_of_a_function_has_the_names_of_its_ops():
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        y = gf.take(x, [0])
        gf.grad(gf.sum(y), x)
    assert y.node.loc.called == "take"
    assert {node.loc.called for node in g.nodes if node.loc.grad_of} == {""}


def test_what_users_say_in_an_error_stays():
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        y = gf.check(gf.all(x > 0), "max: too small")
    with gf.Session(g) as session, pytest.raises(gf.ExecutionError, match=r"^max: too small"):
        session.run(y, {x: [-1.0]})


@pytest.mark.parametrize("function", [gf.eval_shape, gf.make_graph, gf.hessian])
def test_what_is_no_function_is_refused_by_name(function):
    with pytest.raises(gf.ArgumentError, match=f"{function.__name__}: fn is a list, not a fun"):
        function([1])


@pytest.mark.parametrize("dtype", [gf.ones(3), [1], {"a": 1}], ids=["tensor", "list", "dict"])
def test_what_is_no_dtype_is_refused(dtype):
    with pytest.raises(gf.DTypeError, match="is not a dtype that graphfw has"):
        gf.zeros(3, dtype=dtype)
