"""`__graphfw_function__`: objects of other classes answer for graphfw's functions."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.overrides import overridable


class Quantity:
    """A value with a unit, which goes through every function unchanged."""

    def __init__(self, value, unit="m"):
        self.value = value
        self.unit = unit

    def __graphfw_function__(self, func, types, args, kwargs):
        calls.append((func, types))
        args = [plain(x) for x in args]
        kwargs = {name: plain(x) for name, x in kwargs.items()}
        return Quantity(func(*args, **kwargs), self.unit)


class Refusing:
    def __graphfw_function__(self, func, types, args, kwargs):
        return NotImplemented


class Length(Quantity):
    @classmethod
    def __graphfw_function__(cls, func, types, args, kwargs):
        return cls.__name__, func, types


def plain(x):
    if isinstance(x, (list, tuple)):
        return [plain(item) for item in x]
    return x.value if isinstance(x, Quantity) else x


calls: list = []


@pytest.fixture(autouse=True)
def no_calls():
    calls.clear()


CALLS = {
    "positional": (gf.add, lambda x: gf.add([1.0, 2.0], x), [4.0, 6.0]),
    "alone": (gf.square, lambda x: gf.square(x), [9.0, 16.0]),
    "keyword": (gf.full, lambda x: gf.full(2, fill_value=Quantity(7)), [7, 7]),
    "in a list": (gf.stack, lambda x: gf.stack([x, gf.zeros(2)], axis=1), [[3.0, 0.0], [4.0, 0.0]]),
    "operator": (gf.subtract, lambda x: gf.asarray([1.0, 2.0]) - x, [-2.0, -2.0]),
    "reflected": (gf.subtract, lambda x: x - gf.asarray([1.0, 2.0]), [2.0, 2.0]),
    "key": (gf.getitem, lambda x: gf.asarray([5, 6])[Quantity([1])], [6]),
    "numpy": (gf.maximum, lambda x: np.maximum(gf.asarray([9.0, 0.0]), x), [9.0, 4.0]),
    "composed": (gf.softmax, lambda x: gf.softmax(x, axis=-1), [0.26894143, 0.73105860]),
    "further down": (gf.take_along_axis, lambda x: gf.take_along_axis(x, [1], axis=0), [4.0]),
    "conversion": (gf.asarray, lambda x: gf.asarray(x, dtype=gf.float64), [3.0, 4.0]),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_function_that_the_user_called_is_asked_for(name):
    func, call, expected = CALLS[name]
    result = call(Quantity(gf.asarray([3.0, 4.0]), "s"))
    assert isinstance(result, Quantity)
    np.testing.assert_allclose(result.value.numpy(), expected, rtol=1e-6)
    assert calls == [(func, (Quantity,))]


def test_functions_whose_results_are_no_tensors():
    assert gf.result_type(Quantity(gf.asarray(1)), 1.5).value is gf.float32
    assert calls == [(gf.result_type, (Quantity,))]


def test_symbolic_tensors_meet_others():
    with gf.Graph():
        x = gf.placeholder(("n", 3), name="x")
        result = gf.matmul(x, Quantity(gf.ones((3, 2))))
    assert result.value.shape[1] == 2
    assert calls == [(gf.matmul, (Quantity,))]


def test_functions_called_by_functions_that_users_give():
    """`custom`, which the user called, has no such argument; what it calls has one."""

    @overridable
    def custom(function):
        return function()

    result = custom(lambda: gf.add(1.0, Quantity(2.0)))
    assert result.value.item() == 3
    assert calls == [(gf.add, (Quantity,))]


def test_what_answers_may_call_again():
    class Nested(Quantity):
        def __graphfw_function__(self, func, types, args, kwargs):
            return func(*[Quantity(x.value) if isinstance(x, Nested) else x for x in args])

    result = gf.softmax(Nested([0.0, 0.0]))
    assert result.value.numpy().tolist() == [0.5, 0.5]
    assert calls == [(gf.softmax, (Quantity,))]


def test_subclasses_are_asked_before_their_bases():
    name, func, types = gf.where([True], Quantity(1), Length(2))
    assert (name, func, types) == ("Length", gf.where, (Quantity, Length))
    assert not calls


def test_not_implemented_passes_to_the_next():
    class Careless(Quantity):
        """Works with anything of its kind."""

        def __graphfw_function__(self, func, types, args, kwargs):
            return types

    types = gf.concat([Refusing(), Careless(1.0)])
    assert [cls.__name__ for cls in types] == ["Refusing", "Careless"]


def test_all_refuse():
    with pytest.raises(TypeError, match=r"add: __graphfw_function__ of Refusing returned NotImpl"):
        gf.add(1.0, Refusing())


def test_what_no_function_was_asked_for_is_an_error():
    with gf.Graph():
        layer = gf.nn.Linear(2, 3)
        with pytest.raises(gf.DTypeError, match="a Quantity can't become a tensor here"):
            layer(Quantity(gf.ones((1, 2))))


def test_functions_stay_what_they_are():
    assert gf.where.__name__ == "where"
    assert list(inspect.signature(gf.where).parameters) == ["condition", "x1", "x2"]
