"""L-BFGS beside PyTorch's, iteration by iteration, and beside SciPy's minima; what it refuses."""

import numpy as np
import pytest

import graphfw as gf
from graphfw import optim

torch = pytest.importorskip("torch")
LINE_SEARCHES = ["strong_wolfe", None]


def rosenbrock(w, xp):
    return xp.sum(100 * (w[1:] - w[:-1] ** 2) ** 2 + (1 - w[:-1]) ** 2)


def logistic(w, xp, x, y):
    z = x @ w
    return xp.mean(xp.log(1 + xp.exp(-y * z))) + 0.01 * xp.sum(w * w)


def network(params, xp, x, y):
    a, b, c = params
    return xp.mean((xp.tanh(x @ a + b) @ c - y) ** 2)


def ours(starts, function, dtype, runs, **options):
    """Return the losses before each step, and the parameters after the last."""
    with gf.Graph() as g:
        params = [gf.Variable(s, name=f"p{i}", dtype=dtype) for i, s in enumerate(starts)]
        loss = function(params)
        train = optim.LBFGS(**options).minimize(loss)
    # Values are not compared: a last digit may decide where a search for a step ends.
    with gf.Session(g, verify="each") as session:
        losses = [float(session.run([loss, train])[0]) for _ in range(runs)]
        return losses, [session[p] for p in params]


def theirs(starts, function, dtype, runs, **options):
    kind = getattr(torch, dtype)
    params = [torch.tensor(s, dtype=kind, requires_grad=True) for s in starts]
    optimiser = torch.optim.LBFGS(params, max_eval=10_000, **options)

    def closure():
        optimiser.zero_grad()
        loss = function(params)
        loss.backward()
        return loss

    losses = [optimiser.step(closure).item() for _ in range(runs)]
    return losses, [p.detach().numpy() for p in params]


@pytest.mark.parametrize("line_search", LINE_SEARCHES)
def test_each_iteration_is_that_of_torch(line_search):
    start = [np.array([-1.2, 1.0, -0.5, 0.8])]
    options = {"max_iterations": 1, "history_size": 4, "line_search": line_search}
    got = ours(start, lambda p: rosenbrock(p[0], gf), "float64", 25, **options)
    expected = theirs(
        start, lambda p: rosenbrock(p[0], torch), "float64", 25,
        max_iter=1, history_size=4, line_search_fn=line_search,
    )  # fmt: skip
    np.testing.assert_allclose(got[0], expected[0], 1e-6)
    np.testing.assert_allclose(got[1][0], expected[1][0], 1e-6)


@pytest.mark.slow
def test_rosenbrock_has_its_minimum(rng):
    start = rng.uniform(-2, 2, 6)
    losses, (w,) = ours(
        [start], lambda p: rosenbrock(p[0], gf), "float64", 12, max_iterations=20, history_size=6
    )
    assert losses[-1] < 1e-10 < losses[0]
    assert min(np.abs(w - 1).max(), np.abs(w - [-1, 1, 1, 1, 1, 1]).max()) < 1e-2


@pytest.mark.parametrize("dtype", [pytest.param("float32", marks=pytest.mark.slow), "float64"])
def test_logistic_regression_beside_scipy(rng, dtype):
    scipy_optimize = pytest.importorskip("scipy.optimize")
    x = rng.standard_normal((60, 5)).astype(dtype)
    y = np.sign(x @ rng.standard_normal(5) + rng.standard_normal(60)).astype(dtype)
    options = {"max_iterations": 100, "tolerance_grad": 0.0, "tolerance_change": 0.0}
    _, (w,) = ours([np.zeros(5)], lambda p: logistic(p[0], gf, x, y), dtype, 1, **options)
    x = x.astype("float64")
    best = scipy_optimize.minimize(
        lambda w: logistic(w, np, x, y),
        np.zeros(5),
        jac=lambda w: x.T @ (-y / (1 + np.exp(y * (x @ w)))) / len(y) + 0.02 * w,
        method="L-BFGS-B",
        tol=1e-14,
    )
    np.testing.assert_allclose(w, best.x, atol=1e-3 if dtype == "float32" else 1e-6)


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_a_network_beside_torch(rng, dtype):
    x, y = rng.standard_normal((40, 3)).astype(dtype), rng.standard_normal((40, 2)).astype(dtype)
    starts = [rng.standard_normal(shape) for shape in ((3, 4), (4,), (4, 2))]
    got, _ = ours(starts, lambda p: network(p, gf, x, y), dtype, 4, max_iterations=5)
    expected, _ = theirs(
        starts, lambda p: network(p, torch, torch.tensor(x), torch.tensor(y)), dtype, 4,
        max_iter=5, history_size=10, line_search_fn="strong_wolfe",
    )  # fmt: skip
    np.testing.assert_allclose(got, expected, 1e-2 if dtype == "float32" else 1e-8)
    assert got[-1] < 0.9 * got[0]


def test_a_step_ends_where_nothing_is_left_to_do():
    with gf.Graph() as g:
        w = gf.Variable([3.0, -4.0], name="w", dtype="float64")
        loss = gf.sum((w - 1) ** 2)
        train = optim.LBFGS(tolerance_grad=1e-3).minimize(loss)
    with gf.Session(g) as session:
        session.run(train)
        found = session[w]
        np.testing.assert_allclose(found, [1, 1], atol=1e-3)
        session.run(train)
        np.testing.assert_array_equal(session[w], found)
        assert session["lbfgs.step"] == 2


@pytest.mark.slow
def test_it_goes_on_from_a_checkpoint(tmp_path):
    with gf.Graph() as g:
        w = gf.Variable([-1.2, 1.0, 0.3], name="w", dtype="float64")
        optimiser = optim.LBFGS(max_iterations=2, history_size=3)
        train = optimiser.minimize(rosenbrock(w, gf))
    names = [v.name for v in optimiser.variables]
    assert names == ["lbfgs.step", *[f"lbfgs.{n}.w" for n in ("gradient", "moved", "s", "y")]]
    path = tmp_path / "half.safetensors"
    with gf.Session(g) as session:
        for number in range(6):
            if number == 3:
                session.save(path)
            session.run(train)
        whole = session[w]
    with gf.Session(g) as session:
        session.restore(path)
        for _ in range(3):
            session.run(train)
        np.testing.assert_array_equal(session[w], whole)


@pytest.mark.slow
def test_parameters_of_several_dtypes():
    with gf.Graph() as g:
        a = gf.Variable(np.full((2, 2), 3.0), name="a", dtype="bfloat16")
        b = gf.Variable(5.0, name="b", dtype="float64")
        loss = gf.astype(gf.sum((a - 2) ** 2), "float64") + (b - 1) ** 2
        optimiser = optim.LBFGS()
        train = optimiser.minimize(loss)
    dtypes = {v.name: v.dtype.name for v in optimiser.variables}
    assert dtypes["lbfgs.s.a"] == "float32"
    assert dtypes["lbfgs.s.b"] == "float64"
    with gf.Session(g) as session:
        session.run(train)
        np.testing.assert_allclose(session[a].astype("float32"), np.full((2, 2), 2.0), atol=0.02)
        np.testing.assert_allclose(session[b], 1.0, atol=1e-2)


def test_dropout_has_one_mask_in_a_step():
    with gf.Graph() as g:
        w = gf.Variable(np.full(64, 3.0), name="w", dtype="float64")
        kept = gf.nn.Dropout(0.5)(gf.ones(64, dtype="float64"))
        train = optim.LBFGS().minimize(gf.sum((kept * w - 1) ** 2))
    with gf.Session(g, seed=3) as session:
        session.run(train)
        found = session[w]
    changed = found != 3
    assert 16 < changed.sum() < 48
    np.testing.assert_allclose(found[changed], 0.5, atol=1e-6)


@pytest.mark.slow
def test_statistics_of_layers_follow_the_batch_once(rng):
    with gf.Graph() as g:
        x = gf.placeholder(("batch", 3), name="x")
        net = gf.nn.Sequential(gf.nn.Linear(3, 4), gf.nn.BatchNorm(4), gf.nn.Linear(4, 1))
        loss = gf.mean((net(x) - gf.sum(x, axis=1, keepdims=True)) ** 2)
        train = optim.LBFGS(max_iterations=4).minimize(loss)
        statistics = optim.layer_updates(loss)
    batch = rng.standard_normal((16, 3)).astype("float32")
    found = []
    for step in (train, statistics):
        with gf.Session(g, seed=1) as session:
            before = float(session.run(loss, {x: batch}))
            session.run(step, {x: batch})
            found.append(session["sequential.1.running_mean"])
            after = float(session.run(loss, {x: batch}))
            assert after < 0.5 * before or step is statistics
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.slow
def test_steps_in_a_loop():
    optimiser = optim.LBFGS(max_iterations=2)

    @gf.function
    def fit(x):
        w = gf.Variable([-1.2, 1.0], name="w", dtype="float64")

        def step(_, x):
            loss = rosenbrock(w * x, gf)
            optimiser.minimize(loss)
            return (), loss

        return gf.scan(step, (), x)[1]

    losses = fit(np.ones(15))
    expected, _ = ours(
        [np.array([-1.2, 1.0])], lambda p: rosenbrock(p[0], gf), "float64", 15, max_iterations=2
    )
    np.testing.assert_allclose(losses, expected, 1e-6)


@pytest.mark.slow
def test_averages_of_its_steps():
    with gf.Graph() as g:
        w = gf.Variable([-1.2, 1.0], name="w", dtype="float64")
        optimiser = optim.EMA(optim.Lookahead(optim.LBFGS(max_iterations=1), k=2), 0.5)
        train = optimiser.minimize(rosenbrock(w, gf))
        smooth = optimiser.averaged(w)
    with gf.Session(g) as session:
        session.run(train)
        first = session[w]
        session.run(train)
        np.testing.assert_allclose(session.run(smooth), (first + session[w]) / 2)


@pytest.mark.parametrize("line_search", LINE_SEARCHES)
def test_a_loss_that_is_not_finite_at_the_start_changes_nothing(line_search):
    with gf.Graph() as g:
        x = gf.placeholder((), name="x", dtype="float64")
        w = gf.Variable([2.0], name="w", dtype="float64")
        optimiser = optim.LBFGS(line_search=line_search)
        train = optimiser.minimize(gf.sum(w * w) * x)
    with gf.Session(g) as session:
        for value in (np.nan, np.inf):
            session.run(train, {x: value})
            assert session[w].tolist() == [2.0]
            assert all(np.isfinite(session[v]).all() for v in optimiser.variables)
        session.run(train, {x: 1.0})
        assert abs(session[w][0]) < 2


def test_a_line_search_comes_back_from_where_the_loss_is_not_finite():
    """The first guess leads to where the logarithm has no value."""
    with gf.Graph() as g:
        w = gf.Variable(0.01, name="w", dtype="float64")
        train = optim.LBFGS(10.0, max_iterations=30).minimize(5 * w - gf.log(w) - gf.log(1 - w))
        plain = optim.LBFGS(10.0, line_search=None).minimize(5 * w - gf.log(w) - gf.log(1 - w))
    with gf.Session(g) as session:
        session.run(plain)
        assert session[w] == 0.01
        session.run(train)
        np.testing.assert_allclose(session[w], 0.161484, atol=1e-4)


def drawing(w):
    return gf.sum(gf.random.gamma((2,), w) ** 2)


def drawing_in_a_loop(w):
    def step(h, x):
        return gf.nn.Dropout(0.5)(h * w + x), ()

    return gf.sum(gf.scan(step, gf.zeros(2), gf.ones((3, 2)))[0])


def within(make):
    return lambda w: make(optim.LBFGS()).minimize(gf.sum(w * w))


@pytest.mark.parametrize(
    ("use", "text", "fix"),
    [
        (lambda w: optim.LBFGS(history_size=0), "history_size=0 must be an int", "use history"),
        (lambda w: optim.LBFGS(max_iterations=1.5), "max_iterations=1.5 must be", "use max_it"),
        (lambda w: optim.LBFGS(tolerance_grad=-1.0), "tolerance_grad=-1.0 must", "use tol"),
        (lambda w: optim.LBFGS(weight_decay=0.1), "weight_decay would be", "add the penalty"),
        (lambda w: optim.LBFGS(clip_norm=1.0), "it can't clip", "leave clip_norm"),
        (lambda w: optim.LBFGS().apply_gradients([(w, w)]), "computes the loss itself", "write"),
        (
            lambda w: optim.chain(optim.LBFGS()).minimize(gf.sum(w)),
            "computes the loss itself",
            "write gf.optim.LBFGS().minimize(loss): not in a chain",
        ),
        (
            lambda w: optim.LBFGS().minimize(gf.sum(w), [{"parameters": w, "lr": 0.1}]),
            "parameter groups have options",
            "pass a list",
        ),
        (within(optim.SAM), "within an optimiser that changes", "of the optimisers around"),
        (within(optim.LossScale), "within an optimiser that changes", "of the optimisers around"),
        (
            within(lambda o: optim.EMA(optim.MultiSteps(o, 2))),
            "within an optimiser that changes",
            "of the optimisers around",
        ),
        (lambda w: optim.LBFGS().minimize(drawing(w)), "the loss draws random", "draw them"),
        (
            lambda w: optim.LBFGS().minimize(drawing_in_a_loop(w)),
            "the loss draws random numbers in scan",
            "draw them",
        ),
    ],
)
def test_what_is_refused(use, text, fix):
    with gf.Graph():
        w = gf.Variable([1.0, 2.0], name="w")
        with pytest.raises(gf.ArgumentError) as caught:
            use(w)
    assert text in caught.value.summary
    assert caught.value.fix.startswith(fix)


def test_complex_parameters_and_an_unknown_line_search():
    with gf.Graph():
        w = gf.Variable(np.array([1j]), name="w", dtype="complex128")
        with pytest.raises(gf.ArgumentError, match="LBFGS: it trains real variables"):
            optim.LBFGS().minimize(gf.sum(gf.abs(w) ** 2))
    with pytest.raises(gf.ArgumentError, match="line_search='armijo'"):
        optim.LBFGS(line_search="armijo")
