"""Optimisers that see parameters as wholes: Adafactor and Muon against PyTorch's, LARS and LAMB
against their formulas; and groups with optimisers of their own."""

import re

import numpy as np
import pytest

import graphfw as gf
from graphfw import optim
from tests.support.training_steps import ours, problem_of, same, theirs

torch = pytest.importorskip("torch")
SHAPES = ((4, 3), (2, 6), (5,), (), (2, 3, 4), (1, 1))


@pytest.fixture
def problem(rng):
    return problem_of(rng, SHAPES)


def gradient(number, p, d):
    """The gradient of `training_steps.loss_terms`."""
    return 2 * (number + 1) * (p - d) + 1.5 * np.cos(3 * p)


def by_formula(step, starts, data, dtype):
    """Return the parameters after each step, by a function step(p, g, state, count)."""
    params = [s.astype(dtype) for s in starts]
    states = [{} for _ in params]
    history = []
    for count, arrays in enumerate(data, 1):
        for i, d in enumerate(arrays):
            g = gradient(i, params[i], d.astype(dtype))
            params[i] = np.asarray(step(params[i], g, states[i], count), dtype)
        history.append(list(params))
    return history


def moved(state, name, beta, value):
    state[name] = beta * state.get(name, 0) + (1 - beta) * value
    return state[name]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_lamb(problem, dtype, decay):
    lr, b1, b2, eps = 0.02, 0.8, 0.95, 1e-4

    def step(p, g, state, count):
        m = moved(state, "m", b1, g) / (1 - b1**count)
        v = moved(state, "v", b2, g * g) / (1 - b2**count)
        update = m / (np.sqrt(v) + eps) + decay * p
        return p - lr * np.linalg.norm(p) / np.linalg.norm(update) * update

    got = ours(lambda: optim.LAMB(lr, (b1, b2), eps, weight_decay=decay), *problem, dtype)
    same(got, by_formula(step, *problem, dtype), dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_lars(problem, dtype, decay):
    lr, momentum, trust = 0.5, 0.7, 0.02

    def step(p, g, state, count):
        ratio = trust * np.linalg.norm(p) / (np.linalg.norm(g) + decay * np.linalg.norm(p))
        state["v"] = momentum * state.get("v", 0) + lr * ratio * (g + decay * p)
        return p - state["v"]

    got = ours(lambda: optim.LARS(lr, momentum, trust, weight_decay=decay), *problem, dtype)
    same(got, by_formula(step, *problem, dtype), dtype)


@pytest.mark.parametrize("make", [optim.LARS, optim.LAMB])
def test_a_parameter_that_is_0_moves(make):
    with gf.Graph() as g:
        w = gf.Variable(np.zeros((2, 2)), name="w")
        train = make(0.5).minimize(gf.sum(w * 2))
        still = make(0.5).minimize(gf.sum(w * 0))
    with gf.Session(g) as session:
        session.run(still)
        assert not session[w].any()
        session.run(train)
        np.testing.assert_allclose(
            session[w], np.full((2, 2), -1.0 if make is optim.LARS else -0.5), 1e-5
        )


FACTORED = {
    "default": ({}, {}),
    "decay": ({"weight_decay": 0.1}, {"weight_decay": 0.1}),
    "options": (
        {"lr": 0.5, "beta2_decay": -0.5, "eps": (1e-3, 0.1), "d": 2.0},
        {"lr": 0.5, "beta2_decay": -0.5, "eps": (1e-3, 0.1), "d": 2.0},
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FACTORED)
def test_adafactor(problem, name, dtype):
    own, others = FACTORED[name]
    got = ours(lambda: optim.Adafactor(**own), *problem, dtype)
    same(got, theirs(lambda p: torch.optim.Adafactor(p, **others), *problem, dtype), dtype)


def test_adafactor_remembers_rows_and_columns():
    with gf.Graph():
        w = gf.Variable(np.ones((2, 3, 4)), name="w")
        optimiser = optim.Adafactor()
        optimiser.minimize(gf.sum(w))
    _, rows, columns = optimiser.variables
    assert (rows.name, rows.shape) == ("adafactor.row_square.w", (2, 3, 1))
    assert (columns.name, columns.shape) == ("adafactor.column_square.w", (2, 1, 4))


class Both:
    """PyTorch's Muon of the matrices, and AdamW of the rest."""

    def __init__(self, params, lr, other, **options):
        self.matrices = torch.optim.Muon([p for p in params if p.ndim == 2], lr, **options)
        rest = [p for p in params if p.ndim != 2]
        self.rest = torch.optim.AdamW(rest, other, weight_decay=options.get("weight_decay", 0.1))

    def zero_grad(self):
        self.matrices.zero_grad()
        self.rest.zero_grad()

    def step(self):
        self.matrices.step()
        self.rest.step()


def transposed(arrays):
    """Matrices as PyTorch has them, [outputs, inputs]."""
    return [a.T if a.ndim == 2 else a for a in arrays]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("own", "others"),
    [
        ({}, {}),
        ({"momentum": 0.5, "nesterov": False, "weight_decay": 0.3},
         {"momentum": 0.5, "nesterov": False, "weight_decay": 0.3}),
        ({"ns_coefficients": (2.0, -1.5, 0.5), "ns_steps": 2, "adjust_lr": "match_rms_adamw"},
         {"ns_coefficients": (2.0, -1.5, 0.5), "ns_steps": 2, "adjust_lr_fn": "match_rms_adamw"}),
    ],
)  # fmt: skip
def test_muon(problem, own, others, dtype, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda x: x.clone())  # it iterates in bfloat16
    starts, data = problem
    got = ours(lambda: optim.Muon(0.05, ns_dtype=dtype, **own), starts, data, dtype)
    expected = theirs(
        lambda p: Both(p, 0.05, 0.05, **others),
        transposed(starts),
        [transposed(a) for a in data],
        dtype,
    )
    same(got, [transposed(arrays) for arrays in expected], dtype)


@pytest.mark.parametrize("shape", [(24, 40), (40, 24)])
def test_muon_in_bfloat16_is_as_near_as_pytorch(shape, rng):
    gradient = rng.standard_normal(shape).astype("float32")
    steps = {}
    for dtype in ("float32", "bfloat16"):
        with gf.Graph() as g:
            w = gf.Variable(np.zeros(shape, "float32"), name="w")
            optimiser = optim.Muon(1.0, ns_dtype=dtype)
            train = optimiser.apply_gradients([(gf.asarray(gradient), w)])
        with gf.Session(g) as session:
            session.run(train)
            steps[dtype] = session[w]
    p = torch.nn.Parameter(torch.zeros(shape[::-1]))
    p.grad = torch.from_numpy(gradient.T.copy())
    torch.optim.Muon([p], 1.0).step()
    exact = steps["float32"]
    errors = [
        np.linalg.norm(step - exact) / np.linalg.norm(exact)
        for step in (steps["bfloat16"], p.detach().numpy().T)
    ]
    assert 1e-3 < errors[0] < min(0.03, 2 * errors[1])


def test_muon_makes_singular_values_alike():
    with gf.Graph() as g:
        w = gf.Variable(np.zeros((6, 3)), name="w")
        d = gf.constant(np.random.default_rng(0).standard_normal((6, 3)) * [1, 10, 100])
        train = optim.Muon(1.0, weight_decay=0).minimize(gf.sum(w * d))
    with gf.Session(g) as session:
        session.run(train)
        values = np.linalg.svd(session[w], compute_uv=False)
    assert ((values > 0.5) & (values < 1.5)).all()


def test_muon_trains_the_others_by_another_optimiser():
    with gf.Graph() as g:
        w, b = gf.Variable(np.eye(2), name="w"), gf.Variable(np.ones(2), name="b")
        optimiser = optim.Muon(0.1, others=optim.SGD(lambda step: 0.25 / (step + 1), 0.5))
        train = optimiser.minimize(gf.sum(w) + gf.sum(b))
        names = [v.name for v in optimiser.variables]
    assert names == ["muon.step", "muon.momentum.w", "muon.momentum.b"]
    with gf.Session(g) as session:
        session.run(train)
        np.testing.assert_allclose(session[b], [0.75, 0.75])
        session.run(train)
        np.testing.assert_allclose(session[b], [0.75 - 0.125 * 1.5] * 2)


def test_groups_with_optimisers(problem):
    starts, data = problem
    got = ours(
        lambda: optim.SGD(0.1), starts, data, "float64",
        lambda v: [{"parameters": v[:2], "optimizer": optim.Adam(0.01)},
                   {"parameters": v[2:4], "optimizer": optim.Adam(0.01), "betas": (0.5, 0.6)},
                   {"parameters": v[4:]}],
    )  # fmt: skip
    wanted = theirs(lambda p: torch.optim.Adam(p, 0.01), starts, data, "float64")
    short = theirs(lambda p: torch.optim.Adam(p, 0.01, (0.5, 0.6)), starts, data, "float64")
    plain = theirs(lambda p: torch.optim.SGD(p, 0.1), starts, data, "float64")
    mixed = [[*a[:2], *b[2:4], *c[4:]] for a, b, c in zip(wanted, short, plain, strict=True)]
    same(got, mixed, "float64")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: optim.Muon(others=optim.AdamW(clip_norm=1.0)), "Muon: others has clip_norm"),
        (lambda: optim.Muon(others=3), "Muon: others is an int, no optimiser"),
        (lambda: optim.Muon(momentum=1), "momentum=1 must be at least 0 and below 1"),
        (lambda: optim.Muon(ns_steps=0), "ns_steps=0 must be at least 1"),
        (lambda: optim.Muon(ns_dtype="int8"), "ns_dtype=int8, and real matrices"),
        (lambda: optim.Muon(ns_dtype="float8_e5m2"), "ns_dtype=float8_e5m2"),
        (lambda: optim.Muon(eps=0), "eps=0 must be above 0"),
        (lambda: optim.Adafactor(beta2_decay=0.8), "beta2_decay=0.8 must be at most 0"),
        (lambda: optim.Adafactor(eps=(-1, 0)), r"eps=\(-1, 0\) must be two numbers from 0 up"),
        (lambda: optim.Adafactor(eps=3), "eps=3 must be two numbers"),
        (lambda: optim.Adafactor(d=0.5), "d=0.5 must be at least 1"),
        (lambda: optim.LARS(trust=0), "trust=0 must be above 0"),
        (lambda: optim.LAMB(betas=(0.9, 1)), r"LAMB: betas\[1\]=1"),
        (lambda: optim.NAdam(momentum_decay=-1), "momentum_decay=-1 must be at least 0"),
        (lambda: optim.Adadelta(rho=1), "rho=1 must be at least 0 and below 1"),
    ],
)
def test_bad_options(make, text):
    with pytest.raises(gf.ArgumentError) as caught:
        make()
    assert re.search(text, caught.value.summary)  # its whole text has the line of the test
    assert caught.value.fix
    assert caught.value.at.file == __file__


@pytest.mark.parametrize("given", [3, optim.Adam(clip_value=1.0)])
def test_bad_optimisers_of_groups(given):
    with gf.Graph():
        w = gf.Variable([1.0], name="w")
        group = {"parameters": [w], "optimizer": given}
        with pytest.raises(gf.ArgumentError, match="SGD: a group's optimizer "):
            optim.SGD(0.1).minimize(gf.sum(w), [group])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize(
    "make",
    [lambda lr, **o: optim.LARS(32 * lr, **o), optim.LAMB, optim.Adafactor, optim.Muon],
    ids=["LARS", "LAMB", "Adafactor", "Muon"],
)
def test_dtypes_and_empty_parameters(make, dtype):
    with gf.Graph() as g:
        shapes = [(3, 2), (2,), (), (0, 3), (3, 0), (0,)]
        variables = [
            gf.Variable(np.ones(s), name=f"w{i}", dtype=dtype) for i, s in enumerate(shapes)
        ]
        optimiser = make(0.25, weight_decay=0.5)
        train = optimiser.minimize(sum(gf.sum(v * v) for v in variables))
    assert all(s.dtype is gf.float32 for s in optimiser.variables[1:])
    with gf.Session(g, check_finite=True) as session:
        for _ in range(3):
            session.run(train)
        for v in variables:
            assert session[v].dtype == v.dtype
            assert (np.abs(session[v].astype(np.float64)) < 1).all()
        for slot in optimiser.variables[1:]:
            assert np.isfinite(session[slot]).all()
