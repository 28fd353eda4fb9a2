"""Bounds of draws that are tensors: refused at once where they are known, else by runs."""

import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, ExecutionError


def test_a_run_refuses_bounds_in_no_order() -> None:
    with gf.Graph() as g:
        low = gf.placeholder(("n",), "int64", name="low")
        ints = gf.random.randint(low, 100, low.shape, dtype="uint8")
        floats = gf.random.uniform((2, *low.shape), gf.astype(low, "float32"), 4.0)
    with gf.Session(g) as session:
        assert (session.run(ints, {low: [0, 98]}) >= [0, 98]).all()
        assert session.run(floats, {low: [0, 3]}).shape == (2, 2)
        for wrong in (100, 101, -1):
            with pytest.raises(
                ExecutionError, match=r"randint: low must be .* fit uint8"
            ) as caught:
                session.run(ints, {low: [0, wrong]})
            assert "high is one more" in caught.value.fix
        for wrong in (4, 5):
            with pytest.raises(ExecutionError, match="uniform: low must be below high"):
                session.run(floats, {low: [3, wrong]})


def test_bounds_in_no_order_that_are_known() -> None:
    for low, high, dtype in (([1, 7], 5, "int64"), ([5], 5, "int8"), ([1], 129, "int8")):
        with pytest.raises(ArgumentError, match="randint: low must be below high"):
            gf.random.randint(gf.asarray(low), high, len(low), dtype=dtype)
    for dtype in ("uint64", "uint32"):
        with pytest.raises(ArgumentError, match="randint: low must be below high"):
            gf.random.randint(gf.zeros((2,), dtype=dtype), 0, 2, dtype=dtype)
    with pytest.raises(ArgumentError, match="uniform: low must be below high"):
        gf.random.uniform(2, gf.asarray([1.0, 7.0]), 5.0)


def test_bounds_of_each_lane_are_checked() -> None:
    draw = gf.vmap(lambda low: gf.random.randint(low, 5, 3))
    assert draw(gf.asarray([0, 4])).shape == (2, 3)
    with pytest.raises(ExecutionError, match="randint: low must be below high"):
        draw(gf.asarray([0, 5])).numpy()
