"""SOAP beside the published algorithm in NumPy, and beside AdamW where it has no bases."""

import numpy as np
import pytest

import graphfw as gf
from graphfw import optim
from tests.support.training_steps import ours, problem_of, same, theirs

torch = pytest.importorskip("torch")
LR, BETAS, EPS = 0.05, (0.9, 0.8), 1e-6


def in_bases(x, bases, transposed):
    for axis, basis in enumerate(bases):
        x = np.moveaxis(np.tensordot(basis.T if transposed else basis, x, (1, axis)), 0, axis)
    return x


def reference(starts, data, frequency, shampoo_beta, decay):
    """Algorithm 3 of the paper, whose first update makes the bases alone."""
    params = [s.copy() for s in starts]
    b1, b2 = BETAS
    states, history = [], []
    for count, arrays in enumerate(data):
        for i, d in enumerate(arrays):
            p = params[i]
            g = 2 * (i + 1) * (p - d) + 1.5 * np.cos(3 * p)
            axes = range(p.ndim) if p.ndim > 1 else ()
            others = [tuple(j for j in axes if j != axis) for axis in axes]
            grams = [np.tensordot(g, g, (rest, rest)) * (1 - shampoo_beta) for rest in others]
            if count == 0:
                bases = [np.linalg.eigh(gram)[1] for gram in grams]
                states.append([0.0, 0.0, grams, bases])
                continue
            m, v, old, bases = states[i]
            m = b1 * m + (1 - b1) * g
            v = b2 * v + (1 - b2) * in_bases(g, bases, True) ** 2
            unbiased = m / (1 - b1**count), v / (1 - b2**count)
            step = in_bases(unbiased[0], bases, True) / (np.sqrt(unbiased[1]) + EPS)
            params[i] = np.asarray(p - LR * decay * p - LR * in_bases(step, bases, False))
            grams = [shampoo_beta * a + b for a, b in zip(old, grams, strict=True)]
            if count % frequency == 0:
                bases = [np.linalg.qr(a @ q)[0] for a, q in zip(grams, bases, strict=True)]
            states[i] = [m, v, grams, bases]
        history.append([p.copy() for p in params])
    return history


@pytest.mark.parametrize(("frequency", "shampoo_beta", "decay"), [(1, None, 0.0), (3, 0.7, 0.1)])
def test_against_the_paper(rng, frequency, shampoo_beta, decay):
    starts, data = problem_of(rng, ((4, 3), (3, 3), (5,), (), (2, 3, 4)))

    def make():
        return optim.SOAP(
            LR, BETAS, EPS, shampoo_beta=shampoo_beta, precondition_frequency=frequency,
            weight_decay=decay,
        )  # fmt: skip

    beta = BETAS[1] if shampoo_beta is None else shampoo_beta
    expected = reference(starts, data, frequency, beta, decay)
    got = ours(make, starts, data, "float64")
    for a, b in zip(got, expected, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(x, y, 1e-7, 1e-7)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_without_bases_it_is_adamw_after_its_first_step(rng, dtype):
    starts, data = problem_of(rng)
    got = ours(lambda: optim.SOAP(0.1, max_precond_dim=1, weight_decay=0.0), starts, data, dtype)
    expected = theirs(
        lambda p: torch.optim.AdamW(p, 0.1, (0.95, 0.95), weight_decay=0.0), starts, data[1:], dtype
    )
    same(got[1:], expected, dtype)


def test_names_of_slots_and_halves(rng):
    with gf.Graph() as g:
        w = gf.Variable(rng.uniform(1, 2, (2, 3)), name="w", dtype="bfloat16")
        optimiser = optim.SOAP(max_precond_dim=2)
        train = optimiser.minimize(gf.sum(w * w))
    names = [v.name for v in optimiser.variables]
    assert names == ["soap.step", *[f"soap.{n}.w" for n in ("m", "v", "gram_0", "basis_0")]]
    with gf.Session(g) as session:
        before = np.sum(session[w].astype("float32") ** 2)
        for _ in range(9):
            session.run(train)
        assert np.sum(session[w].astype("float32") ** 2) < before


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"eps": 0.0}, "eps=0.0 must be above 0"),
        ({"shampoo_beta": 1.0}, "shampoo_beta=1.0 must be at least 0 and below 1"),
        ({"precondition_frequency": 0}, "precondition_frequency=0 must be an int"),
        ({"max_precond_dim": 2.5}, "max_precond_dim=2.5 must be an int"),
    ],
)
def test_numbers_that_make_no_sense(options, text):
    with pytest.raises(gf.ArgumentError) as caught:
        optim.SOAP(**options)
    assert text in caught.value.summary
