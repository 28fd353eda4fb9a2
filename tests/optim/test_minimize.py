"""Steps of `minimize` and `apply_gradients`, and mistakes in their arguments."""

import re

import numpy as np
import pytest

import graphfw as gf
from graphfw import optim

# apply_gradients.


def test_apply_gradients():
    with gf.Graph() as g:
        norm = gf.nn.BatchNorm(2, affine=False)
        w = gf.Variable([1.0, 2.0], name="w")
        loss = gf.sum(norm(gf.ones((3, 2))) * w) + gf.sum(w)
        gradient = gf.grad(loss, w) * 2
        plain = optim.SGD(0.25).apply_gradients([(gradient, w)])
        carrying = optim.SGD(0.25).apply_gradients(zip([gradient], [w], strict=True), loss=loss)
    assert [v.name for v, _ in plain.pairs] == ["sgd.step", "w"]
    assert {v.name for v, _ in carrying.pairs} == {
        "sgd_1.step",
        "w",
        "batch_norm.running_mean",
        "batch_norm.running_var",
    }
    with gf.Session(g) as session:
        session.run(plain)
        np.testing.assert_allclose(session[w], [0.5, 1.5])


def test_apply_gradients_mistakes():
    with gf.Graph():
        w = gf.Variable([1.0, 2.0], name="w")
        gradient = gf.grad(gf.sum(w), w)
        cases = [
            ([(w, gradient)], "wrong way round"),
            ([gradient], "is no pair of a gradient and a variable"),
            ([(None, w)], "the gradient None is no tensor"),
            ([(gf.sum(gradient), w)], r'a gradient float32\[\] for "w", float32\[2\]'),
            ([(gradient, w), (gradient, w)], 'apply_gradients: "w" is in the parameters twice'),
            ([], "apply_gradients: the list of parameters is empty"),
        ]
        for pairs, text in cases:
            with pytest.raises(gf.ArgumentError, match=text):
                optim.SGD(0.1).apply_gradients(pairs)


# Which variables.


def test_default_parameters():
    with gf.Graph() as g:
        a, b = gf.Variable(1.0, name="a"), gf.Variable(1.0, name="b")
        gf.Variable(1.0, name="unused")
        fixed = gf.Variable(1.0, name="fixed", trainable=False)
        count = gf.Variable(1, name="count")
        target = gf.Variable(1.0, name="target")
        loss = b * a * fixed * gf.astype(count, gf.float32) - gf.stop_gradient(target)
        update = optim.SGD(0.1).minimize(loss)
    assert [v.name for v, _ in update.pairs] == ["sgd.step", "a", "b"]
    assert g.updates[-1] is update


def test_given_parameters():
    with gf.Graph():
        a, b = gf.Variable(1.0, name="a"), gf.Variable(1.0, name="b")
        for parameters in ([b], b, (v for v in [b]), [{"parameters": b}]):
            update = optim.SGD(0.1).minimize(a * b, parameters)
            assert [v.name for v, _ in update.pairs][1:] == ["b"]


def test_nothing_to_train():
    with gf.Graph():
        x = gf.placeholder((3,), name="x")
        with pytest.raises(gf.GradientError, match="depends on no trainable variable") as caught:
            optim.SGD(0.1).minimize(gf.sum(x))
        assert caught.value.fix == "make a gf.Variable"
        fixed = gf.Variable(1.0, name="fixed", trainable=False)
        with pytest.raises(gf.GradientError, match='depends on "fixed" alone, not trainable'):
            optim.SGD(0.1).minimize(gf.sum(x) * fixed)
        w = gf.Variable([1.0] * 3, name="w")
        with pytest.raises(gf.GradientError, match="depends on no trainable variable") as caught:
            optim.SGD(0.1).minimize(gf.sum(x))
        assert caught.value.why == 'the graph has "w", which the loss does not use'
        loss = gf.sum(gf.astype(gf.argmax(w * x), gf.float32))
        with pytest.raises(gf.GradientError, match='depends on "w" only through argmax'):
            optim.SGD(0.1).minimize(loss)
        with pytest.raises(gf.GradientError, match='depends on "w" only through stop_gradient'):
            optim.SGD(0.1).minimize(gf.sum(gf.stop_gradient(w) * x))


def named_in(optimiser, loss, variable):
    """Return the error for a parameter that no gradient reaches from the loss."""
    with pytest.raises(gf.GradientError) as caught:
        optimiser.minimize(loss, [variable])
    assert [o.label for o in caught.value.operands][:2] == ["loss", "parameter"]
    assert caught.value.operands[1].name == variable.name
    return caught.value


@pytest.mark.parametrize(
    "make", [lambda: optim.SGD(0.1), lambda: optim.LossScale(optim.SGD(0.1))], ids=["SGD", "scaled"]
)
def test_parameters_that_no_gradient_reaches(make):
    with gf.Graph():
        w, other = gf.Variable([1.0] * 3, name="w"), gf.Variable(1.0, name="other")
        error = named_in(make(), gf.sum(w), other)
        assert error.summary == 'minimize: the loss does not depend on "other"'
        assert error.fix == "compute the loss from it, or leave it out of `parameters`"
        error = named_in(make(), gf.sum(w * gf.stop_gradient(other)), other)
        assert error.summary.startswith('minimize: the loss depends on "other" only through stop')
        assert error.fix.endswith("or leave it out of `parameters`")


def test_parameters_that_no_gradient_reaches_in_a_body():
    with gf.Graph():
        w, other = gf.Variable(1.0, name="w"), gf.Variable(1.0, name="other")

        def body(total, _):
            error = named_in(optim.SGD(0.1), w * total, other)
            assert error.summary == 'minimize: the loss does not depend on "other"'
            error = named_in(optim.SGD(0.1), w * gf.stop_gradient(other), other)
            assert 'depends on "other" only through stop_gradient' in error.summary
            return total + w, None

        gf.scan(body, gf.asarray(1.0), length=2)


@pytest.mark.parametrize("dtype", ["int8", "int4", "float8_e4m3fn"])
def test_variables_whose_dtype_has_no_gradient(dtype):
    with gf.Graph():
        kept = gf.Variable([1, 2], name="kept", dtype=dtype)
        loss = gf.sum(gf.astype(kept, gf.float32) ** 2)
        message = f'minimize: the loss depends on "kept" alone, and {dtype} has no gradient'
        with pytest.raises(gf.GradientError, match=message) as caught:
            optim.SGD(0.1).minimize(loss)
        assert caught.value.fix == "train variables of a floating-point dtype, such as float32"
        for step in (
            lambda: optim.SGD(0.1).minimize(loss, [kept]),
            lambda: optim.SGD(0.1).apply_gradients([(gf.ones(2), kept)]),
        ):
            with pytest.raises(gf.GradientError, match=f'"kept" is {dtype}, which has no gradient'):
                step()
        scale = gf.Variable(1.0, name="scale")
        update = optim.SGD(0.1).minimize(loss * scale)
        assert [v.name for v, _ in update.pairs][1:] == ["scale"]
        with pytest.raises(gf.GradientError, match="depends on no trainable variable"):
            optim.SGD(0.1).minimize(loss)


def test_bad_losses():
    with gf.Graph():
        w = gf.Variable([1.0, 2.0], name="w")
        cases = [
            (w * 2, r"the loss is float32\[2\], and only a scalar", "reduce it: gf.mean(loss)"),
            (gf.argmax(w), "the loss is int64, which has no gradient", "make the loss of"),
            (3.0, "the loss is a float, not a tensor", "minimise a tensor"),
        ]
        for loss, text, fix in cases:
            with pytest.raises(gf.GradientError, match=text) as caught:
                optim.Adam().minimize(loss)
            assert caught.value.fix.startswith(fix)
            assert caught.value.at.function == "test_bad_losses"


def test_bad_parameters():
    with gf.Graph():
        layer = gf.nn.Linear(2, 2)
        w = layer.weight
        fixed = gf.Variable(1.0, name="fixed", trainable=False)
        loss = gf.sum(layer(gf.ones((1, 2)))) * fixed
        cases = [
            (layer, "parameters is a Linear, not a list", "write model.parameters()"),
            ({"parameters": [w]}, "parameters is a dict", "pass a list of groups"),
            ([], "the list of parameters is empty", "pass model.parameters()"),
            ([{"parameters": w}, {"parameters": []}], "a parameter group is empty", "pass model"),
            (3, "parameters is an int, not a list", "write model.parameters()"),
            ([w * 2], "the parameters hold a tensor", "pass model.parameters()"),
            (["w"], "the parameters hold 'w'", "pass model.parameters()"),
            ([fixed], '"fixed" is not trainable', "make it with trainable=True"),
            ([w, w], "is in the parameters twice", "list each variable once"),
            ([{"parameters": w}, {"parameters": [w]}], "is in the parameters twice", "list"),
            ([{"params": w}], 'has no entry "parameters"', 'its entries are "params"'),
            ([{"parameters": w}, w], "stands among parameter groups", 'write {"parameters"'),
            ([{"parameters": w, "momentum": 0.9}], "Adam: a parameter group has no option 'mome",
             "it has: parameters, lr"),
            ([{"parameters": w, "clip_norm": 1.0}], "has no option 'clip_norm'", "it has"),
            ([{"parameters": w, "lr": -1}], "Adam: lr=-1 must be at least 0", "use lr=0.001"),
        ]  # fmt: skip
        for parameters, text, fix in cases:
            with pytest.raises(gf.ArgumentError) as caught:
                optim.Adam().minimize(loss, parameters)
            assert text in caught.value.summary
            assert caught.value.fix.startswith(fix)
            assert caught.value.at.file == __file__


def test_graphs():
    optimiser = optim.SGD(0.1)
    with gf.Graph():
        w = gf.Variable(1.0, name="w")
        loss = w * w
        optimiser.minimize(loss)
    with gf.Graph():
        v = gf.Variable(1.0, name="v")
        with pytest.raises(gf.GraphError, match="this SGD belongs to another graph"):
            optimiser.minimize(v * v)
        with pytest.raises(gf.GraphError, match="another graph"):
            optim.SGD(0.1).minimize(loss)
    with pytest.raises(gf.GraphError, match="a training step belongs to a graph"):
        optimiser.minimize(loss)


# Options.


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: optim.Adam(-1e-3), "Adam: lr=-0.001 must be at least 0"),
        (lambda: optim.Adam("fast"), "Adam: lr='fast' is no number"),
        (lambda: optim.Adam(np.ones(2)), "is no number"),
        (lambda: optim.Adam(float("nan")), "lr=nan must be at least 0"),
        (lambda: optim.Adam(betas=(0.9, 1.0)), r"betas\[1\]=1.0 must be at least 0 and below 1"),
        (lambda: optim.Adam(betas=0.9), "betas=0.9 is no pair of numbers"),
        (lambda: optim.Lion(betas=(-0.1, 0.9)), r"Lion: betas\[0\]=-0.1"),
        (lambda: optim.Adam(eps=-1), "eps=-1 must be at least 0"),
        (lambda: optim.AdamW(weight_decay=-1), "AdamW: weight_decay=-1 must be at least 0"),
        (lambda: optim.SGD(0.1, clip_norm=0), "clip_norm=0 must be above 0"),
        (lambda: optim.SGD(0.1, clip_value=-1), "clip_value=-1 must be above 0"),
        (lambda: optim.SGD(0.1, momentum=1), "momentum=1 must be at least 0 and below 1"),
        (lambda: optim.SGD(0.1, dampening=-1), "dampening=-1"),
        (lambda: optim.SGD(0.1, nesterov=True), "nesterov=True wants momentum above 0"),
        (lambda: optim.RMSprop(alpha=1), "RMSprop: alpha=1 must be at least 0 and below 1"),
        (lambda: optim.Adagrad(lr_decay=-1), "Adagrad: lr_decay=-1"),
        (lambda: optim.Adagrad(initial_sum=-1), "Adagrad: initial_sum=-1"),
        (lambda: optim.SGD(gf.ones((2,))), r"learning rate must be a real scalar, not float32\[2"),
    ],
)
def test_bad_options(make, text):
    with pytest.raises(gf.ArgumentError) as caught:
        make()
    assert re.search(text, caught.value.summary)  # its whole text has the line of the test
    assert caught.value.fix
    assert caught.value.at.file == __file__  # and not the code that dataclass generates


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        ({"lr": -1}, "use lr=0.001"),
        ({"eps": -1}, "use eps=1e-08"),
        ({"betas": (0.9, 1)}, "use betas[1]=0.9"),
        ({"weight_decay": -1}, "use weight_decay=0.0"),
        ({"clip_norm": 0}, "use clip_norm=1.0"),
    ],
)
def test_fixes_of_options(options, fix):
    with pytest.raises(gf.ArgumentError) as caught:
        optim.Adam(**options)
    assert caught.value.fix == fix


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (lambda step: gf.stack([step, step]), r"must be a real scalar, not float64\[2\]"),
        (lambda step: -0.1, "lr=-0.1 must be at least 0"),
        (lambda step: None, "lr=None is no number"),
    ],
)
def test_bad_schedules(rate, text):
    with gf.Graph():
        w = gf.Variable(1.0, name="w")
        with pytest.raises(gf.ArgumentError, match=text):
            optim.SGD(rate).minimize(w * w)


@pytest.mark.parametrize("rate", [lambda step: 0.25, lambda step: np.float32(0.25)])
def test_schedules_may_return_numbers(rate):
    with gf.Graph() as g:
        w = gf.Variable(4.0, name="w")
        optimiser = optim.SGD(rate)
        train, lr = optimiser.minimize(w * w), optimiser.learning_rate()
    with gf.Session(g) as session:
        _, found = session.run((train, lr))
        assert (float(found), float(session[w])) == (0.25, 2.0)


def test_a_rate_of_0_trains_nothing():
    with gf.Graph() as g:
        body, head = gf.Variable(4.0, name="body"), gf.Variable(4.0, name="head")
        groups = [{"parameters": body, "lr": 0}, {"parameters": head}]
        updates = [
            optim.AdamW(0.0).minimize(body * head),
            optim.SGD(0.25).minimize(body * head, groups),
        ]
    with gf.Session(g) as session:
        found = []
        for update in updates:
            session.run(update)
            found.append((float(session[body]), float(session[head])))
    assert found == [(4.0, 4.0), (4.0, 3.0)]


def test_parameters_are_no_learning_rate():
    with gf.Graph():
        layer = gf.nn.Linear(2, 2)
        for given, kind in ((layer.parameters(), "list"), (layer, "Linear")):
            with pytest.raises(gf.ArgumentError, match=f"Adam: lr is a {kind}, and not") as caught:
                optim.Adam(given)
            assert "minimize(loss, parameters)" in caught.value.fix
            assert caught.value.at.file == __file__


def test_the_rate_is_asked_for_in_the_graph():
    with gf.Graph():
        w = gf.Variable(1.0, name="w")
        optimiser = optim.SGD(0.1)
        optimiser.minimize(w * w)
    with pytest.raises(gf.GraphError, match="a learning rate belongs to a graph") as caught:
        optimiser.learning_rate()
    assert caught.value.fix.startswith("make it inside `with graphfw.Graph() as g:`")


def test_text():
    assert repr(optim.SGD(0.1, 0.9)) == (
        "SGD(lr=0.1, weight_decay=0.0, clip_norm=None, clip_value=None, name=None, momentum=0.9, "
        "dampening=0.0, nesterov=False)"
    )
