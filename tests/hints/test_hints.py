"""Names and arguments of other frameworks: the error says what to write."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys

import numpy as np
import pytest

import graphfw as gf

a = b = x = gf.ones((2, 3))
image = np.ones((2, 3))
softened = gf.softmax


def str_of(parameter):
    return parameter if isinstance(parameter, str) else ""


CALLS = [
    (lambda: gf.softmax(x, dim=-1), "gf.softmax(x, axis=-1)"),
    (lambda: softened(x, dim=-1), "softened(x, axis=-1)"),
    (lambda: gf.sum(x, dim=0), "gf.sum(x, axis=0)"),
    (lambda: gf.sum(x, 0, True), "gf.sum(x, axis=0, keepdims=True)"),
    (lambda: gf.sum(input=x, dim=0), "gf.sum(x, axis=0)"),
    (lambda: gf.zeros(3, 4), "gf.zeros((3, 4))"),
    (lambda: gf.zeros(3, 4, gf.int32), "gf.zeros((3, 4), dtype=gf.int32)"),
    (lambda: gf.zeros((3, 4), "float64"), "gf.zeros((3, 4), dtype='float64')"),
    (lambda: gf.zeros((3, 4), "f4"), "its arguments are: shape, dtype, device"),
    (lambda: gf.full(2, 3, 1.0), "gf.full((2, 3), 1.0)"),
    (lambda: gf.concat(a, b), "gf.concat([a, b])"),
    (lambda: gf.concat([a, b], 1), "gf.concat([a, b], axis=1)"),
    (lambda: gf.stack(a, b, dim=1), "gf.stack([a, b], axis=1)"),
    (lambda: gf.reshape(x, 2, 3), "gf.reshape(x, (2, 3))"),
    (lambda: gf.permute_dims(x, 0, 1), "gf.permute_dims(x, (0, 1))"),
    (
        lambda: gf.scaled_dot_product_attention(a, a, a, mask=b),
        "gf.scaled_dot_product_attention(a, a, a, b)",
    ),
    (lambda: gf.nn.cross_entropy(x, target=a), "gf.nn.cross_entropy(x, a)"),
    (lambda: gf.ones_like(x, requires_grad=True), "gf.ones_like(x); without requires_grad=: "),
    (lambda: gf.max(a, b), "gf.maximum(a, b)"),
    (lambda: gf.max(a, 0), "gf.max(a, axis=0)"),
    (lambda: gf.max(a, dim=1), "(gf.max(a, axis=1), gf.argmax(a, axis=1))"),
    (lambda: gf.where(a), "gf.nonzero(a)"),
    (lambda: gf.std(a, dim=1), "gf.std(a, axis=1, correction=1)"),
    (lambda: gf.std(a, ddof=1), "gf.std(a, correction=1)"),
    (lambda: gf.round(a, decimals=2), "gf.round(a * 10 ** 2) / 10 ** 2"),
    (lambda: gf.split(a, [1, 2], dim=1), "gf.split(a, [sum([1, 2][:n]) for n in range(1, len("),
    (lambda: gf.squeeze(a), "its arguments are: x, axis; say which dims of size 1: axis=0"),
    (lambda: gf.index_add(a, 0, b, a), "gf.index_add(a, (slice(None),) * 0 + (b,), a)"),
    (lambda: gf.grad(str_of), "its arguments are: y, xs, grad_y, missing; the gradient of a func"),
    (lambda: gf.random.normal(0, 1, size=(3, 4)), "gf.random.normal((3, 4), 0, 1)"),
    (lambda: gf.random.gamma(2.0, 1.0, size=3), "gf.random.gamma(3, 2.0, 1.0)"),
    (lambda: list(map(gf.zeros, [3], [4])), "gf.zeros((3, 4))"),
    (lambda: gf.sum(*[x, 0]), "gf.sum(x, axis=0)"),
]

NAMES = [
    (lambda: gf.cat([a, b], dim=1), "gf.concat([a, b], axis=1)"),
    (lambda: gf.tensor([1, 2]), "gf.asarray([1, 2])"),
    (lambda: gf.clamp(x, min=0), "gf.clip(x, min=0)"),
    (lambda: gf.nn.relu(x), "gf.relu(x)"),
    (lambda: gf.nn.Dense(64), "write gf.nn.Linear(…); its arguments are: in_features, out_feat"),
    (lambda: gf.nn.CrossEntropyLoss(), "write gf.nn.cross_entropy(…); its arguments are: logits"),
    (lambda: gf.nn.functional.relu(x), "gf.relu(x)"),
    (lambda: gf.optim.nnls(), "not in graphfw: scipy.optimize.minimize"),
    (lambda: gf.optim.lbfgs(1.0, memory_size=5), "gf.optim.LBFGS(1.0, history_size=5)"),
    (lambda: gf.optim.trace(0.9), "gf.optim.transforms.trace(0.9)"),
    (lambda: gf.linalg.solv(x, x), 'did you mean "solve"?'),
    (lambda: gf.linalg.expm(x), "gf.linalg.matrix_exp(x)"),
    (lambda: gf.index_select(x, 1, a), "gf.take(x, a, axis=1)"),
    (lambda: gf.nn.embedding(a, b), "gf.take(b, a, axis=0)"),
    (lambda: gf.fft.rfft2(x), "gf.fft.rfftn(x, axes=(-2, -1))"),
    (lambda: gf.nn.init.kaiming_normal_(x), "write gf.Variable(gf.nn.init.he_normal, shape=…)"),
    (lambda: gf.random.lognormal(0, 2, size=3), "gf.exp(gf.random.normal(3, 0, 2))"),
    (lambda: gf.random.default_rng(0), "the seed is the session's: gf.Session(g, seed=…)"),
    (
        lambda: gf.optim.linear_schedule(1.0, 0.0, 10),
        "gf.optim.schedules.linear(lr=1.0, final=0.0, steps=10)",
    ),
    (lambda: gf.cat((a, b), 1), "gf.concat((a, b), axis=1)"),
    (lambda: gf.linalg.multi_dot([a, b, a]), "a @ b @ a"),
    (lambda: gf.around(a, 2), "gf.round(a * 10 ** 2) / 10 ** 2"),
    (lambda: gf.div(a, b, rounding_mode="floor"), "a // b"),
    (lambda: gf.amax(a, dim=1), "gf.max(a, axis=1)"),
    (lambda: gf.gather(a, dim=1, index=b), "gf.take_along_axis(a, b, axis=1)"),
    (lambda: gf.addmm(a, a, b, alpha=2), "1 * a + 2 * (a @ b)"),
    (lambda: gf.unique(a, return_counts=True), "gf.unique_counts(a)"),
    (lambda: gf.ptp(a), "gf.max(a) - gf.min(a)"),
    (
        lambda: gf.ptp(a, axis=0, out=b),
        "gf.max(a, axis=0) - gf.min(a, axis=0); without out=: tensors",
    ),
    (
        lambda: gf.unflatten(a, -1, (3, 1)),
        "gf.reshape(a, (*a.shape[:-1], 3, 1, *a.shape[-1:][1:]))",
    ),
    (lambda: gf.nn.pad(a, (1, 2)), "gf.pad(a, ((0, 0),) * (a.ndim - 1) + ((1, 2),))"),
    (lambda: gf.nn.interpolate(a, (4, 4), mode="bilinear"), "gf.resize(a, sizes=(4, 4), mode='lin"),
    (lambda: gf.optim.rmsprop(0.1, decay=0.9), "gf.optim.RMSprop(0.1, alpha=0.9)"),
    (lambda: gf.hanning(5), "a window is an array: gf.asarray(np.hanning(n))"),
    (lambda: gf.is_tensor(a), "write isinstance(x, gf.Tensor)"),
    (lambda: gf.half, "write gf.float16"),
    (lambda: gf.optim.adam(0.1, b1=0.5), "gf.optim.Adam(0.1, betas=(0.5, 0.999))"),
    (lambda: gf.optim.adamw(0.1, weight_decay=1), "gf.optim.AdamW(0.1, weight_decay=1)"),
    (lambda: gf.optim.amsgrad(0.1), "gf.optim.Adam(0.1, amsgrad=True)"),
    (
        lambda: gf.optim.adamaxw(0.1, weight_decay=1),
        "gf.optim.Adamax(0.1, weight_decay=1, decoupled_weight_decay=True)",
    ),
    (lambda: gf.optim.lars(0.1, trust_coefficient=1), "gf.optim.LARS(0.1, trust=1)"),
    (
        lambda: gf.optim.lookahead(optimizer, sync_period=6, slow_step_size=0.5),
        "gf.optim.Lookahead(optimizer, k=6, alpha=0.5)",
    ),
    (lambda: gf.optim.swa_utils, "write optimizer = gf.optim.EMA(gf.optim.Adam(lr)), or SWA"),
    (lambda: gf.optim.multi_transform({}, {}), 'write minimize(loss, [{"parameters": body, "opti'),
    (
        lambda: gf.optim.cosine_decay_schedule(1.0, 9, 0.1),
        "gf.optim.schedules.cosine(1.0, 9, final",
    ),
    (
        lambda: gf.optim.schedules.CosineAnnealingWarmRestarts(optimizer, 9, T_mult=2),
        "gf.optim.schedules.cosine_restarts(lr, 9, growth=2)",
    ),
    (
        lambda: gf.optim.CyclicLR(optimizer, 0.1, max_lr=0.5, step_size_up=9),
        "gf.optim.schedules.cyclic(0.1, 0.5, 9)",
    ),
    (
        lambda: gf.optim.schedules.SequentialLR(optimizer, [0.1, 0.2], milestones=[9]),
        "gf.optim.schedules.join([0.1, 0.2], [9])",
    ),
    (
        lambda: gf.optim.join_schedules([0.1, 0.2], [9]),
        "gf.optim.schedules.join([0.1, 0.2], [9])",
    ),
    (lambda: gf.optim.schedules.StepLR(a, 10), "gf.optim.schedules.step_decay(lr, 10)"),
    (lambda: gf.nn.Conv2D(8, 3, 2), "write gf.nn.Conv2d(…); its arguments are: in_channels, out_"),
]


@pytest.mark.parametrize(("mistake", "fix"), CALLS, ids=str_of)
def test_arguments(mistake, fix):
    with pytest.raises(gf.CallError) as caught:
        mistake()
    assert isinstance(caught.value, TypeError)
    assert caught.value.fix.startswith(fix)
    assert (caught.value.at.file, caught.value.at.line) == _line_of(mistake, caught.value)


@pytest.mark.parametrize(("mistake", "fix"), NAMES, ids=str_of)
def test_names(mistake, fix):
    with pytest.raises(gf.UnknownNameError) as caught:
        mistake()
    assert isinstance(caught.value, AttributeError)
    assert caught.value.fix.startswith(fix)
    assert pickle.loads(pickle.dumps(caught.value)).name == caught.value.name


def _line_of(mistake, error):
    lines, first = inspect.getsourcelines(mistake)
    return __file__, error.at.line if first <= error.at.line < first + len(lines) else None


def test_an_error_from_inside_of_a_call_stays_what_it_is():
    with pytest.raises(TypeError, match="broken") as caught:
        gf.cond(gf.asarray(True), _broken, _broken)
    assert not isinstance(caught.value, gf.GraphfwError)


def _broken():
    raise TypeError("broken")


def test_python_looks_for_names_as_in_any_module():
    assert not hasattr(gf, "cat")
    assert getattr(gf, "cat", None) is None
    assert set(dir(gf)) == set(gf.__all__)
    assert inspect.unwrap(gf.nn.Linear) is gf.nn.Linear
    with pytest.raises(ImportError) as caught:
        from graphfw import cat  # noqa: F401  the import is the mistake
    assert caught.value.fix.startswith("write gf.concat(…)")
    namespace = {}
    exec("from graphfw.nn import *", namespace)
    assert namespace["Linear"] is gf.nn.Linear


def test_the_table_is_loaded_by_the_first_error():
    code = "import sys, graphfw; print('graphfw.hints.tables' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


LAYERS = {
    name: member
    for name in gf.nn.__all__
    if inspect.isclass(member := getattr(gf.nn, name)) and issubclass(member, gf.nn.Module)
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_have_signatures(name):
    parameters = inspect.signature(LAYERS[name]).parameters
    assert "name" in parameters
    assert not {"args", "kwargs"} & parameters.keys()


ATTRIBUTES = [
    (lambda: model.to("cuda"), "the session chooses the machine: gf.Session(g, executor=…)"),
    (lambda: model.zero_grad(), "leave it out: gradients are made in the graph"),
    (lambda: model.generate(x), "write gf.nn.generate(model, tokens, max_new_tokens)"),
    (lambda: model.save_pretrained("x"), "write model.save_pytorch(session, path, names="),
    (lambda: model.fit(x), "write a loop of calls of a @gf.function"),
    (lambda: model.paramters(), 'did you mean "parameters"?'),
    (lambda: session.fit(x), "write session.run([loss, train], feeds) for each batch"),
    (lambda: session.predict(x), "write session.run(model(x, training=False), feeds)"),
    (lambda: session.get_inputs(), "write [(x.name, x.shape) for x in session.graph.placeholders]"),
    (lambda: session.get_providers(), "write session.executor"),
    (lambda: session.eval(x), "write session.run(model(x, training=False), feeds)"),
    (lambda: session.as_default(), "write with gf.Session(g) as session:"),
    (lambda: session.stat_dict(), 'did you mean "state_dict"?'),
    (lambda: graph.as_default(), "write with g: … with the functions of gf"),
    (lambda: graph.get_tensor_by_name("rows:0"), "write g.find(name)"),
    (lambda: graph.run(x), "write gf.Session(g).run(fetches, feeds)"),
    (lambda: graph.initializer, "write g.variables, and g.constants()"),
    (lambda: graph.node, "write g.nodes"),
    (lambda: plan.call(image), "write plan(*arrays)"),
    (lambda: plan.memory_analysis(), "write plan.memory()"),
    (lambda: plan.explian(), 'did you mean "explain"?'),
    (lambda: halved.lower(image), "write f.plan(*arrays)"),
    (lambda: optimizer.step(), "write optimizer.minimize(loss) in a @gf.function"),
    (lambda: optimizer.zero_grad(), "leave it out: gradients are made in the graph"),
    (lambda: x.sum(0).exp(), "gf.exp(x.sum(0))"),
    (lambda: x.view(3, -1), "x.reshape(3, -1)"),
    (lambda: x.view(*[3, 2]), "x.reshape(*[3, 2])"),
    (lambda: x.permute((1, 0)), "gf.permute_dims(x, (1, 0))"),
    (lambda: x.permute(*(1, 0)), "gf.permute_dims(x, (*(1, 0),))"),
    (lambda: x.to(gf.float16), "x.astype(gf.float16)"),
    (lambda: x.to("cuda"), "write x.astype(dtype); the session chooses the machine"),
    (lambda: x.repeat(2, 3), "gf.tile(x, (2, 3))"),
    (lambda: x.repeat(2), "PyTorch's is gf.tile(x, sizes), NumPy's is gf.repeat("),
    (lambda: x.detach().cpu(), "gf.stop_gradient(x)"),
    (lambda: x.cpu(), "leave it out: the session chooses the machine"),
    (lambda: x.sum(1).indices, "x itself holds the values; gf.argmax(x, axis=axis)"),
    (lambda: x.op, "write x.node"),
    (lambda: x.addmm(a, b), "x + a @ b"),
    (lambda: gf.multinomial(x, 3), "write gf.random.categorical(gf.log(p), shape=…)"),
    (lambda: x.multinomial(3), "write gf.random.categorical(gf.log(p), shape=…)"),
]

with gf.Graph() as graph:
    rows = gf.placeholder(("n", 3), name="rows")
    doubled = rows + rows
    model = gf.nn.Linear(3, 2)
    optimizer = gf.optim.SGD(0.1)
session = gf.Session(graph)


@pytest.mark.parametrize(("mistake", "fix"), ATTRIBUTES, ids=str_of)
def test_attributes(mistake, fix):
    with pytest.raises(gf.UnknownNameError) as caught:
        mistake()
    assert isinstance(caught.value, AttributeError)
    assert caught.value.fix.startswith(fix)


plan = session.compile(doubled, feeds=[rows])
halved = gf.function(lambda values, factor=0.5: values * factor)

RUNS = [
    (lambda: session.run(doubled, feed_dict={rows: image}), "session.run(doubled, feeds={rows: i"),
    (lambda: session.run(doubled, {rows: image}, True), "session.run(doubled, {rows: image}, host"),
    (lambda: session.load_state_dict({}, False), "session.load_state_dict({}, strict=False)"),
    (lambda: session.restore("a", map_location="cpu"), "session.restore('a'); without map_locati"),
    (lambda: gf.Session(graph, device="cuda"), "gf.Session(graph); without device=: write gf.Se"),
    (lambda: plan(rows=image), "give, in this order: rows"),
    (lambda: plan.explain(sizes=(2, 3)), "its arguments are: *shapes"),
    (lambda: model.parameters(recurse=True), "its arguments are: only, ignore"),
    (lambda: halved(image, scale=2.0), "its arguments are: values, factor"),
]


@pytest.mark.parametrize(("mistake", "fix"), RUNS, ids=str_of)
def test_arguments_of_runs(mistake, fix):
    with pytest.raises(gf.CallError) as caught:
        mistake()
    assert caught.value.fix.startswith(fix)


def test_who_asks_for_an_attribute_waits_for_no_search(monkeypatch):
    monkeypatch.setattr("graphfw.hints.names.look_up", None)
    for owner in (gf, gf.nn, x, model, optimizer, session, graph, plan, halved):
        assert not hasattr(owner, "zero_grads")


def test_libraries_that_ask_for_attributes_get_none():
    for owner in (x, model, optimizer, session, graph, plan, halved):
        assert not hasattr(owner, "zero_grad")
        assert getattr(owner, "_repr_html_", None) is None


def test_an_error_of_a_property_stays_what_it_is():
    class Broken(gf.nn.Module):
        @property
        def width(self):
            return self.missing

    with gf.Graph(), pytest.raises(AttributeError, match="a Broken has no attribute 'missing'"):
        Broken().width  # noqa: B018  asking is the mistake


VALUES = [
    (lambda: x.type(gf.float16), "x.astype(gf.float16)"),
    (lambda: gf.float32(3), "gf.asarray(3, dtype=gf.float32)"),
]


@pytest.mark.parametrize(("mistake", "fix"), VALUES, ids=str_of)
def test_values_are_no_methods(mistake, fix):
    with pytest.raises(gf.CallError) as caught:
        mistake()
    assert caught.value.fix == fix


def test_a_size_can_not_be_called():
    # By that libraries know PyTorch's tensors.
    assert not callable(x.size)


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("requires_grad", "gradients exist for every tensor"),
        ("grad", "write gf.grad(loss, xs)"),
        ("data", "leave it out: tensors don't change"),
        ("shape", "x.reshape(shape)"),
        ("dtype", "x.astype(dtype)"),
    ],
)
def test_attributes_that_are_set(name, fix):
    for owner in (x, model.weight):
        with pytest.raises(gf.UnknownNameError) as caught:
            setattr(owner, name, None)
        assert fix in caught.value.fix
    with pytest.raises(gf.UnknownNameError) as caught:
        model.weight.requires_grad = False
    assert caught.value.fix.startswith("gradients exist")


WORDS = [
    (lambda: gf.resize(gf.ones((1, 1, 2, 2)), 4, mode="bilinear"), 'use mode="linear"'),
    (lambda: gf.pad(x, 1, mode="replicate"), 'use mode="edge"'),
    (lambda: gf.pad(x, 1, mode="refelct"), 'use mode="reflect"'),
    (lambda: gf.gelu(x, approximate=True), 'use approximate="tanh"'),
    (lambda: gf.gelu(x, approximate=False), 'use approximate="none"'),
    (lambda: gf.broadcast_to(x, (4, -1, 3)), "write the dims themselves: [4, 2, 3]"),
    (lambda: gf.split(gf.arange(5), 2), "pass the positions to cut at: [3]"),
]


@pytest.mark.parametrize(("mistake", "fix"), WORDS, ids=str_of)
def test_words_and_sizes_of_others(mistake, fix):
    with pytest.raises(gf.GraphfwError) as caught:
        mistake()
    assert caught.value.fix == fix


MORE_CALLS = [
    (
        lambda: gf.optim.SGD(model.parameters(), lr=0.1),
        "gf.optim.SGD(lr=0.1); parameters go to the step: optimizer.minimize(loss, model.para",
    ),
    (lambda: gf.optim.Adam(learning_rate=0.1), "gf.optim.Adam(lr=0.1)"),
    (lambda: gf.optim.Muon(0.1, adjust_lr_fn="original"), "gf.optim.Muon(0.1, adjust_lr='origin"),
    (lambda: gf.optim.Adam(0.1, decoupled_weight_decay=True), "gf.optim.Adam(0.1); without decoup"),
    (lambda: gf.optim.Adam(0.1, beta_2=0.9), "gf.optim.Adam(0.1, betas=(0.9, 0.9))"),
    (lambda: optimizer.minimize(x, params=[a]), "optimizer.minimize(x, parameters=[a])"),
    (lambda: gf.optim.schedules.cosine(0.1, decay_steps=9), "gf.optim.schedules.cosine(0.1, steps"),
    (lambda: gf.Tensor([1, 2]), "gf.asarray([1, 2])"),
    (lambda: x.at[0].set(1, mode="drop"), "x.at[0].set(1); without mode=: an index that is out"),
    (lambda: x.at[0].add(1, indices_are_sorted=True), "x.at[0].add(1); without indices_are_sor"),
    (lambda: gf.Tensor(2, 3), "write gf.asarray(…)"),
    (lambda: x.sum(dim=1), "x.sum(axis=1)"),
    (lambda: x.mean(-1, True), "x.mean(-1, keepdims=True)"),
    (lambda: gf.random.normal(loc=0, size=(2, 3)), "gf.random.normal(mean=0, shape=(2, 3))"),
    (lambda: gf.random.uniform((2,), minval=0), "gf.random.uniform((2,), low=0)"),
    (lambda: gf.grad(x, wrt=[a]), "gf.grad(x, xs=[a])"),
    (lambda: gf.grad(x, [a], create_graph=True), "gf.grad(x, [a]); without create_graph=: grad"),
    (lambda: gf.vmap(gf.exp, in_dims=0), "gf.vmap(gf.exp, in_axes=0)"),
    (lambda: gf.placeholder(2, 3, 4, 5), "gf.placeholder((2, 3, 4, 5))"),
    (lambda: gf.nn.init.normal(stddev=0.1), "gf.nn.init.normal(std=0.1)"),
    (lambda: gf.nn.ReLU(inplace=True), "gf.nn.ReLU(); without inplace=: tensors don't change"),
    (lambda: gf.Variable([1.0], requires_grad=False), "gf.Variable([1.0], trainable=False)"),
    (
        lambda: gf.nn.Linear(3, 2, device="cuda"),
        'gf.nn.Linear(3, 2); without device=: write gf.Session(g, executor="cupy")',
    ),
]


@pytest.mark.parametrize(("mistake", "fix"), MORE_CALLS, ids=str_of)
def test_arguments_of_classes_and_methods(mistake, fix):
    with gf.Graph():
        test_arguments(mistake, fix)


def test_a_draw_needs_no_key():
    with pytest.raises(gf.UnknownNameError) as caught:
        gf.random.split(3)
    assert caught.value.fix.startswith("leave it out: draws have no keys, and a name pins a draw")


OPTIONS = [
    (lambda: gf.pad(x, 1, mode="replicate"), 'use mode="edge"'),
    (lambda: gf.pad(x, 1, mode="circular"), 'use mode="wrap"'),
    (lambda: gf.gelu(x, approximate=True), 'use approximate="tanh"'),
    (lambda: gf.nn.mse(x, x, reduction="average"), 'use reduction="mean"'),
    (lambda: gf.nn.mse(x, x, reduction=None), 'use reduction="none"'),
    (lambda: gf.jacobian(gf.exp, mode="fwd"), 'use mode="forward"'),
    (lambda: gf.nn.Conv2d(1, 1, 3, padding="SAME"), 'use padding="same"'),
    (lambda: gf.fft.fft(x, norm="orthonormal"), 'use norm="ortho"'),
    (lambda: gf.searchsorted(x, x, side=["left"]), 'use side="left"'),
    (lambda: gf.convolve(x, x, mode="half"), 'use one of "full", "valid", "same"'),
]


@pytest.mark.parametrize(("mistake", "fix"), OPTIONS, ids=str_of)
def test_words_that_are_arguments(mistake, fix):
    with gf.Graph(), pytest.raises(gf.ArgumentError, match=" is none of ") as caught:
        mistake()
    assert caught.value.fix == fix


@pytest.mark.parametrize(
    ("device", "fix"),
    [
        ("cuda", 'write gf.Session(g, executor="cupy")'),
        ("cuda:1", 'write gf.Session(g, executor="cupy:1")'),
        ("GPU", 'write gf.Session(g, executor="cupy")'),
        ("cpu", 'write gf.Session(g, executor="numpy")'),
        ("mps", 'not in graphfw: "mps" has no executor; write gf.Session(g, executor="numpy")'),
    ],
)
def test_devices(device, fix):
    with gf.Graph() as g, pytest.raises(gf.ExecutorError) as caught:
        gf.Session(g, executor=device)
    assert caught.value.fix == fix
    for mistake in (lambda: gf.zeros((2,), device=device), lambda: x.to_device(device)):
        with pytest.raises(gf.GraphfwError) as caught:
            mistake()
        assert caught.value.fix == fix


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("gf.concat(a, b)", "gf.concat([x1, x2])"),
        ("gf.reshape(a, 2, 1)", "gf.reshape(x, (2, 1))"),
        (
            "gf.optim.SGD([a], lr=0.1)",
            "SGD(lr=0.1); parameters go to the step: optimizer.minimize(loss, x1)",
        ),
    ],
)
def test_arguments_of_lines_without_a_source(line, fix):
    a = b = np.ones((2,), np.float32)
    with pytest.raises(gf.CallError) as caught:
        eval(line, {"gf": gf, "a": a, "b": b})
    assert caught.value.fix == fix
