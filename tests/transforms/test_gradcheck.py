"""The numerical check finds gradients that are wrong."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.build import constant
from tests.support.gradcheck import check_gradients


def rules(first, second):
    """x³ with a given gradient, whose own gradient is given too."""

    @gf.custom_gradient
    def slope(x):
        return 3 * x * x, lambda ct: ct * second(x)

    @gf.custom_gradient
    def cube(x):
        return x * x * x, lambda ct: ct * first(x, slope)

    return cube


def test_right_gradients_pass(rng: np.random.Generator):
    x = constant(rng.uniform(0.5, 2, size=4))
    cube = rules(lambda x, slope: slope(x), lambda x: 6 * x)
    check_gradients(cube(x), [x], rng)


def test_a_wrong_gradient_is_found(rng: np.random.Generator):
    x = constant(rng.uniform(0.5, 2, size=4))
    cube = rules(lambda x, slope: slope(x) * 1.0001, lambda x: 6 * x)
    with pytest.raises(gf.GradientError, match="by differences"):
        check_gradients(cube(x), [x], rng, order=1)


def test_a_wrong_second_gradient_is_found(rng: np.random.Generator):
    x = constant(rng.uniform(0.5, 2, size=4))
    cube = rules(lambda x, slope: slope(x), lambda x: 6.001 * x)
    check_gradients(cube(x), [x], rng, order=1)
    with pytest.raises(gf.GradientError, match="by differences"):
        check_gradients(cube(x), [x], rng, order=2)


def test_a_missing_path_in_the_second_gradient_is_found(rng: np.random.Generator):
    x = constant(rng.uniform(0.5, 2, size=4))
    cube = rules(lambda x, slope: gf.stop_gradient(slope(x)), lambda x: x)
    check_gradients(cube(x), [x], rng, order=1)
    with pytest.raises(gf.GradientError, match="by differences"):
        check_gradients(cube(x), [x], rng, order=2)


def test_a_missing_conjugate_is_found(rng: np.random.Generator):
    @gf.custom_gradient
    def square(x):
        return x * x, lambda ct: ct * 2 * x

    x = constant(rng.normal(size=3) + 1j * rng.normal(size=3))
    with pytest.raises(gf.GradientError, match="by differences"):
        check_gradients(square(x), [x], rng, order=1)
    check_gradients(x * x, [x], rng)
