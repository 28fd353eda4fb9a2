"""Streams of random draws: keys, seeds, steps, names."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, GraphError
from graphfw.ops.numerics import random_bits, stream_key
from tests.ops.test_random import DRAWS, one, values


@pytest.mark.parametrize("name", DRAWS)
def test_a_stream_depends_on_seed_step_and_place_only(name: str) -> None:
    draw = DRAWS[name]
    with gf.Graph():
        a, b = draw(), draw()
    with gf.Graph():
        c = draw()
    first, second = values(a, b)
    np.testing.assert_array_equal(first, one(a))
    np.testing.assert_array_equal(first, one(c))
    for other in (second, one(a, seed=1), one(a, step=1)):
        assert (first != other).any()


@pytest.mark.parametrize("name", DRAWS)
def test_draws_elsewhere_move_nothing(name: str) -> None:
    draw = DRAWS[name]
    with gf.Graph(), gf.name_scope("layer"):
        alone = one(draw())
    with gf.Graph():
        gf.random.normal(3)
        with gf.name_scope("other"):
            gf.random.normal(3)
        with gf.name_scope("layer"):
            with gf.name_scope("inner"):
                gf.random.normal(3)
            gf.random.normal(3, name="named")
            np.testing.assert_array_equal(one(draw()), alone)


@pytest.mark.parametrize("name", DRAWS)
def test_named_draws(name: str) -> None:
    draw = DRAWS[name]
    with gf.Graph() as g:
        x = draw(name="noise")
        assert g.find("noise") is x
        with pytest.raises(GraphError, match='the name "noise" is taken'):
            draw(name="noise")
    with gf.Graph():
        draw()
        draw(name="another")
        y = draw(name="noise")
    np.testing.assert_array_equal(one(x), one(y))


def test_keys_never_collide() -> None:
    def keys() -> list[str]:
        return [node.op.key for node in g.nodes if node.op.name == "random_bits"]

    with gf.Graph() as g:
        for scope in ("a", "a.b", "#", "a/#"):
            with gf.name_scope(scope):
                for _ in range(3):
                    gf.random.normal(1)
                gf.random.normal(1, name="b.c")
                gf.random.normal(1, name="_1")
        gf.random.normal(1)
        assert len(keys()) == len(set(keys())) == 21


@pytest.mark.parametrize("name", ["", "a b", "a/b", "#1", "\t"])
def test_bad_names(name: str) -> None:
    with pytest.raises(ArgumentError, match="is no name for a draw"):
        gf.random.normal(3, name=name)


def test_bits_are_the_streams() -> None:
    with gf.Graph(), gf.name_scope("enc"):
        u = gf.random.uniform((2, 3), name="u")
    bits = random_bits(np, stream_key(7, "enc/u"), 5, 6)
    expected = ((bits >> 8) * 2.0**-24).astype(np.float32).reshape(2, 3)
    np.testing.assert_array_equal(one(u, seed=7, step=5), expected)


def test_sessions_draw_by_seed_and_step() -> None:
    with gf.Graph() as g:
        x = gf.random.normal(5)
    runs = []
    for seed in (1, 1, 2):
        with gf.Session(g, seed=seed) as session:
            runs.append([session.run(x), session.run(x)])
    np.testing.assert_array_equal(runs[0], runs[1])
    assert (runs[0][0] != runs[2][0]).all()
    np.testing.assert_allclose(runs[0][0], one(x, seed=1), rtol=1e-6)


def test_a_draw_outside_any_graph_becomes_a_constant_inside() -> None:
    x = gf.random.normal(4)
    with gf.Graph() as g:
        y = x + 0
    np.testing.assert_array_equal(one(y, seed=3), x.numpy())
    assert not any(node.op.name == "random_bits" for node in g.nodes)


@pytest.mark.parametrize("name", DRAWS)
def test_draws_have_no_value_in_a_graph(name: str) -> None:
    with gf.Graph():
        x = DRAWS[name]()
        with pytest.raises(gf.ConcreteValueError):
            x.numpy()
