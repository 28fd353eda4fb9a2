"""Whether a call is for training: what functions, layers and a `forward` of one's own see of it."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import graphfw as gf

X = np.ones((64, 8), np.float32)
"""Elements of which half are dropped in training."""


def drops(result: Any) -> bool:
    return bool((np.asarray(result) == 0).any())


class OfTheAttribute(gf.nn.Module):
    def forward(self, x):
        return gf.dropout(x, 0.5, training=self.training)


class OfTheCall(gf.nn.Module):
    def forward(self, x):
        return gf.dropout(x, 0.5)


class OfAnArgument(gf.nn.Module):
    def forward(self, x, training=True):
        return gf.dropout(x, 0.5, training=training)


class OfALayer(gf.nn.Module):
    def __init__(self):
        self.drop = gf.nn.Dropout(0.5)

    def forward(self, x, training=False):
        del training  # the layer inside has it all the same
        return self.drop(x)


class OfARequiredArgument(gf.nn.Module):
    def forward(self, training, x):
        return gf.dropout(x, 0.5) if training else x


class OfAnOptionalArgument(gf.nn.Module):
    def forward(self, x, *, training):
        return gf.dropout(x, 0.5) if training else x


class OfAttention(gf.nn.Module):
    def forward(self, x):
        return gf.scaled_dot_product_attention(x, x[:1], x[:1], dropout=0.5)  # of one key


KINDS = [OfTheAttribute, OfTheCall, OfAnArgument, OfALayer, OfAnOptionalArgument, OfAttention]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("around", [lambda m: m, gf.nn.Sequential], ids=["bare", "inside"])
def test_a_call_says_it(kind: Any, around: Any):
    model = around(kind())
    assert drops(model(X))
    assert drops(model(X, training=True))
    assert not drops(model(X, training=False))
    with gf.training(False):
        assert not drops(model(X))
        assert drops(model(X, training=True))
    assert not drops(model.eval()(X))
    assert drops(model.train()(X))
    with gf.Graph() as g:
        x = gf.placeholder(X.shape)
        calls = [model(x), model(x, training=False)]
    with gf.Session(g) as session:
        trained, evaluated = session.run(calls, {x: X})
    assert drops(trained)
    assert not drops(evaluated)


def test_an_argument_by_position():
    with gf.Graph():
        x = gf.ones((3,))
        model = OfARequiredArgument()
        assert model(False, x) is x
        assert model(True, x) is not x
        model = OfAnArgument()
        assert model(x, False) is x
        model.eval()
        assert model(x, None) is x
        with pytest.raises(gf.ArgumentError, match="training=True in a call after eval"):
            model(x, True)
        with pytest.raises(gf.ArgumentError, match="training='no' must be True, False or None"):
            model(x, "no")
        with pytest.raises(gf.CallError, match="OfAnArgument"):
            model.train()(x, True, True)


def test_a_layer_in_evaluation_inside_of_one_in_training():
    model = gf.nn.Sequential(OfTheCall(), OfAnArgument())
    model[0].eval()
    model[1].eval()
    assert not drops(model(X))
    assert not drops(model(X, training=True))
    model[0].train()
    assert drops(model(X))


def test_the_attribute_is_the_mode_of_a_call():
    seen = []

    class Asks(gf.nn.Module):
        def forward(self, x):
            seen.append(self.training)
            return x

    model = gf.nn.Sequential(Asks())
    with gf.Graph():
        x = gf.ones((2,))
        model(x)
        model(x, training=False)
        with gf.training(False):
            model(x)
        model.eval()
        model(x)
        model[0].training = True  # of this module, and not of those around or in it
        model(x)
    assert seen == [True, False, False, False, True]
    assert not model.training
    with pytest.raises(gf.ArgumentError, match="training=1 must be True or False"):
        model.training = 1
    for made in (copy.deepcopy(model), pickle.loads(pickle.dumps(gf.nn.Dropout().eval()))):
        assert not made.training


def test_functions_without_a_module_follow_the_block():
    with gf.Graph():
        x = gf.ones((3,))
        with gf.training(False):
            assert gf.dropout(x) is x
            assert gf.dropout(x, training=True) is not x
            assert gf.dropout(x, training=None) is x
        assert gf.dropout(x, training=False) is x
        assert gf.dropout(x) is not x


def test_a_function_is_built_for_each_mode():
    @gf.function
    def noisy(x):
        return gf.dropout(x, 0.5)

    class Calls(gf.nn.Module):
        def forward(self, x):
            return noisy(x)

    assert drops(noisy(X))
    with gf.training(False):
        assert not drops(noisy(X))
    model = Calls()
    assert drops(model(X))
    assert not drops(model(X, training=False))
    assert not drops(model.eval()(X))


def test_a_loss_in_evaluation_is_warned_of():
    model = gf.nn.Sequential(gf.nn.Linear(8, 8), OfTheCall()).eval()
    with gf.Graph() as g:
        copied = copy.deepcopy(model)
        loss = gf.mean(copied(gf.placeholder(X.shape)))
        with pytest.warns(UserWarning, match="OfTheCall"):
            gf.optim.SGD(0.1).minimize(loss)
    assert g.updates


def test_an_attention_refuses_its_dropout_in_evaluation_too():
    with gf.Graph(), gf.training(False):
        x = gf.ones((4, 8))
        with pytest.raises(gf.ArgumentError, match="dropout=2"):
            gf.scaled_dot_product_attention(x, x, x, dropout=2)


def test_layers_and_functions_draw_numbers_of_their_own():
    def masks(seed: int) -> list[np.ndarray]:
        gf.set_seed(seed)
        draw = [gf.function(lambda: gf.random.uniform((64,))) for _ in range(2)]
        layers = [gf.nn.Dropout(0.5), gf.nn.Dropout(0.5)]
        return [f() for f in draw] + [layer(X[0]) for layer in layers]

    first = masks(1)
    assert (first[0] != first[1]).any()
    for one, again in zip(first, masks(1), strict=True):
        np.testing.assert_array_equal(one, again)
    for one, other in zip(first[:2], masks(2), strict=False):
        assert (one != other).any()
    fixed = [gf.function(seed=3)(lambda: gf.random.uniform((9,)))() for _ in range(2)]
    np.testing.assert_array_equal(*fixed)
