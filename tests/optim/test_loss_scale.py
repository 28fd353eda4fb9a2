"""The dynamic loss scale: steps that are skipped, how the scale moves, what is saved."""

import numpy as np
import pytest

import graphfw as gf
from graphfw import optim
from graphfw.errors import ArgumentError, GradientError, GraphError
from graphfw.ir.graph import Graph


def regression(make, **options):
    """A loss whose gradient is as large as what is fed says."""
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
        w = gf.Variable(np.array([1.0, 2.0, 3.0], np.float32), name="w")
        loss = gf.sum(w * x)
        scale = optim.LossScale(make(), **options)
        step = scale.minimize(loss)
    return g, x, w, loss, step, scale


GOOD = np.array([0.5, -1.0, 2.0], np.float32)
BAD = np.array([0.5, np.inf, 2.0], np.float32)


@pytest.mark.parametrize(
    "make",
    [
        lambda: optim.SGD(0.1, momentum=0.9),
        lambda: optim.AdamW(1e-2, clip_norm=0.5),
        lambda: optim.RMSprop(1e-2, weight_decay=0.1),
    ],
)
def test_without_overflow_it_is_the_optimiser(make):
    g, x, w, _, step, _ = regression(make)
    with g:
        other = gf.Variable(np.array([1.0, 2.0, 3.0], np.float32), name="other")
        plain = make().minimize(gf.sum(other * x))
    with gf.Session(g) as session:
        for _ in range(5):
            session.run([step, plain], {x: GOOD})
        np.testing.assert_array_equal(session[w], session[other])  # scales are powers of two


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan, 1e38])
def test_a_step_that_overflows_changes_nothing_but_the_scale(bad):
    g, x, w, _, step, scale = regression(lambda: optim.Adam(1e-2))
    with gf.Session(g) as session:
        session.run(step, {x: GOOD})
        before = session.state_dict()
        session.run(step, {x: np.array([0.5, bad, 2.0], np.float32)})
        after = session.state_dict()
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed == {"loss_scale.scale", "loss_scale.good_steps", "loss_scale.skipped"}
    assert (before["adam.step"], after["adam.step"]) == (1, 1)
    assert (before["loss_scale.scale"], after["loss_scale.scale"]) == (2.0**16, 2.0**15)
    assert (after["loss_scale.good_steps"], after["loss_scale.skipped"]) == (0, 1)


def test_the_scale_moves_as_pytorchs_does(rng):
    torch = pytest.importorskip("torch")
    g, x, _, _, step, scale = regression(
        lambda: optim.SGD(0.01), initial=8.0, growth=4.0, backoff=0.25, interval=3
    )
    parameter = torch.zeros(3, requires_grad=True)
    scaler = torch.amp.GradScaler("cpu", 8.0, 4.0, 0.25, 3)
    optimiser = torch.optim.SGD([parameter], 0.01)
    with g:
        now = scale.scale()
    with gf.Session(g) as session:
        for overflows in [*(rng.random(30) < 0.1), False, False, False, False]:
            array = BAD if overflows else GOOD
            used, _ = session.run([now, step], {x: array})
            if used == 1.0:  # where ours ends
                break
            assert used == scaler.get_scale()
            optimiser.zero_grad()
            scaler.scale((parameter * torch.tensor(array)).sum()).backward()
            scaler.step(optimiser)
            scaler.update()


def test_the_scale_stays_between_1_and_what_float32_holds():
    options = {"initial": 2.0**126, "interval": 1}
    g, x, *_, step, scale = regression(lambda: optim.SGD(0.01), **options)
    small = np.array([1e-30, 0.0, 0.0], np.float32)
    with gf.Session(g) as session:
        found = []
        for array in (small, small, small, *[BAD] * 130):
            session.run(step, {x: array})
            found.append(float(session["loss_scale.scale"]))
    assert found[:4] == [2.0**127, 2.0**127, 2.0**127, 2.0**126]
    assert found[-3:] == [1.0, 1.0, 1.0]


def test_small_gradients_survive_float16():
    """Of 1e-6 times 1e-3 float16 keeps nothing; times 65536 it does."""
    found = []
    for scaled in (False, True):
        with gf.Graph() as g:
            x = gf.placeholder((1, 4), name="x")
            w = gf.Variable(np.ones((4, 1), np.float32), name="w")
            loss = gf.sum(gf.relu(x @ w)) * 1e-6
            plain = optim.SGD(1.0)
            step = (optim.LossScale(plain) if scaled else plain).minimize(loss)
        with gf.Session(g, precision="mixed-fp16") as session:
            session.run(step, {x: np.full((1, 4), 1e-3, np.float32)})
            found.append(1.0 - session[w][0, 0])
    assert found[0] == 0.0
    np.testing.assert_allclose(found[1], 1e-9, atol=1e-7)


def test_what_overflows_in_float16_is_found_and_the_scale_comes_down():
    with gf.Graph() as g:
        x = gf.placeholder((4, 8), name="x")
        w = gf.Variable(np.full((8, 1), 0.1, np.float32), name="w")
        loss = gf.sum((x @ w) ** 2)
        scale = optim.LossScale(optim.SGD(1e-4))
        step, now, skipped = scale.minimize(loss), scale.scale(), scale.skipped()
    with gf.Session(g, precision="mixed-fp16") as session:
        feeds = {x: np.full((4, 8), 2.0, np.float32)}
        losses = [float(session.run([loss, step], feeds)[0]) for _ in range(20)]
        used, lost = session.run([now, skipped])
    assert 0 < lost < 20
    assert used == 2.0 ** (16 - int(lost))
    assert losses[int(lost)] == losses[0] > losses[-1]
    assert np.isfinite(losses).all()


def test_skipped_steps_leave_the_statistics_of_layers():
    with gf.Graph() as g:
        x = gf.placeholder((5, 3), name="x")
        layer = gf.nn.BatchNorm(3)
        loss = gf.mean(layer(x) ** 2)
        step = optim.LossScale(optim.SGD(0.1)).minimize(loss)
    kept = [v for v in g.variables if not v.trainable and "running" in v.name]
    assert kept
    with gf.Session(g) as session:
        before = [session[v] for v in kept]
        session.run(step, {x: np.full((5, 3), np.inf, np.float32)})
        for v, old in zip(kept, before, strict=True):
            np.testing.assert_array_equal(session[v], old)


def test_gradients_of_the_users_own():
    g, x, w, loss, _, _ = regression(lambda: optim.SGD(0.5))
    with g:
        scale = optim.LossScale(optim.SGD(0.5), name="mine")
        gradients = gf.grad(scale.scaled(loss), [w])
        step = scale.apply_gradients(zip(gradients, [w], strict=True))
    with gf.Session(g) as session:
        (large,) = session.run(gradients, {x: GOOD})
        np.testing.assert_array_equal(large, GOOD * 2.0**16)
        session.run(step, {x: GOOD})
        np.testing.assert_allclose(session[w], np.array([1, 2, 3]) - 0.5 * GOOD)
        session.run(step, {x: BAD})
        assert session["mine.scale"] == 2.0**15


def test_parameter_groups():
    with gf.Graph() as g:
        x = gf.placeholder((), name="x")
        a, b = gf.Variable(1.0, name="a"), gf.Variable(1.0, name="b")
        scale = optim.LossScale(optim.SGD(1.0))
        groups = [{"parameters": [a]}, {"parameters": [b], "lr": 0.25}]
        step = scale.minimize((a + b) * x, groups)
    with gf.Session(g) as session:
        session.run(step, {x: 0.5})
        assert (session[a], session[b]) == (0.5, 0.875)


def test_it_is_saved_and_restored(tmp_path):
    g, x, _, _, step, scale = regression(lambda: optim.Adam(1e-2), interval=2)
    with gf.Session(g) as session:
        for array in (GOOD, BAD, GOOD):
            session.run(step, {x: array})
        session.save(tmp_path / "state.safetensors")
        expected = session.state_dict()
    with gf.Session(g) as other:
        other.restore(tmp_path / "state.safetensors")
        assert {k: v.tolist() for k, v in other.state_dict().items()} == {
            k: v.tolist() for k, v in expected.items()
        }
        other.run(step, {x: GOOD})
        assert other["loss_scale.scale"] == 2.0**16  # the second good one in a row
    assert [v.name for v in scale.variables][:3] == [
        "loss_scale.scale",
        "loss_scale.good_steps",
        "loss_scale.skipped",
    ]
    assert "adam.step" in {v.name for v in scale.variables}


def test_float16_parameters():
    with gf.Graph() as g:
        x = gf.placeholder((3,), gf.float16, name="x")
        w = gf.Variable(np.ones(3, np.float16), name="w")
        scale = optim.LossScale(optim.SGD(1.0), initial=1024.0)
        step = scale.minimize(gf.sum(w * x))
    with gf.Session(g) as session:
        session.run(step, {x: np.array([0.25, 0.5, 1.0], np.float16)})
        np.testing.assert_array_equal(session[w], np.array([0.75, 0.5, 0.0], np.float16))
        session.run(step, {x: np.array([0.25, 0.5, 65504.0], np.float16)})
        np.testing.assert_array_equal(session[w], np.array([0.75, 0.5, 0.0], np.float16))
        assert session["loss_scale.scale"] == 512.0


def test_in_a_loop_of_steps():
    with gf.Graph() as g:
        xs = gf.placeholder(("t", 3), name="xs")
        w = gf.Variable(np.zeros(3, np.float32), name="w")
        scale = optim.LossScale(optim.SGD(1.0))

        def iteration(x):
            loss = gf.sum(w * x)
            steps.append(scale.minimize(loss))
            return loss

        steps = []
        losses = gf.map(iteration, xs)
    with gf.Session(g) as session:
        session.run([losses, *steps], {xs: np.stack([GOOD, BAD, GOOD])})
        np.testing.assert_allclose(session[w], -2 * GOOD)
        assert session["loss_scale.scale"] == 2.0**15


def test_in_a_function():
    scale = optim.LossScale(optim.SGD(0.5))

    @gf.function
    def train(x):
        w = gf.Variable(np.ones(3, np.float32), name="w")
        loss = gf.sum(w * x)
        scale.minimize(loss)
        return loss, scale.scale()

    assert train(GOOD)[1] == 2.0**16
    assert np.isinf(train(BAD)[0])
    loss, now = train(GOOD)
    assert now == 2.0**15
    np.testing.assert_allclose(loss, np.sum((1 - 0.5 * GOOD) * GOOD))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"initial": 0.5}, r"initial=0.5 must be from 1 to 2\*\*127"),
        ({"initial": np.inf}, "initial=inf must be"),
        ({"initial": "big"}, "initial='big' must be"),
        ({"growth": 1.0}, "growth=1.0 must be above 1"),
        ({"backoff": 1.0}, "backoff=1.0 must be above 0 and below 1"),
        ({"backoff": float("nan")}, "backoff=nan must be"),
        ({"interval": 0}, "interval=0 must be an int of 1 or more"),
        ({"interval": 2.5}, "interval=2.5 must be an int"),
        ({"interval": True}, "interval=True must be an int"),
    ],
)
def test_bad_numbers(options, message):
    with pytest.raises(ArgumentError, match=message):
        optim.LossScale(optim.SGD(0.1), **options)


def test_other_mistakes():
    with pytest.raises(ArgumentError, match="optimizer is a float, no optimiser"):
        optim.LossScale(1e-3)
    scale = optim.LossScale(optim.SGD(0.1))
    with pytest.raises(GraphError, match="belongs to a graph, and none is open"):
        scale.minimize(gf.asarray(1.0))
    with Graph(), pytest.raises(GradientError, match="minimize: the loss is float32"):
        scale.minimize(gf.placeholder((3,)) * gf.Variable(1.0, name="w"))
    with Graph():
        w = gf.Variable(1.0, name="w")
        scale.minimize(w * w)
    with Graph(), pytest.raises(GraphError, match="belongs to another graph"):
        scale.scale()
