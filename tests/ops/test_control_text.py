"""Branches and loops as text, and what is said of mistakes in them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import (
    ArgumentError,
    CallError,
    DTypeError,
    GraphError,
    GraphfwError,
    ShapeError,
)
from tests.support.loops import assert_equal

F64 = gf.float64

# Text.


def test_text_with_bodies_is_read_back() -> None:
    with gf.Graph("g") as graph:
        x = gf.placeholder(("t", 3), name="x")
        w = gf.Variable(np.arange(40.0), name="w")

        def step(carry: Any, row: Any) -> tuple[Any, Any]:
            new = gf.cond(gf.sum(row) > 0, lambda: carry + row, lambda: carry * 2)
            return new, gf.random.uniform((2,)) + gf.sum(w)

        last, rows = gf.scan(step, gf.zeros((3,)), x)
        looped = gf.while_loop(lambda v: gf.sum(v) < 9, lambda v: v + 1, last)
        graph.outputs = (gf.grad(gf.sum(looped) + gf.sum(rows), x), rows)
    text = str(graph)
    again = gf.parse(text, constants=graph.constants())
    assert str(again) == text
    value = np.ones((2, 3), np.float32)
    with gf.Session(graph, seed=2) as one, gf.Session(again, seed=2) as other:
        a = one.run(list(graph.outputs), {"x": value})
        b = other.run(list(again.outputs), {"x": value})
    assert_equal(a, b)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("yields %2", ""), "no lines `takes` and `yields`"),
        (("takes %0, %1", "takes %0, %2"), "takes placeholders"),
        (("body.b0", "body.b7"), "b7 is not above"),
        (("body b0 {", "body b0"), "begins no body"),
        (("yields %2", "yields %9"), "%9 is not defined"),
        (("yields %2", "output %2"), "no line `output`"),
    ],
)
def test_text_with_mistakes(change: tuple[str, str], message: str) -> None:
    text = """graph "g" opset 2 {
  %0 = placeholder(name="x") : float32[]
  body b0 {
    %0 = placeholder() : int64[]
    %1 = placeholder() : float32[]
    %2 = sin(%1) : float32[]
    takes %0, %1
    yields %2
  }
  %1 = scan(%0, body=body.b0, length=3, carries=1, sequences=0, backwards=False) : float32[]
  output %1
}"""
    assert gf.parse(text).outputs
    with pytest.raises(gf.errors.ParseError, match=message):
        gf.parse(text.replace(*change))


# Mistakes.


def mistakes() -> list[tuple[str, Any, type[GraphfwError], str]]:
    return [
        ("branches", lambda x: gf.cond(True, lambda: x, lambda: x[0]), ShapeError, r"true_fn is"),
        (
            "dtypes",
            lambda x: gf.cond(True, lambda: x, lambda: gf.astype(x, F64)),
            DTypeError,
            "float64",
        ),
        (
            "structure",
            lambda x: gf.cond(True, lambda: x, lambda: (x,)),
            ArgumentError,
            "structures",
        ),
        ("pred", lambda x: gf.cond(x > 0, lambda: x, lambda: x), ShapeError, "not a scalar"),
        ("number", lambda x: gf.cond(x[0], lambda: x, lambda: x), DTypeError, "not bool"),
        ("value", lambda x: gf.cond(True, x, x), ArgumentError, "not a function"),
        ("none", lambda x: gf.switch(0, []), ArgumentError, "no branch"),
        ("carry", lambda x: gf.scan(lambda c, v: (c + v, v), 0, x), DTypeError, "first carry"),
        (
            "grows",
            lambda x: gf.scan(lambda c, v: (gf.stack([c, c]), v), x[0], x),
            ShapeError,
            "carry",
        ),
        ("pair", lambda x: gf.scan(lambda c, v: c, 0, x), ArgumentError, "not a pair"),
        ("length", lambda x: gf.scan(lambda c, v: (c, v), 0), ArgumentError, "how many iterations"),
        ("scalar", lambda x: gf.scan(lambda c, v: (c, v), 0, x[0]), ShapeError, "no elements"),
        ("two", lambda x: gf.scan(lambda c, v: (c, 0), 0, (x, x[1:])), ShapeError, "2 elements"),
        ("negative", lambda x: gf.scan(lambda c, v: (c, 0), 0, length=-1), ArgumentError, "-1"),
        ("unroll", lambda x: gf.scan(lambda c, v: (c, 0), 0, x, unroll=0), ArgumentError, "unroll"),
        ("while", lambda x: gf.while_loop(lambda v: v, lambda v: v, x), ShapeError, "cond_fun"),
        (
            "body",
            lambda x: gf.while_loop(lambda v: True, lambda v: v[1:], x),
            ShapeError,
            "body_fun",
        ),
        ("fori", lambda x: gf.fori_loop(0, x, lambda i, v: v, x), ShapeError, "upper"),
        (
            "cond_fun",
            lambda x: gf.while_loop(0, lambda v: v < 3, lambda v: v),
            ArgumentError,
            "cond_fun is an int",
        ),
        ("mapped", lambda x: gf.map(x, lambda v: v), ArgumentError, "f is a Tensor"),
        ("kept", lambda x: gf.checkpoint(x), ArgumentError, "checkpoint: f is a Tensor"),
        ("joined", lambda x: gf.associative_scan(x, gf.add), ArgumentError, "fn is a Tensor"),
        (
            "fewer",
            lambda x: gf.fori_loop(0, 3, lambda v: v, x),
            CallError,
            r"body_fun is called with 2 arguments: too many(.|\n)*as body_fun\(i, value\)",
        ),
        (
            "more",
            lambda x: gf.map(lambda i, v: v, x),
            CallError,
            "f is called with 1 argument: missing",
        ),
        (
            "lanes",
            lambda x: gf.vmap(lambda v: v)(x, x),
            CallError,
            "vmap: fn is called with 2 arguments",
        ),
        (
            "primals",
            lambda x: gf.vjp(lambda v, w: v, x),
            CallError,
            "vjp: fn is called with 1 argument",
        ),
        ("associate", lambda x: gf.associative_scan(lambda a, b: a[:, None], x), ShapeError, "fn"),
        (
            "forgets",
            lambda x: gf.associative_scan(lambda a, b: None, x),
            ArgumentError,
            "what fn takes and what it returns have different structures: 1 and 0 tensors",
        ),
        ("added", lambda x: gf.associative_scan(lambda a, b: (a, b), x), ArgumentError, "1 and 2"),
        ("dtype", lambda x: gf.associative_scan(lambda a, b: a < b, x), DTypeError, "is bool"),
        (
            "rank",
            lambda x: gf.associative_scan(lambda a, b: gf.sum(a), x),
            ShapeError,
            r"what fn takes is float32\[1\], what it returns is float32\[\]",
        ),
        (
            "upto",
            lambda x: gf.fori_loop(0, gf.astype(x[0], "int64"), lambda i, v: v[1:], x),
            ShapeError,
            r"fori_loop: init_val is float32\[3\], body_fun is float32\[2\]",
        ),
        (
            "counter",
            lambda x: gf.fori_loop(0, gf.astype(x[0], "int64"), lambda i, v: (v, v), x),
            ArgumentError,
            "fori_loop: init_val and body_fun have different structures: 1 and 2 tensors",
        ),
    ]


@pytest.mark.parametrize(("what", "make", "error", "message"), mistakes(), ids=lambda v: str(v)[:9])
def test_mistakes(what: str, make: Any, error: type[GraphfwError], message: str) -> None:
    with gf.Graph():
        x = gf.placeholder((3,))
        with pytest.raises(error) as caught:
            make(x)
    said = f"{caught.value.summary}\n{caught.value.fix}"  # the whole text has this test's line
    assert re.search(message, said)
    assert Path(__file__).name in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 6


def test_a_function_s_own_type_error_is_left_as_it_is() -> None:
    def step(value: Any) -> Any:
        return len(5, value)

    with gf.Graph(), pytest.raises(TypeError, match="len") as caught:
        gf.map(step, gf.zeros(3))
    assert caught.traceback[-1].name == "step"


def test_what_is_inside_stays_inside() -> None:
    kept: list[Any] = []
    with gf.Graph() as graph:
        x = gf.placeholder((3,))
        gf.map(lambda v: kept.append(v) or v, x)
        with pytest.raises(GraphError, match="inside the body of a map"):
            kept[0] + 1
        with pytest.raises(GraphError, match="inside the body of a map"):
            gf.scan(lambda c, e: (c + kept[0], None), 0.0, x)
    with gf.Session(graph) as session, pytest.raises(GraphfwError):
        session.run(kept[0], {x: np.zeros(3, np.float32)})
