"""Mistakes of users of other frameworks on their first day: the error says what to write."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
import pytest

import graphfw as gf

x = np.ones((8, 4), np.float32)
y = np.zeros(8, np.int64)
model = gf.nn.Sequential(gf.nn.Linear(4, 3))
optimizer = gf.optim.Adam(1e-3)
batches = gf.data.batches({"x": x, "y": y}, 4)
checkpoints = gf.train.Checkpoints("runs")
config = gf.models.GPT2Config()


@gf.function
def step(x, y):
    loss = gf.nn.cross_entropy(model(x), y)
    optimizer.minimize(loss)
    return loss


@gf.function
def accuracy(x, y):
    return {"accuracy": gf.nn.metrics.accuracy(model(x, training=False), y)}


trainer = gf.train.Trainer(step)
schedules = gf.optim.schedules

ARGUMENTS = [
    (lambda: schedules.exponential(0.1, decay=0.9), "schedules.exponential(0.1, factor=0.9)"),
    (
        lambda: schedules.exponential(0.1, decay_rate=0.9, decay_steps=10),
        "schedules.exponential(0.1, factor=0.9, every=10)",
    ),
    (lambda: model(x, train=True), "model(x, training=True)"),
    (lambda: model(x, is_training=False), "model(x, training=False)"),
    (lambda: model(x, deterministic=True), "model(x); without deterministic=: for deterministic="),
    (lambda: model(x, 1, 2), "its arguments are: x, training"),
    (
        lambda: gf.train.Trainer(step, max_epochs=3),
        "gf.train.Trainer(step); without max_epochs=: the data has them: gf.data.batches(data, 32,",
    ),
    (lambda: trainer.fit(batches, epochs=3), "trainer.fit(batches); without epochs=: the data has"),
    (lambda: trainer.fit(batches, batch_size=3), "trainer.fit(batches); without batch_size=: the "),
    (lambda: trainer.fit(batches, validation_data=1), "trainer.fit(batches, eval_data=1)"),
    (lambda: trainer.fit(x, y, epochs=3), "its arguments are: data, eval_data, every, resume, ahe"),
    (lambda: gf.data.batches(x, 4, num_epochs=2), "gf.data.batches(x, 4, epochs=2)"),
    (lambda: gf.data.batches(x, batch_size=4), "gf.data.batches(x, size=4)"),
    (lambda: gf.data.batches(x, 4, shuffle=True), "gf.data.batches(x, 4); without shuffle=: seed="),
    (lambda: model.save("a", metadata={}), "model.save('a'); without metadata=: a session's save"),
    (
        lambda: gf.function(len, check_finite=True),
        "gf.function(len); without check_finite=: write with gf.model_session_options(check_finite",
    ),
    (lambda: gf.function(len, jit_compile=True), "gf.function(len); without jit_compile=: functi"),
    (lambda: gf.data.batches(x, y, 4), "gf.data.batches((x, y), 4)"),
    (
        lambda: gf.train.Trainer(step, mode="max"),
        'gf.train.Trainer(step); without mode=: for mode="',
    ),
    (lambda: optimizer.apply_gradients(x, y), "optimizer.apply_gradients(zip(x, y))"),
    (lambda: step(batches[0]), "unpack the dict, for its entries are the arguments: write **batch"),
    (lambda: step((x, y)), "unpack the batch, for its elements are the arguments: write *batch"),
    (lambda: step(x), "its arguments are: x, y"),
    (
        lambda: gf.distributions.Categorical(x),
        "gf.distributions.Categorical(probs=x)",
    ),
    (lambda: gf.distributed.Mesh(4), "its arguments are: **axes; name the axes: gf.distributed.Me"),
    (
        lambda: gf.distributed.all_reduce(x),
        "its arguments are: x, axis_name, op, shards; axis_name",
    ),
    (lambda: gf.models.GPT2Config(hidden_size=8), "gf.models.GPT2Config(embed_dim=8)"),
    (lambda: gf.models.GPT2Config(n_embd=8, n_head=2), "gf.models.GPT2Config(embed_dim=8, num_he"),
]


@pytest.mark.parametrize(("mistake", "fix"), ARGUMENTS)
def test_arguments(mistake, fix):
    with pytest.raises(gf.CallError) as caught:
        mistake()
    assert caught.value.fix.startswith(fix)
    assert caught.value.at.file == __file__


ATTRIBUTES = [
    (lambda: step.profile(x, y), "write f.plan(*arrays).profile(*arrays)"),
    (lambda: step.save("a"), "write f.session.save(path), and f.session.restore(path)"),
    (lambda: step.session.profile(), "write session.compile(fetches, feeds=[…]).profile(*arrays)"),
    (lambda: optimizer.save("a"), "its state is variables, optimizer.variables, which train_step."),
    (lambda: optimizer.state_dict(), "its state is variables, optimizer.variables, which train_s"),
    (lambda: optimizer.param_groups, 'groups go to minimize(loss, [{"parameters": …, "lr": …}]); '),
    (lambda: checkpoints.restore(), "write session.restore(checkpoints.latest), or trainer.fit("),
    (lambda: checkpoints.load(), "write session.restore(checkpoints.latest), or trainer.fit("),
    (lambda: checkpoints.latst, 'did you mean "latest"?'),
    (lambda: trainer.evaluate(batches), "write gf.train.evaluate(function, data=batches)"),
    (lambda: trainer.history, "write training = trainer.fit(batches), with training.history"),
    (lambda: gf.train.Training().metrics, "write training.history"),
    (lambda: batches.shuffle(10), "write gf.data.batches(data, 32, seed=0)"),
    (lambda: batches.batch_size, "write gf.data.batches(data, 32, seed=0)"),
    (lambda: batches.map(len), "write (function(batch) for batch in batches)"),
    (lambda: model[0].weight.data, "leave it out: tensors don't change; write x.numpy()"),
    (lambda: model[0].weight.grad, "write gf.grad(loss, xs), or optimizer.minimize(loss)"),
    (lambda: schedules.constant(0.1).step(), "leave it out: the optimiser counts its updates"),
    (lambda: schedules.constant(0.1).get_last_lr(), "write optimizer.learning_rate(), a tensor"),
    (lambda: optimizer.get_lr(), "write optimizer.learning_rate(), a tensor"),
    (lambda: optimizer.update(x), "write optimizer.minimize(loss) in a @gf.function, or apply_gr"),
    (lambda: config.num_layer, 'did you mean "num_layers"?'),
]

NAMES = [
    (lambda: gf.set_detect_anomaly(True), "write with gf.model_session_options(check_finite=True)"),
    (lambda: gf.custom_vjp, "write @gf.custom_gradient above a function"),
    (lambda: gf.autograd.set_detect_anomaly(True), "write with gf.model_session_options(check_fin"),
    (lambda: gf.autograd.Function, "write @gf.custom_gradient above a function"),
    (lambda: gf.autograd.grad(x, [x]), "gf.grad(x, [x])"),
    (lambda: gf.autograd, "write gf.grad(loss, xs), or optimizer.minimize(loss)"),
    (lambda: gf.nn.functional.softmax(x, dim=-1), "gf.softmax(x, axis=-1)"),
    (lambda: gf.nn.functional.no_name(x), "functions are in gf"),
    (
        lambda: gf.optim.lr_scheduler.StepLR(optimizer, step_size=10, gamma=0.1),
        "gf.optim.schedules.step_decay(lr, 10, 0.1)",
    ),
    (lambda: gf.losses.mse(x, x), "gf.nn.mse(x, x)"),
    (lambda: gf.jnp.zeros(3, 4), "gf.zeros((3, 4))"),
    (lambda: gf.distributons.Normal(0, 1), 'did you mean "distributions"?'),
    (lambda: gf.utils.data.DataLoader(x), "write gf.data.batches("),
    (
        lambda: gf.transforms.random_rotation(x, 10),
        "write gf.nn.augment.random_affine(x, degr",
    ),
    (lambda: gf.nn.augment.random_rotation(x, 10), "write gf.nn.augment.random_affine(x, degrees="),
    (lambda: gf.distributed.init(), "write mesh = gf.distributed.Mesh(data=-1), with mesh.rank"),
    (lambda: gf.nn.metrics.f1_score(y, x), "gf.nn.metrics.f1(x, y)"),
    (lambda: gf.nn.metrics.roc_auc_score(y, x[:, 0]), "gf.nn.metrics.roc_auc(x[:, 0], y)"),
    (lambda: gf.summary(model, (4,)), "write print(model), or model.summary("),
    (lambda: gf.train.early_stopping(3), "write gf.train.Trainer(…, patience=5)"),
]


@pytest.mark.parametrize(("mistake", "fix"), ATTRIBUTES + NAMES)
def test_attributes_and_names(mistake, fix):
    with pytest.raises(gf.UnknownNameError) as caught:
        mistake()
    assert caught.value.fix.startswith(fix)
    assert caught.value.at.file == __file__


MODULES = [
    (
        lambda: gf.onnx.export,
        "write gf.onnx.save(graph, fetches, path); of a model: with model.session.graph: "
        "y = model(gf.placeholder(shape)), and gf.onnx.save(model.session.graph, y, path, "
        "session=model.session)",
    ),
    (lambda: gf.onnx.load_model, "write gf.onnx.load(path)"),
    (lambda: gf.onnx.lod, 'did you mean "load"?'),
    (
        lambda: gf.load,
        "write session.restore(path), model.load_pytorch(session, path) or gf.onnx.load(path)",
    ),
    (lambda: gf.random.random((3,)), "gf.random.uniform((3,))"),
    (
        lambda: gf.nn.utils.clip_grad_norm_,
        "the optimiser clips: gf.optim.Adam(lr, clip_norm=1.0), or clip_value=1.0",
    ),
]


@pytest.mark.parametrize(("mistake", "fix"), MODULES)
def test_names_of_one_module(mistake, fix):
    pytest.importorskip("onnx")
    with pytest.raises(gf.UnknownNameError) as caught:
        mistake()
    assert caught.value.fix == fix


def test_a_model_is_told_how_to_become_onnx():
    pytest.importorskip("onnx")
    for mistake in (lambda: gf.onnx.save(model, "a"), lambda: gf.onnx.save(model, x, "a")):
        with pytest.raises(gf.GraphfwError) as caught:
            mistake()
        assert "with model.session.graph: y = model(gf.placeholder(shape))" in caught.value.fix


FROZEN = [
    (optimizer, "lr", "make it with lr=rate, where rate = gf.Variable(1e-3, trainable=False)"),
    (optimizer, "learning_rate", "make it with lr=rate, where rate = gf.Variable("),
    (optimizer, "weight_decay", "make another optimiser, with weight_decay=…"),
    (optimizer, "weight_decai", 'did you mean "weight_decay"?'),
    (gf.optim.EMA(optimizer), "lr", "make it with lr=rate, where rate = gf.Variable("),
    (trainer, "monitor", "make another trainer, with monitor=…"),
    (trainer, "patienc", 'did you mean "patience"?'),
    (config, "num_layers", "write config = dataclasses.replace(config, num_layers=…), before the"),
]


@pytest.mark.parametrize(("owner", "name", "fix"), FROZEN)
def test_options_that_are_set(owner, name, fix):
    before = dict(vars(owner))
    with pytest.raises(gf.UnknownNameError, match=f"doesn't change: {name} can't be set") as caught:
        setattr(owner, name, 0.1)
    assert caught.value.fix.startswith(fix)
    assert vars(owner) == before


def test_what_does_not_change_is_copied_and_subclassed():
    class Own(gf.optim.SGD):
        def __init__(self):
            super().__init__(0.5)
            self.note = "own"

    @dataclasses.dataclass(frozen=True, eq=False)
    class Scaled(gf.optim.SGD):
        factor: float = 2.0

    class OwnTrainer(gf.train.Trainer):
        def __init__(self):
            super().__init__(step)
            self.note = "own"

    assert Own().note == OwnTrainer().note == "own"
    with pytest.raises(gf.UnknownNameError):
        Own().lr = 0.1
    with pytest.raises(gf.UnknownNameError, match="factor can't be set"):
        Scaled(0.1).factor = 3.0
    with pytest.raises(gf.UnknownNameError, match="lr can't be set"):
        del Scaled(0.1).lr
    assert pickle.loads(pickle.dumps(config)) == copy.copy(config) == config
    assert dataclasses.replace(config, num_layers=2).num_layers == 2
    assert dataclasses.replace(optimizer, lr=0.5).lr == 0.5


def test_a_rate_that_is_assigned_changes_the_steps():
    """As the error of `optimizer.lr = …` says."""
    rate, w = gf.Variable(0.0, trainable=False), gf.Variable(np.ones(2, np.float32))
    own = gf.optim.SGD(rate)

    @gf.function
    def train(x):
        loss = gf.sum(w * x)
        own.minimize(loss)
        return loss

    train(x[0, :2])
    assert w.numpy().tolist() == [1, 1]
    rate.assign(0.5)
    train(x[0, :2])
    assert w.numpy().tolist() == [0.5, 0.5]


def test_the_metric_to_monitor_is_named():
    own = gf.train.Trainer(step, evaluation=accuracy, monitor="eval/accuracy", progress=False)
    with pytest.raises(gf.ArgumentError) as caught:
        own.fit(batches, eval_data=batches)
    assert caught.value.fix == 'did you mean "accuracy"?; the metrics are: accuracy, loss'


def test_data_of_an_evaluation_is_named():
    with pytest.raises(gf.ArgumentError) as caught:
        gf.train.evaluate(accuracy, batches)
    assert caught.value.fix == "write gf.train.evaluate(function, data=batches)"


def test_arguments_of_gradients_and_batches():
    @gf.function
    def train(x, y):
        return gf.grad(gf.nn.cross_entropy(model(x), y), model)

    with pytest.raises(gf.ArgumentError, match="xs=a Sequential is neither") as caught:
        train(x, y)
    assert caught.value.fix == "write model.parameters()"
    with pytest.raises(gf.DTypeError) as caught:
        step(*batches[0])
    assert caught.value.fix == 'give numbers, not a name: an entry of a dict is batch["x"]'
    with pytest.raises(gf.FeedError) as caught:
        trainer.fit((x, y))
    assert "gf.data.batches((x, y), 32) makes batches" in caught.value.fix


def test_a_method_call_is_to_be_called_forward():
    class Net(gf.nn.Module):
        def call(self, x):
            return x

    with pytest.raises(gf.GraphError) as caught:
        Net()(x)
    assert caught.value.fix == "name its method forward, in place of call"


def test_gradients_of_variables_outside_of_graphs_are_for_a_function():
    w = gf.Variable(np.ones(3, np.float32))
    with pytest.raises(gf.GradientError) as caught:
        gf.grad(gf.sum(w * w), w)
    assert "in a function with @gf.function above it" in caught.value.fix


def test_dims_of_a_function_have_the_names_of_its_arguments():
    add = gf.function(lambda left, right: left + right)
    with pytest.raises(gf.FeedError, match=r"the dim `left\.shape\[0\]` is 8 in") as caught:
        add.plan(x, x)(x, x[:5])
    assert "left.shape[0]" in caught.value.fix
    nested = gf.function(lambda batch, _: batch["a b"] + batch["ﬁ"])
    arrays = {"a b": x, "ﬁ": x, 7: x[:3]}
    assert str(nested.result_types(arrays, x[:5])) == "float32[_batch_a_b_0, _batch_a_b_1]"
    np.testing.assert_array_equal(nested(arrays, x[:5]), x + x)


def test_layers_of_code_without_a_module_name_are_made():
    """As of `exec` without a `__name__`."""
    namespace = {"gf": gf}
    lines = [
        "class Net(gf.nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        "        self.layer = gf.nn.Linear(4, 3)",
    ]
    exec("\n".join(lines), namespace)
    assert namespace["Net"]().layer.weight.shape == (4, 3)
