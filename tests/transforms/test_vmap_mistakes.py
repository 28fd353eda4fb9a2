"""Errors of `vmap` for functions that it can not map."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, AxisError, GraphError, ShapeError
from graphfw.ir.op import REGISTRY, Op, op


def message(kind: type[Exception], make: Callable[[], Any]) -> str:
    with pytest.raises(kind) as caught:
        make()
    return str(caught.value)


def test_mistakes_in_arguments():
    x, y = gf.zeros((3, 2)), gf.zeros((4, 2))
    text = message(ShapeError, lambda: gf.vmap(lambda a, b: a + b)(x, y))
    assert "args[0] has 3 examples along axis 0, and args[1] 4 along axis 0" in text
    text = message(ShapeError, lambda: gf.vmap(lambda a, b: a, (0, {"k": 1}))(x, {"k": x}))
    assert "args[1]['k'] 2 along axis 1" in text
    text = message(ArgumentError, lambda: gf.vmap(lambda a, b: a, (0,))(x, y))
    assert "in_axes has 1 entry for 2 arguments" in text
    text = message(ArgumentError, lambda: gf.vmap(lambda a: a, ((0, 0),))([x]))
    assert "in_axes (0, 0) does not fit args[0], a list with 1 entry" in text
    text = message(ArgumentError, lambda: gf.vmap(lambda a: a, ("0",))(x))
    assert "in_axes '0' does not fit args[0]" in text
    text = message(AxisError, lambda: gf.vmap(lambda a: a, 2)(x))
    assert "in_axes: axis 2 is out of range for 2 dims, those of args[0]" in text
    text = message(ShapeError, lambda: gf.vmap(lambda a: a)(1.0))
    assert "args[0] is a scalar, which has no axis to map" in text
    text = message(ShapeError, lambda: gf.vmap(lambda a: a)([1.0, 2.0]))
    assert "args[0][0] is a scalar, which has no axis to map" in text
    assert "to map the numbers of args[0], pass gf.asarray(args[0])" in text
    text = message(ArgumentError, lambda: gf.vmap(lambda a: a, None)(x))
    assert "nothing is mapped" in text
    text = message(ArgumentError, lambda: gf.vmap(lambda a: a, randomness="equal"))
    assert "randomness='equal'" in text
    assert 'use one of "different", "same", "error"' in text
    assert "fn is an int" in message(ArgumentError, lambda: gf.vmap(3))  # type: ignore[arg-type]  # bad


def test_sizes_that_may_differ():
    with gf.Graph():
        x, y = gf.placeholder(("n", 2), name="x"), gf.placeholder(("m", 2), name="y")
        text = message(ShapeError, lambda: gf.vmap(lambda a, b: a)(x, y))
    assert "gf.assert_shape" in text


def test_mistakes_in_results():
    x = gf.zeros((3, 2))
    text = message(ArgumentError, lambda: gf.vmap(lambda a: "text")(x))
    assert "the function returns a str, not a tensor" in text
    text = message(ArgumentError, lambda: gf.vmap(lambda a: a, out_axes=None)(x))
    assert "result differs from example to example, and its out_axes is None" in text
    text = message(AxisError, lambda: gf.vmap(lambda a: a, out_axes=3)(x))
    assert "out_axes: axis 3 is out of range for 2 dims, those of result" in text
    text = message(ArgumentError, lambda: gf.vmap(lambda a: (a, a), out_axes=(0,))(x))
    assert "out_axes (0,) does not fit result, a tuple with 2 entries" in text


@pytest.fixture
def without_rule() -> Iterator[Op]:
    @op("without_rule")
    class WithoutRule(Op):
        vjp = None

        def shape(self, x: Any) -> Any:
            return x

        def dtype(self, x: Any) -> Any:
            return x

        def eval(self, xp: Any, x: Any) -> Any:
            return x

    yield WithoutRule()
    del REGISTRY["without_rule"]


def test_ops_without_a_rule_are_all_reported(without_rule: Op):
    from graphfw.ir.build import emit

    def function(x: gf.Tensor) -> gf.Tensor:
        first = emit(without_rule, x)
        state, _ = gf.scan(lambda c, _: (emit(without_rule, c), None), first, None, 2)
        return gf.sin(state)

    with pytest.raises(GraphError, match="no batch rule for without_rule") as caught:
        gf.vmap(function)(gf.zeros((3, 2)))
    assert len(caught.value.operands) == 2
    assert len({operand.loc.line for operand in caught.value.operands if operand.loc}) == 2
    assert emit(without_rule, gf.zeros(2)).numpy().tolist() == [0, 0]


def test_names_are_kept(rng: np.random.Generator):
    def function(x):
        with gf.name_scope("enc"):
            h = gf.identity(gf.tanh(x), name="h")
            gf.identity(h * 2, name="unused")
            shared = gf.identity(gf.asarray([1.0, 2.0]) * 3, name="shared")
            last, _ = gf.scan(lambda c, v: (gf.identity(c + v, name="c"), None), 0.0, h)
        return last + gf.sum(shared)

    with gf.Graph() as g:
        x = gf.placeholder(("n", 3), name="x")
        with gf.name_scope("model"):
            gf.vmap(gf.vmap(function))(gf.expand_dims(x, axis=0))
        with pytest.raises(GraphError, match=r'the name "model.enc.h" is taken'):
            with gf.name_scope("model"):
                gf.vmap(function)(x)
    array = rng.normal(size=(4, 3)).astype(np.float32)
    with gf.Session(g) as session:
        names = [f"model.enc.{name}" for name in ("h", "unused", "shared")]
        h, unused, shared = session.run(names, {x: array})
    np.testing.assert_allclose(h, np.tanh(array)[None], rtol=1e-6)
    np.testing.assert_allclose(unused, 2 * np.tanh(array)[None], rtol=1e-6)
    np.testing.assert_array_equal(shared, [3, 6])
    (scan,) = [node for node in g.nodes if node.op.name == "scan"]
    assert [node.name for node in scan.op.body.nodes if node.name] == ["model.enc.c"]
