"""Operators that would change a variable in Python, as `variable += 1`: they are refused."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import graphfw as gf

OPERATORS = {
    "+": operator.iadd,
    "-": operator.isub,
    "*": operator.imul,
    "/": operator.itruediv,
    "//": operator.ifloordiv,
    "%": operator.imod,
    "**": operator.ipow,
    "@": operator.imatmul,
    "&": operator.iand,
    "|": operator.ior,
    "^": operator.ixor,
    "<<": operator.ilshift,
    ">>": operator.irshift,
}


@pytest.mark.parametrize("sign", OPERATORS)
def test_a_variable_outside_of_graphs(sign):
    variable = gf.Variable(np.ones((2, 2), np.int32))
    for value in (1, np.ones((2, 2), np.int32), gf.ones((2, 2), dtype="int32"), variable, "a"):
        with pytest.raises(gf.ArgumentError, match="would leave the variable as it is") as caught:
            OPERATORS[sign](variable, value)
        fix = f"write variable.assign(variable {sign} value); for a new tensor write "
        assert caught.value.fix == f"{fix}y = variable {sign} value"
        assert caught.value.at.function == "test_a_variable_outside_of_graphs"
    np.testing.assert_array_equal(variable.numpy(), np.ones((2, 2)))


def test_a_loop_over_parameters_in_a_function():
    layer = gf.nn.Linear(2, 1)

    @gf.function
    def step(x):
        loss = gf.mean(layer(x) ** 2)
        for p, g in zip(layer.parameters(), gf.grad(loss, layer.parameters()), strict=True):
            p -= 0.1 * g  # the mistake
        return loss

    with pytest.raises(gf.ArgumentError, match="variable -= value") as caught:
        step(np.ones((4, 2), np.float32))
    assert caught.value.fix.startswith("write gf.update(variable, variable - value), which each")
    assert "optimisers have minimize(loss)" in caught.value.fix

    @gf.function
    def train(x):
        loss = gf.mean(layer(x) ** 2)
        for p, g in zip(layer.parameters(), gf.grad(loss, layer.parameters()), strict=True):
            gf.update(p, p - 0.1 * g)
        return loss

    losses = [float(train(np.ones((4, 2), np.float32))) for _ in range(3)]
    assert losses[0] > losses[1] > losses[2]


def test_what_to_write_in_graphs_and_after_them():
    with gf.Graph():
        variable = gf.Variable([1.0, 2.0], name="w")
        with pytest.raises(gf.ArgumentError) as caught:
            variable *= 2
        assert '"w"' in str(caught.value)
        assert "write gf.update(variable, variable * value)" in caught.value.fix
        for keys in (0, slice(None), ...):
            with pytest.raises(gf.ConcreteValueError, match="keeps its elements") as refused:
                variable[keys] = 0.0
            assert "write gf.update(variable, variable.at[i].set(v))" in refused.value.fix
    with pytest.raises(gf.ArgumentError) as caught:
        variable *= 2
    assert caught.value.fix.startswith("write session[variable] = value")
    outside = gf.Variable([1.0, 2.0])
    with pytest.raises(gf.ConcreteValueError) as refused:
        outside[0] += 1.0
    assert refused.value.fix == "write variable.assign(variable.at[i].set(v))"
    outside.assign(outside.at[0].set(5.0))
    np.testing.assert_array_equal(outside.numpy(), [5.0, 2.0])


def test_tensors_and_arrays_take_these_operators():
    variable = gf.Variable([1.0, 2.0])
    tensor = gf.asarray([1.0, 2.0])
    before = tensor
    tensor += variable
    tensor *= 2
    np.testing.assert_array_equal(tensor.numpy(), [4.0, 8.0])
    np.testing.assert_array_equal(before.numpy(), [1.0, 2.0])
    total = 0.0
    total += variable
    np.testing.assert_array_equal(gf.asarray(total).numpy(), [1.0, 2.0])
