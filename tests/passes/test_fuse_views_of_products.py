"""Groups that read other elements of a product, through views, are no epilogues of it."""

from typing import Any

import numpy as np
import pytest

import graphfw as gf

VIEWS: list[Any] = [
    lambda a: a,
    lambda a: a[:, 0:1],
    lambda a: a[0:1],
    lambda a: a[::-1],
    lambda a: a[:, ::-1],
    lambda a: a.mT,
    lambda a: a[-1:, -1:],
    lambda a: gf.roll(a, 1, axis=1),
    lambda a: gf.max(a, axis=1, keepdims=True),
    lambda a: gf.sum(a, axis=0, keepdims=True),
]
JOINTS: list[Any] = [
    lambda x, y: x + y,
    lambda x, y: x * y,
    lambda x, y: gf.tanh(x) - y,
    lambda x, y: gf.maximum(x, 0.5 * y),
]


def agree(make: Any, *shapes: tuple[int, int], rng: np.random.Generator) -> None:
    """See that a function of matrices is compiled to what it is node by node."""
    with gf.Graph() as g:
        xs = [gf.placeholder(shape) for shape in shapes]
        made = make(*xs)
    values = {x: rng.standard_normal(x.shape).astype("float32") for x in xs}
    with gf.Session(g) as compiled, gf.Session(g, debug=True) as nodewise:
        for found, wanted in zip(
            compiled.run(made, values), nodewise.run(made, values), strict=True
        ):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("n", [2, 20])
def test_a_product_of_slices_beside_the_product_itself(rng, n):
    def make(x, y):
        a = x @ y
        return [a * 2 + a[:, 0:1] * a[0:1]]

    agree(make, (n, 30), (30, n), rng=rng)


@pytest.mark.parametrize(
    "number", [*range(25), *[pytest.param(n, marks=pytest.mark.slow) for n in range(25, 400)]]
)
def test_random_functions_of_views(rng, number):
    """Write expressions of a product, of views of it, and of what is made of these."""
    n = int(rng.integers(2, 24))

    def make(x, y):
        tensors = [x @ y]
        for _ in range(rng.integers(2, 7)):
            first, second = [
                VIEWS[rng.integers(len(VIEWS))](tensors[rng.integers(len(tensors))])
                for _ in range(2)
            ]
            tensors.append(JOINTS[rng.integers(4)](first, second))
        last = gf.broadcast_to(tensors[-1], (n, n))
        return [last, *tensors[1 : 1 + rng.integers(2)]]

    agree(make, (n, 30), (30, n), rng=rng)
