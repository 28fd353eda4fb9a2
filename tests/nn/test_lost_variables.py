"""Assignments by which a module would lose a variable or a submodule: they are refused."""

from __future__ import annotations

import numpy as np
import pytest

import graphfw as gf
from graphfw import nn

X = np.ones((4, 2), np.float32)


class Centre(nn.Module):
    def __init__(self) -> None:
        self.mean = gf.Variable(np.zeros(2), trainable=False)

    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * gf.mean(x, axis=0)
        return x - self.mean


VALUES = {
    "array": np.zeros((2, 3), np.float32),
    "number": 0.5,
    "list": [[1.0, 2.0]],
    "tensor": gf.zeros((2, 3)),
    "string": "zeros",
    "function": abs,
    "false": False,
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_in_the_place_of_a_variable(name):
    layer = nn.Linear(2, 3)
    weight = layer.weight
    with pytest.raises(gf.ArgumentError, match=r"^Linear\.weight is a Variable") as caught:
        layer.weight = VALUES[name]
    fix = "write module.weight.assign(value); for another variable module.weight = gf.Variable("
    assert caught.value.fix == f"{fix}value)"
    assert caught.value.at.function == "test_a_value_in_the_place_of_a_variable"
    assert layer.weight is weight
    assert list(layer.state_dict()) == ["weight", "bias"]


def test_what_may_replace_a_variable():
    layer = nn.Linear(2, 3)
    former = layer.weight
    layer.weight = gf.Variable(np.ones((2, 3)))
    layer.bias = None
    np.testing.assert_array_equal(layer(X), np.full((4, 3), 2.0))
    assert [name for name, _ in layer.named_parameters()] == ["weight"]
    layer.weight = former
    assert layer.weight is former
    del layer.weight
    layer.weight = 3  # a plain attribute now
    assert layer.variables() == []
    layer.weight = nn.ReLU()
    assert layer.children() == [layer.weight]


def test_a_new_value_of_a_variable_in_forward():
    centre = Centre()
    for call in (centre, gf.function(lambda x: centre(x))):
        with pytest.raises(gf.ArgumentError, match=r"^Centre\.mean is a Variable") as caught:
            call(X)
        assert caught.value.fix.startswith("write gf.update(self.mean, value), which each run does")
        assert caught.value.at.function == "forward"
    assert list(centre.state_dict()) == ["mean"]
    with gf.Graph(), pytest.raises(gf.ArgumentError, match=r"Centre\.mean is a Variable"):
        Centre()(gf.placeholder((4, 2)))
    with gf.Graph():
        of_graph = Centre()
    with pytest.raises(gf.ArgumentError) as caught:
        of_graph.mean = np.zeros(2)
    assert caught.value.fix.startswith("write session[module.mean] = value")


def test_an_update_that_is_assigned():
    class Following(Centre):
        def forward(self, x):
            self.mean = gf.update(self.mean, gf.mean(x, axis=0))
            return x - self.mean

    with pytest.raises(gf.ArgumentError, match=r"Following\.mean .* for an Update") as caught:
        Following()(X)
    assert "write gf.update(self.mean, value) by itself" in caught.value.fix


def test_a_result_in_the_place_of_a_submodule():
    class Net(nn.Module):
        def __init__(self) -> None:
            self.fc = nn.Linear(2, 2)

        def forward(self, x):
            self.fc = self.fc(x)
            return self.fc

    net = Net()
    with pytest.raises(gf.ArgumentError, match=r"^Net\.fc is a Linear, which") as caught:
        net(X)
    assert caught.value.fix == "give the result another name, such as y = self.fc(x)"
    with pytest.raises(gf.ArgumentError, match=r"^Net\.fc is a Linear, which") as caught:
        net.fc = abs
    assert caught.value.fix == "assign a Module or None, or write `del module.fc` before"
    assert list(net.state_dict()) == ["fc.weight", "fc.bias"]
    del net.fc
    net.fc = abs
    assert net.fc(-1) == 1
    net.fc = nn.Identity()
    net.fc = None
    assert net.children() == []


@pytest.mark.parametrize(
    "make", [lambda: nn.Sequential(nn.ReLU()), lambda: nn.ModuleList([nn.ReLU()])]
)
def test_items_of_containers(make):
    container = make()
    with pytest.raises(gf.ArgumentError, match="is no Module"):
        container[0] = np.zeros(2)
    with pytest.raises(gf.ArgumentError, match="is a ReLU, which"):
        setattr(container, "0", np.zeros(2))
    assert isinstance(container[0], nn.ReLU)


def test_an_array_that_the_first_call_would_replace():
    layer = nn.Linear(None, 3)
    layer.weight = np.ones((2, 3), np.float32)
    with pytest.raises(gf.ArgumentError, match=r"Linear\.weight was assigned before the first"):
        layer(X)


class Recurrent(nn.Module):
    """Keeps a tensor from one call to the next, which is of the first one's build."""

    def __init__(self) -> None:
        self.state = None

    def forward(self, x):
        self.state = x if self.state is None else x + self.state
        return self.state


def test_a_tensor_of_an_earlier_build():
    layer = Recurrent()
    layer.scale = gf.Variable(1.0)
    for call in (layer, gf.function(lambda x: layer(x))):
        layer.state = None
        call(X)
        with pytest.raises(gf.GraphError, match="belongs to another graph") as caught:
            call(X[0])
        assert "it belongs to an earlier build of" in caught.value.why
        assert "keep it in a gf.Variable, by gf.update(variable, value)" in caught.value.fix
        with pytest.raises(gf.GraphError, match="outside the graph") as caught:
            _ = layer.state + 1
        assert caught.value.fix.startswith("return it from the function")


# Names that a function assigns.

total = gf.Variable(1.0)


def test_a_global_variable_that_a_function_assigns():
    global total  # the mistake
    variable = total

    @gf.function
    def step(x):
        global total  # the mistake
        total = total + x
        return total

    try:
        with pytest.raises(gf.ArgumentError, match=r"step assigns a tensor to total, ") as caught:
            step(np.float32(2))
        assert caught.value.at.function == "step"
        assert "write gf.update(total, value), which each call does" in caught.value.fix
    finally:
        total = variable


def test_an_enclosed_variable_that_a_function_assigns():
    weight = gf.Variable(np.ones(2))

    @gf.function
    def step(x):
        nonlocal weight
        loss = gf.sum(x * weight)
        weight = weight - 0.1 * gf.grad(loss, weight)
        return loss

    with pytest.raises(gf.ArgumentError, match="assigns a tensor to weight, which is a Variable"):
        step(X)


class Net:
    """A class of the user's, with parameters of which graphfw does not know."""

    def __init__(self) -> None:
        self.weight = gf.Variable(np.ones(2))
        self.layers = [{"bias": gf.Variable(0.0)}, (gf.Variable(1.0),)]

    @gf.function
    def attribute(self, x):
        self.weight = self.weight - 0.1 * gf.mean(x, axis=0)
        return self.weight

    @gf.function
    def item(self, x):
        self.layers[0]["bias"] = self.layers[0]["bias"] + gf.mean(x)
        return x + self.layers[0]["bias"]

    @gf.function
    def shorter(self, x):
        del self.layers[1]
        return x + self.layers.pop()["bias"]


@pytest.mark.parametrize(
    ("method", "expression"), [("attribute", "self.weight"), ("item", "self.layers[0]['bias']")]
)
def test_a_variable_in_an_object_or_a_container(method, expression):
    with pytest.raises(gf.ArgumentError) as caught:
        getattr(Net(), method)(X)
    summary = f"Net.{method} assigns a tensor to {expression}, which is a Variable"
    assert caught.value.summary == summary
    assert caught.value.fix == f"write gf.update({expression}, value), which each call does"
    assert caught.value.at.function == method


def test_variables_that_a_function_takes_out_of_a_list():
    net = Net()
    np.testing.assert_array_equal(net.shorter(X), X)
    assert net.layers == []


def test_a_dict_of_parameters():
    params = {"w": gf.Variable(np.ones(2)), "self": None, "data": [0] * 5000}
    params["self"] = params

    @gf.function
    def rebinding(x):
        gradients = gf.grad(gf.sum(x * params["w"]), [params["w"]])
        params["w"] = params["w"] - 0.1 * gradients[0]
        return x

    @gf.function
    def train(x):
        loss = gf.sum(x * params["w"])
        gf.update(params["w"], params["w"] - 0.1 * gf.grad(loss, params["w"]))
        return loss

    assert train(X) > train(X)
    with pytest.raises(gf.ArgumentError, match=r"rebinding assigns a tensor to params\['w'\]"):
        rebinding(X)


def test_names_that_a_function_may_assign():
    weight, latest, made = gf.Variable(np.ones(2)), None, None

    @gf.function
    def step(x):
        nonlocal latest, made, weight
        latest = x * weight
        made = made or gf.Variable(1.0)
        weight = gf.Variable(np.zeros(2)) if weight is made else weight
        return latest + made

    np.testing.assert_array_equal(step(X), X + 1)
    np.testing.assert_array_equal(step(X), X + 1)
