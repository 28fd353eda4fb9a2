"""`gf.function`: what stands around a function decides how it is built, in each call."""

import numpy as np
import pytest

import graphfw as gf


@pytest.mark.parametrize("way", ["eval", "part", "attribute", "argument", "method", "wrapped"])
def test_a_build_serves_layers_as_they_are(way):
    """Whether a layer is for training is asked in each call, as it is where no function is."""
    with gf.Graph() as g:
        model = gf.nn.Sequential(gf.nn.Sequential(gf.nn.Dropout(0.5)))
    x = np.ones(64, np.float32)
    calls = []

    class Owner:
        @gf.function(session=gf.Session(g))
        def apply(self, x, layers=model):
            calls.append(0)
            return layers(x)

    class Wrapped(gf.nn.Module):
        def forward(self, x):
            return hidden[0](x)  # which it does not own

    hidden = [model]
    with g:
        wrapped = Wrapped()
    owner = Owner()
    choices = {"argument": (x, model), "wrapped": (x, wrapped)}
    arguments = choices.get(way, (x,))
    evaluate, train = {
        "part": (model[0][0].eval, model[0][0].train),
        "attribute": (
            lambda: setattr(model[0][0], "training", False),
            lambda: setattr(model[0][0], "training", True),
        ),
    }.get(way, (model.eval, model.train))
    for _ in range(3):
        assert (owner.apply(*arguments) == 0).any()
        assert (owner.apply(*arguments) == 0).any()
        evaluate()
        np.testing.assert_array_equal(owner.apply(*arguments), x)
        np.testing.assert_array_equal(owner.apply(*arguments), x)
        train()
    assert len(calls) == 2
    assert repr(Owner.apply).endswith("2 builds>")


def test_a_function_means_what_its_sessions_graph_means():
    session = gf.Session(gf.Graph(opset=1))
    x = np.float32([-6.5])
    assert gf.function(session=session)(gf.gelu)(x) == 0
    assert gf.function(gf.gelu)(x) < 0


def test_lists_in_the_place_of_arrays_are_explained():
    """A list is a structure, so the function gets it as it is; the error of that is Python's."""

    @gf.function
    def rest(x, n, others):
        return x[:, n:]

    @gf.function
    def added(x):
        return x.shape

    with pytest.raises(TypeError, match="list indices") as caught:
        rest([[1, 2], [3, 4]], 1, [np.ones(2)])
    assert caught.value.__notes__ == ['"x" is a list, a structure: pass np.asarray(x)']
    with pytest.raises(AttributeError) as missing:
        added([1.0])
    assert missing.value.__notes__ == caught.value.__notes__
    with pytest.raises(TypeError) as other:
        rest(np.ones((2, 2)), {}, [])
    assert not hasattr(other.value, "__notes__") or '"x"' not in str(other.value.__notes__)
