"""Graphs so small that only the way to them counts."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks import devices
from benchmarks.frameworks import Array, Arrays, Formula, torch_module, torch_tensors
from benchmarks.workload import Case, Contest, Target

BATCH, FEATURES, RATE = 32, 64, 0.1

_TWO = np.float32(2)


# exp(x) · 2 on 16 floats


def _sixteen() -> Arrays:
    return [np.linspace(-1, 1, 16, dtype=np.float32)]


def _two_graphfw(x: Any) -> Any:
    import graphfw as gf

    return gf.exp(x) * 2.0


def _two_numpy(x: Any) -> Any:
    return np.exp(x) * _TWO


def _two_torch(x: Any) -> Any:
    return x.exp() * 2.0


def _two_jax(x: Any) -> Any:
    import jax

    return jax.numpy.exp(x) * 2.0


def _two_numexpr(x: Any, out: Any) -> Any:
    import numexpr

    return numexpr.evaluate("exp(x) * two", {"x": x, "two": _TWO}, out=out)


def _two_pytensor(x: Any) -> Any:
    from pytensor import tensor as pt

    return pt.exp(x) * _TWO


TWO = Formula(_sixteen, _two_graphfw, _two_numpy, _two_torch, _two_jax, _two_numexpr, _two_pytensor)


# The same, called as a function of arrays


def _called_graphfw() -> Case:
    import graphfw as gf

    return Case(functools.partial(gf.function(_two_graphfw), *_sixteen()))


def _called_jax() -> Case:
    import jax

    compiled = jax.jit(_two_jax)
    (x,) = map(jax.numpy.asarray, _sixteen())
    return Case(lambda: compiled(x).block_until_ready())


CALLED = {"graphfw": _called_graphfw, "torch": TWO.makers()["torch"], "jax": _called_jax}


# A step of logistic regression by gradient descent.  x: [32, 64], y: [32] in {0, 1}


def _data() -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, BATCH).astype(np.float32)
    return rng.standard_normal((BATCH, FEATURES), np.float32), labels


def _step_graphfw() -> Case:
    import graphfw as gf

    data = devices.given(_data())
    with gf.Graph() as graph:
        x = gf.placeholder(("batch", FEATURES), name="x")
        y = gf.placeholder(("batch",), name="y")
        w = gf.Variable(np.zeros(FEATURES, np.float32), name="w")
        b = gf.Variable(np.float32(0), name="b")
        loss = gf.nn.bce_with_logits(x @ w + b, y)
        train = gf.optim.SGD(RATE).minimize(loss)
    plan = devices.session(graph).compile([loss, train], feeds=[x, y])
    return Case(lambda: plan(*data)[0])


def _step_numpy() -> Case:
    x, y = _data()
    w, b = np.zeros(FEATURES, np.float32), np.float32(0)
    scale, zero = np.float32(RATE / BATCH), np.float32(0)

    def step() -> object:
        nonlocal b
        z = x @ w + b
        e = np.exp(-np.abs(z))
        loss = np.mean(np.maximum(z, zero) - z * y + np.log1p(e))
        d = 1 / (1 + np.exp(-z)) - y
        w[:] -= scale * (d @ x)
        b -= scale * d.sum()
        return loss

    return Case(step)


def _step_torch(compiled: bool) -> Case:
    torch = torch_module()
    torch.set_grad_enabled(True)
    x, y, w, b = torch_tensors([*_data(), np.zeros(FEATURES, np.float32), np.zeros((), np.float32)])
    w.requires_grad_(), b.requires_grad_()

    def loss_of() -> Any:
        return torch.nn.functional.binary_cross_entropy_with_logits(torch.addmv(b, x, w), y)

    if compiled:
        torch.compiler.reset()
        loss_of = devices.compiled(loss_of)

    def step() -> object:
        loss = loss_of()
        dw, db = torch.autograd.grad(loss, (w, b))
        with torch.no_grad():
            w.sub_(dw, alpha=RATE)
            b.sub_(db, alpha=RATE)
        return loss.detach()

    return Case(step)


def _step_jax() -> Case:
    import jax
    from jax import numpy as jnp

    def loss_of(held: Any, x: Any, y: Any) -> Any:
        w, b = held
        z = x @ w + b
        return jnp.mean(jax.nn.softplus(z) - z * y)

    def update(held: Any, x: Any, y: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(held, x, y)
        return loss, [p - RATE * g for p, g in zip(held, gradients, strict=True)]

    data = [jax.device_put(a) for a in _data()]
    held = [[jnp.zeros(FEATURES), jnp.float32(0)]]
    compiled = jax.jit(update, donate_argnums=0)

    def step() -> object:
        loss, held[0] = compiled(held[0], *data)
        return devices.waited(loss)

    return Case(step)


def _step_pytensor() -> Case:
    import pytensor
    from pytensor import tensor as pt

    data = _data()
    x, y = pt.fmatrix("x"), pt.fvector("y")
    w = pytensor.shared(np.zeros(FEATURES, np.float32))
    b = pytensor.shared(np.float32(0))
    z = x @ w + b
    loss = (pt.softplus(z) - z * y).sum() * np.float32(1 / BATCH)
    gradients = pytensor.grad(loss, [w, b])
    updates = {p: p - np.float32(RATE) * g for p, g in zip((w, b), gradients, strict=True)}
    compiled = pytensor.function([x, y], loss, updates=updates)
    return Case(lambda: compiled(*data))


WORKLOADS = [
    Contest("two-ops", "exp(x) · 2 on 16 floats", TWO.makers(), (Target(1.0, "torch"),), atol=1e-5),
    Contest(
        "function-call",
        "a function of 16 floats: gf.function, jax.jit",
        CALLED,
        (Target(1.0, "jax"),),
        atol=1e-5,
    ),
    Contest(
        "logistic-step",
        f"logistic-regression training step, batch {BATCH}, {FEATURES} features",
        {
            "graphfw": _step_graphfw,
            "numpy": _step_numpy,
            "torch": functools.partial(_step_torch, False),
            "torch.compile": functools.partial(_step_torch, True),
            "jax": _step_jax,
            "pytensor": _step_pytensor,
        },
        (Target(1.0, "torch"), Target(40e-6, "seconds")),
        checks=5,
    ),
]
