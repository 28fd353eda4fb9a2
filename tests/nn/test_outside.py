"""Layers outside of graphs: made, called on arrays, looked at, saved and loaded."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.model_graph import ModelGraph


class Net(gf.nn.Module):
    def __init__(self, size: int = 8) -> None:
        self.fc1 = gf.nn.Linear(4, size)
        self.drop = gf.nn.Dropout(0.5)
        self.fc2 = gf.nn.Linear(size, 3)

    def forward(self, x: gf.Tensor) -> gf.Tensor:
        return self.fc2(self.drop(gf.relu(self.fc1(x))))


@pytest.fixture
def x(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((5, 4)).astype(np.float32)


def expected(net: Net, x: np.ndarray) -> np.ndarray:
    hidden = np.maximum(x @ net.fc1.weight.numpy() + net.fc1.bias.numpy(), 0)
    return hidden @ net.fc2.weight.numpy() + net.fc2.bias.numpy()


def test_a_layer_gives_numbers(x):
    layer = gf.nn.Linear(4, 2)
    y = layer(x)
    assert isinstance(y, np.ndarray)
    np.testing.assert_allclose(y, x @ layer.weight.numpy() + layer.bias.numpy(), rtol=1e-5)


def test_a_model_gives_numbers(x):
    net = Net()
    np.testing.assert_allclose(net(x, training=False), expected(net, x), rtol=1e-5, atol=1e-6)
    assert not np.array_equal(net(x), net(x)), "dropout draws anew in each call"
    net.eval()
    np.testing.assert_allclose(net(x), expected(net, x), rtol=1e-5, atol=1e-6)


def test_sizes_of_calls_may_differ(x):
    net = Net().eval()
    for count in (5, 2, 0, 1):
        assert net(x[:count]).shape == (count, 3)


def test_tensors_in_tensors_out(x):
    layer = gf.nn.Linear(4, 2)
    y = layer(gf.asarray(x))
    assert isinstance(y, gf.Tensor)
    np.testing.assert_array_equal(y.numpy(), layer(x))


def test_a_layer_without_variables(x):
    np.testing.assert_array_equal(gf.nn.ReLU()(x), np.maximum(x, 0))
    np.testing.assert_array_equal(gf.nn.ReLU()(gf.asarray(x)).numpy(), np.maximum(x, 0))


def test_structures(x):
    class Two(gf.nn.Module):
        def __init__(self) -> None:
            self.fc = gf.nn.Linear(4, 2)

        def forward(self, batch: dict[str, gf.Tensor], *, scale: float = 1.0) -> dict:
            return {"y": self.fc(batch["x"]) * scale, "n": None}

    model = Two()
    result = model({"x": x}, scale=2.0)
    assert result["n"] is None
    np.testing.assert_allclose(result["y"], 2 * model({"x": x})["y"], rtol=1e-6)


def test_wrong_shapes_are_errors_on_the_line(x):
    with pytest.raises(gf.ShapeError, match="contracting dims differ") as caught:
        Net()(x[:, :3])
    assert "use in_features=3" in str(caught.value)
    assert "test_outside.py" in str(caught.value)


def test_arguments_of_other_libraries_print_the_line_to_write(x):
    layer, gru = gf.nn.TransformerEncoderLayer(4, 2), gf.nn.GRU(4, 3)
    for call, fix in (
        (lambda: layer(x, attn_mask=x), "layer(x, mask=x)"),
        (lambda: layer(x, src_key_padding_mask=x), "layer(x); without src_key_padding_mask=: "),
        (lambda: layer(x, attn_mask=x, training=False), "TransformerEncoderLayer(x, mask=attn_"),
        (lambda: gru(x, hx=x), "gru(x, state=x)"),
        (lambda: layer(x, 1, 2, 3, 4), "its arguments are: x, mask, cache"),
    ):
        with pytest.raises(gf.CallError) as caught:
            call()
        assert caught.value.fix.startswith(fix)
        assert caught.value.at.file == __file__


def test_the_contents_are_shown():
    weight = gf.nn.Linear(1, 2).weight
    text = repr(weight)
    assert text.startswith('<Variable "linear.weight" float32[1, 2]\n[[')
    assert str(weight.numpy()[0, 0])[:6] in text
    assert not weight.numpy().flags.writeable
    with gf.Graph():
        assert repr(weight) == '<Variable "linear.weight" float32[1, 2]>'


def test_contents_are_values_outside():
    count = gf.Variable([1.0, 2.0])
    before = count * 2
    count.assign([5.0, 6.0])
    assert before.numpy().tolist() == [2.0, 4.0], "a value, which stays"
    assert (count * 2).numpy().tolist() == [10.0, 12.0]
    assert float(gf.sum(count)) == 11.0
    assert np.asarray(count).tolist() == [5.0, 6.0]
    assert [float(one) for one in count] == [5.0, 6.0]


def test_assign_checks():
    count = gf.Variable([1.0, 2.0])
    with pytest.raises(gf.ShapeError, match="is given the shape"):
        count.assign([1.0])
    assert count.numpy().tolist() == [1.0, 2.0]
    with gf.Graph(), pytest.raises(gf.GraphError, match="while a graph is built"):
        count.assign([1.0, 2.0])
    with gf.Graph():
        inside = gf.Variable([1.0, 2.0])
    with pytest.raises(gf.GraphError, match="has its contents in sessions"):
        inside.assign([1.0, 2.0])


def test_models_differ_and_a_seed_repeats_them():
    first, second = gf.nn.Linear(4, 4), gf.nn.Linear(4, 4)
    assert not np.array_equal(first.weight.numpy(), second.weight.numpy())
    gf.set_seed(3)
    a = [gf.nn.Linear(4, 4).weight.numpy(), Net().fc1.weight.numpy()]
    gf.set_seed(3)
    one = gf.nn.Linear(4, 4)
    net = Net()
    _ = net.fc2.weight.numpy()  # looking at them changes nothing
    both = gf.nn.Sequential(one, net)
    np.testing.assert_array_equal(a[0], both[0].weight.numpy())
    np.testing.assert_array_equal(a[1], both[1].fc1.weight.numpy())
    gf.set_seed(4)
    assert not np.array_equal(a[0], gf.nn.Linear(4, 4).weight.numpy())


@pytest.mark.parametrize("seed", [True, 1.0, "1", 2**63])
def test_seeds_that_are_none(seed):
    with pytest.raises(gf.ArgumentError, match="set_seed"):
        gf.set_seed(seed)


def test_parts_keep_their_contents_in_a_whole(x):
    first, second = gf.nn.Linear(4, 4), gf.nn.Linear(4, 2)
    before = second(first(x))
    both = gf.nn.Sequential(first, second)
    np.testing.assert_allclose(both(x), before, rtol=1e-6)
    assert first.weight.graph is second.weight.graph
    assert both.parameters()[0].name == "sequential.0.weight"
    assert both.session is first.session


def test_deferred_sizes(x):
    model = gf.nn.Sequential(gf.nn.Linear(None, 3), gf.nn.ReLU(), gf.nn.Linear(None, 2))
    assert model(x).shape == (5, 2)
    assert model[0].weight.shape == (4, 3)
    with pytest.raises(gf.ShapeError, match="contracting dims differ"):
        model(x[:, :3])


def test_copies_and_pickles(x):
    net = Net().eval()
    y = net(x)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net, protocol=5))):
        np.testing.assert_array_equal(other(x), y)
        other.fc1.weight.assign(np.zeros((4, 8), np.float32))
        np.testing.assert_array_equal(net(x), y)
        assert isinstance(other.fc1.weight.graph, ModelGraph)
    fresh = copy.deepcopy(Net())
    np.testing.assert_allclose(fresh(x, training=False), expected(fresh, x), rtol=1e-5, atol=1e-6)


def test_files(x, tmp_path):
    net, other = Net().eval(), Net().eval()
    net.save(tmp_path / "net.safetensors")
    other.load(tmp_path / "net.safetensors")
    np.testing.assert_array_equal(other(x), net(x))
    third = Net().eval()
    third.load_state_dict(net.state_dict())
    np.testing.assert_array_equal(third(x), net(x))
    net.save_pytorch(tmp_path / "theirs.safetensors")
    fourth = Net().eval()
    fourth.load_pytorch(tmp_path / "theirs.safetensors")
    np.testing.assert_array_equal(fourth(x), net(x))
    with pytest.raises(gf.CheckpointError):
        Net(7).load(tmp_path / "net.safetensors")


def test_a_function_goes_on_from_a_file_when_it_was_built(x, tmp_path):
    """Before it, a part of the variables is missing; the error says what makes them."""

    def made():
        net, optimizer = gf.nn.Linear(4, 1), gf.optim.Adam(1e-2)

        @gf.function
        def train(x):
            loss = gf.mean(net(x) ** 2)
            optimizer.minimize(loss)
            return loss

        return net, train

    path = tmp_path / "run.safetensors"
    first_net, first = made()
    first(x)
    first.session.save(path)
    net, train = made()
    for session in (train.session, net.session):
        before = session.state_dict()
        with pytest.raises(gf.CheckpointError, match="extra") as caught:
            session.restore(path)
        assert "call it, or function.plan(…)" in caught.value.fix
        assert session.state_dict().keys() == before.keys()
    train.plan(x)
    train.session.restore(path)
    np.testing.assert_array_equal(train(x), first(x))
    np.testing.assert_array_equal(net.weight.numpy(), first_net.weight.numpy())


def test_a_session_can_be_passed(tmp_path):
    net = Net()
    net.save(net.session, tmp_path / "net.safetensors")
    with gf.Graph():
        inside = Net()
    with pytest.raises(gf.GraphError, match="pass the session first"):
        inside.save(tmp_path / "net.safetensors")
    with pytest.raises(gf.GraphError, match="variables have their contents in sessions"):
        _ = inside.session


def test_in_a_graph_of_another_it_is_refused(x):
    net = Net()
    with gf.Graph():
        with pytest.raises(gf.GraphError, match="belongs to another graph") as caught:
            net(gf.placeholder((5, 4)))
        assert "@gf.function" in str(caught.value)


def test_graph_and_session_of_a_model(x):
    net = Net().eval()
    with net.fc1.weight.graph:
        inputs = gf.placeholder(("batch", 4), name="inputs")
        outputs = net(inputs)
    np.testing.assert_allclose(net.session.run(outputs, {inputs: x}), net(x), rtol=1e-6)


def test_models_are_collected(x):
    net = Net()
    net(x)
    known = weakref.ref(net), weakref.ref(net.fc1.weight.graph)
    del net
    gc.collect()
    assert known[0]() is None
    assert known[1]() is None


def test_summary(x):
    assert "Linear" in repr(Net().summary(("batch", 4)))


def test_hooks(x):
    net = Net()
    with net.fc1.register_forward_hook(lambda module, args, output: output * 0):
        hooked = net(x, training=False)
    np.testing.assert_allclose(hooked, np.broadcast_to(net.fc2.bias.numpy(), (5, 3)), atol=1e-6)


def test_adapters(x, tmp_path):
    model = gf.nn.Sequential(gf.nn.Linear(4, 4), gf.nn.ReLU(), gf.nn.Linear(4, 2))
    adapters = gf.nn.lora(model, "0", rank=2)
    optimizer = gf.optim.Adam(0.1)

    @gf.function
    def step(x: gf.Tensor) -> gf.Tensor:
        loss = gf.mean(model(x) ** 2)
        optimizer.minimize(loss)
        return loss

    before = model[0].weight.numpy()
    assert step(x) > step(x)
    np.testing.assert_array_equal(model[0].weight.numpy(), before)
    y = model(x)
    adapters.save(tmp_path / "adapters.safetensors")
    adapters.merge()
    np.testing.assert_allclose(model(x), y, rtol=1e-4, atol=1e-6)
    assert not np.array_equal(model[0].weight.numpy(), before)
    adapters.unmerge()
    np.testing.assert_array_equal(model(x), y)
    step(x)
    adapters.load(tmp_path / "adapters.safetensors")
    np.testing.assert_array_equal(model(x), y)


def test_texts_are_generated():
    class Model(gf.nn.Module):
        def __init__(self) -> None:
            self.embedding = gf.nn.Embedding(7, 8)
            self.decoder = gf.nn.TransformerEncoder(8, 2, num_layers=1, causal=True)
            self.head = gf.nn.Linear(8, 7)

        def init_cache(self, batch, max_length, **options):
            return self.decoder.init_cache(batch, max_length, **options)

        def forward(self, tokens, cache=None):
            hidden = self.embedding(tokens)
            if cache is None:
                return self.head(self.decoder(hidden))
            hidden, cache = self.decoder(hidden, cache=cache)
            return self.head(hidden), cache

    model = Model().eval()
    prompt = np.array([[1, 2], [3, 4]])
    made = gf.nn.generate(model, prompt, 4)
    assert isinstance(made, np.ndarray)
    expected = prompt
    for _ in range(4):
        token = np.argmax(model(expected)[:, -1], axis=-1)
        expected = np.concatenate([expected, token[:, None]], axis=1)
    np.testing.assert_array_equal(made, expected)
    np.testing.assert_array_equal(gf.nn.generate(model, gf.asarray(prompt), 4).numpy(), expected)
    beams = gf.nn.beam_search(model, prompt, 4, num_beams=2)
    assert beams.tokens.shape == (2, 2, 6)
    with gf.Graph(), pytest.raises(gf.GraphError, match="belongs to another graph"):
        gf.nn.generate(model, prompt, 4)


def test_a_function_of_a_model_says_what_to_write():
    weight = gf.nn.Linear(3, 1).weight
    with pytest.raises(gf.GraphError) as caught:
        gf.fori_loop(0, 3, lambda i, x: x + weight, gf.zeros((3, 1)))
    assert "@gf.function" in str(caught.value)


def test_hooks_and_adapters_that_come_later(x):
    net = Net().eval()
    both = gf.function(lambda x: net(x))
    y = net(x)
    np.testing.assert_array_equal(both(x), y)
    hook = net.register_forward_hook(lambda module, args, output: output + 1)
    for call in (net, both):
        np.testing.assert_allclose(call(x), y + 1, rtol=1e-5)
    hook.remove()
    for call in (net, both):
        np.testing.assert_array_equal(call(x), y)
    adapters = gf.nn.lora(net, "*", rank=2)
    for variable in adapters.parameters():
        variable.assign(np.ones(variable.shape, np.float32))
    for call in (net, both):
        assert np.abs(call(x) - y).max() > 0.1
    adapters.remove()
    for call in (net, both):
        np.testing.assert_array_equal(call(x), y)


DIFFERENTIATED = {
    "vjp": lambda f, x: gf.vjp(f, x),
    "jvp": lambda f, x: gf.jvp(f, (x,), (x,)),
    "jacobian": lambda f, x: gf.jacobian(f)(x),
    "hvp": lambda f, x: gf.hvp(lambda x: gf.sum(f(x)), (x,), (x,)),
    "nested": lambda f, x: gf.vjp(lambda x: gf.vjp(lambda y: y * 2, f(x))[0], x),
}


@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_differentiating_through_a_layer_is_no_zero(x, name):
    model, differentiated = gf.nn.Linear(4, 2), DIFFERENTIATED[name]
    for line in (lambda x: gf.tanh(model(x)), lambda x: gf.sum(x) + model(x * 2)):
        with pytest.raises(gf.GradientError, match="a layer's result is a constant") as caught:
            differentiated(line, gf.asarray(x))
        assert "@gf.function" in caught.value.fix
    differentiated(lambda x: x * gf.sum(model(gf.ones((1, 4)))), gf.asarray(x))


def test_a_function_differentiates_through_a_layer(x):
    model = gf.nn.Linear(4, 2)

    @gf.function
    def slopes(x):
        y, pullback = gf.vjp(model, x)
        return pullback(gf.ones_like(y))[0]

    sums = model.weight.numpy().sum(axis=1)
    np.testing.assert_allclose(slopes(x), [sums] * len(x), rtol=1e-5)
