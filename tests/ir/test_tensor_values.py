"""Values that tensors are made of, and values that nobody computes."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import DTypeError
from graphfw.ir import concrete
from graphfw.ir.arrays import to_array
from graphfw.ir.literal import Literal


def test_to_array_takes_arrays_lists_scalars():
    assert to_array(2.5).dtype == to_array([1.5, 2]).dtype == np.float32
    assert to_array(2).dtype == to_array([[1], [2]]).dtype == np.int64
    assert to_array(True).dtype == np.bool_
    assert to_array(1j).dtype == np.complex64
    assert to_array(np.float64(2)).dtype == np.float32  # a Python float, by class
    assert to_array(np.int8(2)).dtype == np.int8
    assert to_array([np.zeros(2), np.ones(2)]).dtype == np.float64
    assert to_array([1, 2], gf.float16).dtype == np.float16
    assert to_array([]).shape == (0,)
    array = np.zeros(3)
    assert to_array(array) is array


def test_to_array_refuses():
    with pytest.raises(gf.ArgumentError, match="can't make an array") as caught:
        to_array([[1, 2], [3]])
    assert "give every row the same length" in str(caught.value)
    with pytest.raises(DTypeError, match="can't make an array of dict: its elements are not"):
        to_array({})
    with pytest.raises(DTypeError, match="can't make an array of str: its elements") as refused:
        to_array("text")
    assert "gf.stack" not in refused.value.fix
    for value in (2**70, [1, -(2**70)]):
        with pytest.raises(DTypeError, match=r"1180591620717411303424 fits neither int64 nor uint"):
            to_array(value)


def test_several_tensors_are_not_one():
    with gf.Graph():
        x = gf.placeholder((2, 3), name="x")
        for several, word in (([x, x], "list"), ((x, (x, 2.0)), "tuple"), ([[1, x]], "list")):
            with pytest.raises(gf.ArgumentError) as caught:
                gf.exp(several)
            assert caught.value.summary == f"a {word} of tensors is no tensor"
            assert caught.value.operands[0].name == "x"
            assert "`y, state = lstm(x)`; gf.stack joins them" in caught.value.fix
            assert len(str(caught.value).splitlines()) <= 5
    with pytest.raises(gf.ArgumentError, match="a tuple of tensors is no tensor"):
        to_array((gf.zeros((2, 3)), gf.zeros(4)))  # whose values are known
    assert to_array([gf.zeros(3), gf.ones(3)]).tolist() == [[0] * 3, [1] * 3]


def test_none_is_no_tensor():
    with pytest.raises(DTypeError, match="None is neither a tensor nor a number") as caught:
        gf.exp(None)
    assert "end that with `return`" in caught.value.fix


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: gf.relu, "a function"),
        (lambda: gf.nn.ReLU, "the class ReLU"),
        (gf.nn.ReLU, "a ReLU"),
    ],
)
def test_what_has_to_be_called_is_no_tensor(make, what: str):
    with gf.Graph(), pytest.raises(DTypeError) as caught:
        gf.exp(make())
    assert caught.value.summary == f"{what} is neither a tensor nor a number"
    assert caught.value.fix == "call it, and use the result"


def test_an_update_is_no_tensor_and_no_result_of_a_body():
    with gf.Graph():
        w = gf.Variable([1.0], name="w")
        for make in (
            lambda: gf.exp(gf.update(w, w * 2)),
            lambda: gf.scan(lambda c, x: (c, gf.update(w, w + x)), (), gf.ones((3, 1))),
            lambda: gf.cond(w[0] > 0, lambda: gf.update(w, w + 1), lambda: gf.update(w, w - 1)),
        ):
            with pytest.raises(DTypeError, match="an Update is neither a tensor") as caught:
                make()
            assert "fetch it beside the results" in caught.value.fix


def test_literals_compare_by_content(rng: np.random.Generator):
    a = rng.normal(size=5)
    assert Literal(a) == Literal(a.copy())
    assert hash(Literal(a)) == hash(Literal(a.copy()))
    assert Literal(a) != Literal(a.astype("float32"))
    assert Literal(a) != Literal(a.reshape(5, 1))
    assert Literal(a) != Literal(a + 1)
    assert Literal(np.array(0.0)) != Literal(np.array(-0.0))
    assert Literal(np.array(np.nan)) == Literal(np.array(np.nan))
    assert Literal(a[::-1]) == Literal(a[::-1].copy())


def test_literals_of_read_only_views_do_not_change():
    """A read-only view of an array that can be written is no constant yet."""
    base = np.zeros(3)
    view = base[:]
    view.flags.writeable = False
    t = gf.asarray(view)
    base[:] = 1
    np.testing.assert_array_equal(t.numpy(), np.zeros(3))


# Values that are not computed.


def test_under_meta_nothing_is_computed_outside_a_graph():
    data = gf.asarray([1, 2])
    known = data * 3
    known.numpy()
    with gf.default_executor("meta"):
        huge = gf.ones((16384,) * 3) + 1
        shown = "Tensor(shape=(16384, 16384, 16384), dtype=float32)"
        assert [repr(huge), str(huge), f"{huge}"] == [shown] * 3
        assert repr(gf.sum(huge)) == "Tensor(shape=(), dtype=float32)"
        assert data.numpy().tolist() == [1, 2]
        assert str(known) == "[3 6]"
        number = gf.asarray(2.0) + 1
        for ask in (float, bool, np.asarray, gf.Tensor.item, gf.Tensor.numpy, np.from_dlpack):
            with pytest.raises(
                gf.ConcreteValueError,
                match=r'executor, "meta", computes none\n(.*\n)*.*gf.default_executor chose',
            ):
                ask(number)
    assert float(number) == 3


def test_under_meta_what_a_description_depends_on_is_computed():
    with gf.default_executor("meta"):
        rows = gf.asarray([1, 0, 2]) + 0
        (found,) = gf.nonzero(rows > 0)
        assert found.shape == (2,)
        assert gf.repeat(gf.zeros(3), rows).shape == (3,)
        assert gf.bincount(rows).shape == (3,)
        assert gf.zeros((gf.sum(rows),)).shape == (3,)
        drawn = gf.random.normal(shape=(3,))
        with gf.Graph() as g:
            y = gf.identity(drawn * rows, name="y")
    with gf.Session(g, executor="numpy") as session:
        np.testing.assert_array_equal(session.run(y), drawn.numpy() * [1, 0, 2])


def test_under_meta_what_a_session_is_given_is_computed():
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
        v = gf.Variable([0.0] * 3, name="v")
        y = gf.identity(x + v, name="y")
    with gf.default_executor("meta"), gf.Session(g, executor="numpy") as session:
        session[v] = gf.ones(3) * 2
        np.testing.assert_array_equal(session.run(y, {x: gf.ones(3) * 3}), [5, 5, 5])


def test_checks_of_values_compute_nothing_under_meta(monkeypatch):
    monkeypatch.setattr(concrete, "evaluate", pytest.fail)
    with gf.default_executor("meta"):
        x, ends = gf.ones(5) * 2, gf.ones(2) * 2
        gf.interp(x, ends, ends)
        gf.quantile(x, ends[0])
        gf.histogram(x, ends)
        gf.histogram(x, 3, range=(ends[0], ends[1]))
        gf.nn.bce(x, x)


@pytest.mark.parametrize("size", [16384, 2**20, 2**21])
def test_a_tensor_that_does_not_fit_into_memory(size):
    view = gf.ones((size,) * 3)
    shown = f"Tensor(shape=({size}, {size}, {size}), dtype=float32)"
    with gf.Graph():
        inside = str(gf.ones((size,) * 3))
    assert inside.startswith("<Tensor float32[")
    for huge in (view, view + 1):
        assert [repr(huge), str(huge)] == [shown] * 2
        with pytest.raises(
            gf.errors.MemoryLimitError, match=r"\.numpy\(\) wants a value(.|\n)*fix  compute less"
        ):
            huge.numpy()
    total = gf.sum(view + 1)
    assert repr(total) == "Tensor(shape=(), dtype=float32)"
    with pytest.raises(
        MemoryError, match=r"not enough memory to compute it: this add takes [\d,]+"
    ):
        float(total)
    if size**3 < 2**63:  # of a view no more is made than is asked for
        assert view[0, 0, :2].numpy().tolist() == [1, 1]
