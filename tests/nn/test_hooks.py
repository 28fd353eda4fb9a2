"""Forward hooks: what they see and change, their order, their end, and copies of their modules."""

import copy
import gc
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, CallError, ShapeError


class Model(gf.nn.Module):
    def __init__(self) -> None:
        self.fc1, self.fc2 = gf.nn.Linear(4, 4), gf.nn.Linear(4, 2)

    def forward(self, x: Any, scale: float = 1.0, *, shift: float = 0.0) -> Any:
        return self.fc2(self.fc1(x)) * scale + shift


def doubled(module: gf.nn.Module, args: Any, output: gf.Tensor) -> gf.Tensor:
    return output * 2


@pytest.fixture(autouse=True)
def graph():
    with gf.Graph() as g:
        yield g


def test_it_sees_the_call_and_leaves_the_output():
    model, x, seen = Model(), gf.placeholder(("batch", 4)), []
    model.register_forward_hook(lambda *call: seen.append(call))
    y = model(scale=2.0, x=x, shift=1.0)
    ((module, args, output),) = seen
    assert module is model
    assert args == (x, 2.0)
    assert output is y


def test_hooks_change_the_output_in_order(graph: gf.Graph):
    layer, x = gf.nn.ReLU(), gf.placeholder((3,), gf.float64, name="x")
    first = layer.register_forward_hook(doubled)
    layer.register_forward_hook(lambda module, args, output: output + 1)
    layer.register_forward_hook(lambda module, args, output: None)
    both = layer(x)
    first.remove()
    first.remove()
    one = layer(x)
    layer.register_forward_hook(doubled)
    last = layer(x)
    with gf.Session(graph) as session:
        found = session.run([both, one, last], {x: np.array([-1.0, 2.0, 3.0])})
    np.testing.assert_array_equal(found, [[1, 5, 7], [1, 3, 4], [2, 6, 8]])


def test_hooks_of_nested_modules_and_several_calls():
    model, order = Model(), []
    for path, module in model.named_modules():
        module.register_forward_hook(lambda m, args, output, path=path: order.append(path))
    x = gf.placeholder((1, 4))
    model(x)
    model(x)
    assert order == ["fc1", "fc2", ""] * 2


def test_intermediate_outputs_are_fetched(graph: gf.Graph):
    model, x, outputs = Model(), gf.placeholder(("batch", 4), name="x"), {}
    for path, module in model.named_modules():
        module.register_forward_hook(lambda m, args, y, path=path: outputs.update({path: y}))
    model(x)
    with gf.Session(graph) as session:
        found = session.run(outputs, {x: np.ones((5, 4), np.float32)})
        weight, bias = session[model.fc1.weight], session[model.fc1.bias]
    np.testing.assert_allclose(found["fc1"], np.ones((5, 4)) @ weight + bias, rtol=1e-6)
    assert found[""].shape == (5, 2)


def test_the_end_of_a_block_removes_it():
    layer, x = gf.nn.ReLU(), gf.placeholder((3,))
    with layer.register_forward_hook(doubled) as hook:
        assert layer(x).node.op.name == "multiply"
        assert repr(hook) == "<ForwardHook doubled>"
        assert not hook.is_removed
    assert layer(x).node.op.name == "relu"
    assert hook.is_removed
    assert repr(hook) == "<ForwardHook removed>"


def test_what_a_hook_makes_belongs_to_the_layer(graph: gf.Graph):
    model, flags = Model(), []

    def note(module: gf.nn.Module, args: Any, output: gf.Tensor) -> gf.Tensor:
        flags.append(module.training)
        return gf.identity(output, name="seen")

    model.fc1.register_forward_hook(note)
    model(gf.placeholder((1, 4)), training=False)
    model.eval()
    with gf.name_scope("again"):
        model(gf.placeholder((1, 4)))
    assert flags == [False, False]
    for name in ("model.fc1.seen", "again.model.fc1.seen"):
        assert graph.find(name).name == name


def test_inside_of_scan_and_vmap_and_with_gradients(graph: gf.Graph):
    layer, x = gf.nn.Linear(2, 2), gf.placeholder(("time", 2), name="x")
    layer.register_forward_hook(lambda module, args, output: gf.tanh(output))
    carry, _ = gf.scan(lambda c, row: (layer(c + row), ()), x[0], x)
    mapped = gf.vmap(layer)(x)
    loss = gf.sum(carry) + gf.sum(mapped)
    slope = gf.grad(loss, layer.weight)
    values = np.ones((3, 2), np.float32)
    with gf.Session(graph) as session:
        found, got = session.run([mapped, slope], {x: values})
        weight, bias = session[layer.weight], session[layer.bias]
    np.testing.assert_allclose(found, np.tanh(values @ weight + bias), rtol=1e-5)
    assert np.isfinite(got).all()


def test_summaries_and_first_calls_have_hooks():
    layer = gf.nn.Linear(None, 3)
    layer.register_forward_hook(lambda module, args, output: output[0])
    assert layer.summary((5, 4)).rows[0].output.shape == (3,)
    assert layer(gf.placeholder((5, 4))).shape == (3,)


def test_copies_have_hooks_of_their_own():
    recorder: list[Any] = []
    model, x = Model(), gf.placeholder((1, 4))
    noting = model.fc1.register_forward_hook(lambda *call: recorder.append(call[0]))
    model.register_forward_hook(doubled)
    other = copy.deepcopy(model)
    noting.remove()
    other(x)
    assert recorder == [other.fc1]
    model(x)
    assert len(recorder) == 1


def test_pickled_modules_keep_hooks():
    model = Model()
    model.register_forward_hook(doubled)
    loaded = pickle.loads(pickle.dumps(model))
    with loaded._names.graph:
        assert loaded(gf.placeholder((1, 4))).node.op.name == "multiply"
    model.register_forward_hook(lambda module, args, output: None)
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(model)


def test_a_module_with_a_hook_is_gone_when_it_is_dropped():
    gc.disable()
    try:
        layer = gf.nn.ReLU()
        hook = layer.register_forward_hook(doubled)
        known = weakref.ref(layer)
        del layer
        assert known() is None
    finally:
        gc.enable()
    hook.remove()


# Mistakes.


def test_what_is_no_hook_is_refused():
    model, x = Model(), gf.placeholder((1, 4))
    with pytest.raises(ArgumentError, match="register_forward_hook: fn is an int, not a function"):
        model.register_forward_hook(3)
    model.register_forward_hook(lambda output: output)
    with pytest.raises(CallError, match="fn is called with 3 arguments") as caught:
        model(x)
    assert "fn(module, args, output)" in str(caught.value)


def test_errors_in_hooks_name_the_layer():
    model, x = Model(), gf.placeholder((1, 4))
    model.fc1.register_forward_hook(lambda module, args, output: output + gf.ones(3))
    with pytest.raises(ShapeError) as caught:
        model(x)
    assert caught.value.layer == "model.fc1"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("register_buffer", "gf.Variable(value, trainable=False)"),
        ("register_forward_pre_hook", "whose forward changes the arguments"),
        ("register_full_backward_hook", "gf.custom_gradient"),
        ("register_state_dict_pre_hook", "load_state_dict takes"),
    ],
)
def test_other_registrations_say_what_to_write(name: str, words: str):
    with pytest.raises(gf.UnknownNameError) as caught:
        getattr(Model(), name)
    assert words in caught.value.fix
