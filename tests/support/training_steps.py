"""Optimisers step by step beside PyTorch's, or beside a formula: one loss, from the same starts."""

import numpy as np
import pytest

import graphfw as gf

torch = pytest.importorskip("torch")
STEPS = 12
SHAPES = ((4, 3), (5,), ())


def problem_of(rng, shapes=SHAPES):
    """Return where the parameters start, and the data of each step."""
    starts = [np.asarray(rng.standard_normal(shape)) for shape in shapes]
    data = [[np.asarray(rng.standard_normal(shape)) for shape in shapes] for _ in range(STEPS)]
    return starts, data


def loss_terms(params, data, xp):
    """A loss that is not quadratic, with gradients of both signs and of several sizes."""
    total = 0
    for number, (p, d) in enumerate(zip(params, data, strict=True), 1):
        total = total + xp.sum((p - d) ** 2 * number + xp.sin(3 * p) * 0.5)
    return total


def ours(make, starts, data, dtype, parameters=None):
    with gf.Graph() as g:
        variables = [gf.Variable(s, name=f"p{i}", dtype=dtype) for i, s in enumerate(starts)]
        target = [gf.placeholder(s.shape, dtype, name=f"d{i}") for i, s in enumerate(starts)]
        loss = loss_terms(variables, target, gf)
        train = make().minimize(loss, parameters(variables) if parameters else None)
    history = []
    with gf.Session(g) as session:
        for arrays in data:
            session.run(train, {t: a.astype(dtype) for t, a in zip(target, arrays, strict=True)})
            history.append([session[v] for v in variables])
    return history


def theirs(make, starts, data, dtype, schedule=None):
    kind = torch.float32 if dtype == "float32" else torch.float64
    before = torch.get_default_dtype()
    torch.set_default_dtype(kind)  # of scalars that some remember, such as NAdam's product
    try:
        return list(_steps(make, starts, data, kind, schedule))
    finally:
        torch.set_default_dtype(before)


def _steps(make, starts, data, kind, schedule):
    params = [torch.tensor(s, dtype=kind, requires_grad=True) for s in starts]
    optimiser = make(params)
    scheduler = schedule(optimiser) if schedule else None
    for arrays in data:
        optimiser.zero_grad()
        loss_terms(params, [torch.tensor(a, dtype=kind) for a in arrays], torch).backward()
        optimiser.step()
        if scheduler:
            scheduler.step()
        yield [p.detach().numpy().copy() for p in params]


def same(got, expected, dtype):
    tolerance = {"float32": 1e-5, "float64": 1e-12}[dtype]
    for step, (a, b) in enumerate(zip(got, expected, strict=True), 1):
        for x, y in zip(a, b, strict=True):
            assert x.dtype == dtype
            np.testing.assert_allclose(x, y, tolerance, tolerance, err_msg=f"step {step}")
