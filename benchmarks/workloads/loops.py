"""Loops and branches: solvers, integrators, a recurrent network.

PyTorch runs them eagerly, with Python's own loops and branches; compiling those would unroll them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.frameworks import Arrays, Formula, Function
from benchmarks.workload import Contest, Maker, Target

ITERATIONS = 1000

Step = Callable[..., Any]


def _graphfw() -> Any:
    import graphfw

    return graphfw


def _torch() -> Any:
    import torch

    return torch


def _jax() -> Any:
    import jax

    return jax.numpy


def _each(function: Function) -> dict[str, Any]:
    """Return a function of (library, scan, *arrays) for each library."""
    return {
        "graphfw": functools.partial(function, _graphfw, _scan_graphfw),
        "torch": functools.partial(function, _torch, _scan_torch),
        "jax": functools.partial(function, _jax, _scan_jax),
    }


def _scan_graphfw(step: Step, init: Any, xs: Any = None) -> Any:
    return _graphfw().scan(step, init, xs, length=None if xs is not None else ITERATIONS)


def _scan_jax(step: Step, init: Any, xs: Any = None) -> Any:
    import jax

    return jax.lax.scan(step, init, xs, length=ITERATIONS)


def _scan_torch(step: Step, init: Any, xs: Any = None) -> Any:
    carry, ys = init, []
    for x in range(ITERATIONS) if xs is None else xs:
        carry, y = step(carry, x)
        ys.append(y)
    return carry, None if ys[0] is None else _torch().stack(ys)


def _to_scalar(inputs: Callable[[], Arrays]) -> Arrays:
    """Return the arguments of a function that is differentiated and yields a scalar."""
    return [*inputs(), None]


def _makers(formula: Formula) -> dict[str, Maker]:
    return {name: maker for name, maker in formula.makers().items() if name != "torch.compile"}


# Newton's method for x³ + x = a, until all of 4,096 residuals are small.  a: [4096]

TOLERANCE = 1e-6


def _newton_inputs() -> Arrays:
    return [np.random.default_rng(0).uniform(-1, 1, 4096).astype(np.float32)]


def _residual(x: Any, a: Any) -> Any:
    return x * x * x + x - a


def _newton_step(x: Any, a: Any) -> Any:
    return x - _residual(x, a) / (3 * x * x + 1)


def _newton_graphfw(a: Any) -> Any:
    import graphfw as gf

    return gf.while_loop(
        lambda x: gf.max(gf.abs(_residual(x, a))) >= TOLERANCE, lambda x: _newton_step(x, a), a
    )


def _newton_torch(a: Any) -> Any:
    x = a
    while _residual(x, a).abs().max() >= TOLERANCE:
        x = _newton_step(x, a)
    return x


def _newton_jax(a: Any) -> Any:
    import jax

    return jax.lax.while_loop(
        lambda x: jax.numpy.max(jax.numpy.abs(_residual(x, a))) >= TOLERANCE,
        lambda x: _newton_step(x, a),
        a,
    )


NEWTON = Formula(_newton_inputs, _newton_graphfw, torch=_newton_torch, jax=_newton_jax)


def _newton_error(newton: Function, a: Any) -> Any:
    return (newton(a) ** 2).sum()


def _newton_error_graphfw(a: Any) -> Any:
    import graphfw as gf

    return gf.sum(_newton_graphfw(a) ** 2)


# JAX has no gradient of a while_loop.
NEWTON_GRADIENT = Formula(
    functools.partial(_to_scalar, _newton_inputs),
    _newton_error_graphfw,
    torch=functools.partial(_newton_error, _newton_torch),
    wrt=(0,),
)


# Runge and Kutta's method of fourth order


def _rk4(slope: Callable[[Any], Any], y: Any, h: float) -> Any:
    k1 = slope(y)
    k2 = slope(y + (h / 2) * k1)
    k3 = slope(y + (h / 2) * k2)
    k4 = slope(y + h * k3)
    return y + (h / 6) * (k1 + 2 * k2 + 2 * k3 + k4)


# Lorenz's attractor from 64 points, for so short that rounding doesn't decide.  start: [3, 64]


def _lorenz_inputs() -> Arrays:
    rng = np.random.default_rng(1)
    return [
        rng.uniform(5, 15, (3, 64)).astype(np.float32),
        np.array([10, 28, 8 / 3], np.float32),
    ]


def _lorenz(library: Step, scan: Step, start: Any, parameters: Any) -> Any:
    xp = library()
    sigma, rho, beta = parameters[0], parameters[1], parameters[2]

    def slope(state: Any) -> Any:
        x, y, z = state[0], state[1], state[2]
        return xp.stack([sigma * (y - x), x * (rho - z) - y, x * y - beta * z])

    def step(state: Any, _: Any) -> Any:
        state = _rk4(slope, state, 1e-3)
        return state, state

    return scan(step, start)[1]


def _lorenz_error(library: Step, scan: Step, start: Any, parameters: Any) -> Any:
    xp = library()
    return xp.mean(_lorenz(library, scan, start, parameters) ** 2)


LORENZ = Formula(_lorenz_inputs, **_each(_lorenz))
LORENZ_GRADIENT = Formula(
    functools.partial(_to_scalar, _lorenz_inputs), **_each(_lorenz_error), wrt=(0, 1)
)


# A neural vector field 2-50-2 from 64 points.  start: [64, 2]


def _field_inputs() -> Arrays:
    rng = np.random.default_rng(2)
    start = rng.uniform(-1, 1, (64, 2)).astype(np.float32)
    w1 = rng.standard_normal((2, 50), np.float32)
    w2 = rng.standard_normal((50, 2), np.float32) / 7
    return [start, w1, np.zeros(50, np.float32), w2, np.zeros(2, np.float32)]


def _field(library: Step, scan: Step, start: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    xp = library()

    def slope(y: Any) -> Any:
        return xp.tanh(y @ w1 + b1) @ w2 + b2

    def step(y: Any, _: Any) -> Any:
        y = _rk4(slope, y, 2e-3)
        return y, y

    return scan(step, start)[1]


def _field_error(library: Step, scan: Step, *arrays: Any) -> Any:
    xp = library()
    return xp.mean(_field(library, scan, *arrays) ** 2)


FIELD = Formula(_field_inputs, **_each(_field))
FIELD_GRADIENT = Formula(
    functools.partial(_to_scalar, _field_inputs), **_each(_field_error), wrt=(0, 1, 2, 3, 4)
)


# A recurrent network.  x: [1000, 32, 128], u, w: [128, 128]; what x adds is computed at once


def _rnn_inputs() -> Arrays:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((ITERATIONS, 32, 128), np.float32)
    u, w = (rng.standard_normal((128, 128), np.float32) / 12 for _ in range(2))
    return [x, u, w, np.zeros(128, np.float32), None]


def _rnn(library: Step, scan: Step, x: Any, u: Any, w: Any, b: Any) -> Any:
    xp = library()

    def step(h: Any, given: Any) -> Any:
        h = xp.tanh(given + h @ w)
        return h, h

    return xp.mean(scan(step, xp.zeros((32, 128)), x @ u + b)[1] ** 2)


def _rnn_torch(x: Any, u: Any, w: Any, b: Any) -> Any:
    torch = _torch()
    held = [u.T, w.T, b, torch.zeros_like(b)]
    hs, _ = torch.rnn_tanh(
        x, torch.zeros(1, 32, 128), held, True, 1, 0.0, True, False, batch_first=False
    )
    return torch.mean(hs**2)


RNN = Formula(_rnn_inputs, **{**_each(_rnn), "torch": _rnn_torch}, wrt=(0, 1, 2, 3))


# A pendulum whose speed and angle are updated in turn.  start: [2, 256]


def _turns_inputs() -> Arrays:
    rng = np.random.default_rng(4)
    return [rng.uniform(-1, 1, 256).astype(np.float32) for _ in range(2)]


def _kicked(xp: Any, state: Any) -> Any:
    angle, speed = state
    return angle, speed - 0.01 * xp.sin(angle)


def _drifted(state: Any) -> Any:
    angle, speed = state
    return angle + 0.01 * speed, speed


def _turns_graphfw(angle: Any, speed: Any) -> Any:
    import graphfw as gf

    def step(state: Any, number: Any) -> Any:
        kick = functools.partial(_kicked, gf)
        return gf.cond(number % 2 == 0, kick, _drifted, state), None

    return [*gf.scan(step, (angle, speed), gf.arange(ITERATIONS))[0]]


def _turns_torch(angle: Any, speed: Any) -> Any:
    state = (angle, speed)
    for number in range(ITERATIONS):
        state = _kicked(_torch(), state) if number % 2 == 0 else _drifted(state)
    return [*state]


def _turns_jax(angle: Any, speed: Any) -> Any:
    import jax

    def step(state: Any, number: Any) -> Any:
        kick = functools.partial(_kicked, jax.numpy)
        return jax.lax.cond(number % 2 == 0, kick, _drifted, state), None

    return [*jax.lax.scan(step, (angle, speed), jax.numpy.arange(ITERATIONS))[0]]


TURNS = Formula(_turns_inputs, _turns_graphfw, torch=_turns_torch, jax=_turns_jax)


# The least that a trip can do: what is left is what the loop takes.


def _sines(library: Function, scan: Function, x: Any) -> Any:
    return scan(lambda carry, _: (library().sin(carry), None), x)[0]


def _one() -> Arrays:
    return [np.ones((), np.float32)]


TRIPPED = Formula(_one, **_each(_sines))


def _contest(name: str, title: str, formula: Formula) -> Contest:
    return Contest(name, title, _makers(formula), (Target(0.8),), rtol=2e-3, atol=1e-4)


WORKLOADS = [
    _contest("scan-trips", "1,000 trips of a scan, the sine of one number", TRIPPED),
    _contest("newton-while", "Newton's method on 4,096 cubics, while a residual is large", NEWTON),
    _contest("newton-while-grad", "the same with its gradient", NEWTON_GRADIENT),
    _contest("ode-scan-lorenz", "1,000 RK4 steps of Lorenz's system, batch 64", LORENZ),
    _contest("ode-scan-lorenz-grad", "the same with its gradient", LORENZ_GRADIENT),
    _contest("ode-scan-neural", "1,000 RK4 steps of a field 2-50-2, batch 64", FIELD),
    _contest("ode-scan-neural-grad", "the same with its gradient", FIELD_GRADIENT),
    _contest("rnn-scan-1000", "tanh RNN, 1,000 steps, batch 32, width 128, gradients", RNN),
    _contest("cond-branch", "1,000 trips of a scan with a branch, 256 pendulums", TURNS),
]
