"""Optimisers' steps: Adam, Adafactor and Muon with given gradients, and fits by L-BFGS."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks import devices
from benchmarks.frameworks import Array, torch_module, torch_tensors
from benchmarks.machine import cores
from benchmarks.workload import Case, Contest, Target

RATE, BETA1, BETA2, EPS = 1e-3, 0.9, 0.999, 1e-8


class Size(NamedTuple):
    """A transformer's."""

    width: int
    blocks: int

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Its parameters' shapes."""
        w = self.width
        products = [(w, 3 * w), (3 * w,), (w, w), (w,), (w, 4 * w), (4 * w,), (4 * w, w), (w,)]
        return [*products, (w,), (w,)] * self.blocks


def _arrays(size: Size, seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape, np.float32) for shape in size.shapes]


def _graphfw_adam() -> Any:
    import graphfw as gf

    return gf.optim.Adam(RATE)


def _graphfw(optimiser: Callable[[], Any], size: Size) -> Case:
    import graphfw as gf

    with gf.Graph() as graph:
        parameters = [gf.Variable(a, name=f"p{i}") for i, a in enumerate(_arrays(size, 0))]
        gradients = [
            gf.Variable(a, f"g{i}", trainable=False) for i, a in enumerate(_arrays(size, 1))
        ]
        pairs = list(zip(gradients, parameters, strict=True))
        step = optimiser().apply_gradients(pairs)
    session = devices.session(graph)
    plan = session.compile(step)

    def check() -> object:
        plan()
        return [session[p] for p in parameters[:4]]

    return Case(plan, check)


def _checked(step: Any, parameters: list[Any]) -> Case:
    def check() -> object:
        step()
        return [p.copy() if isinstance(p, np.ndarray) else p for p in parameters[:4]]

    return Case(step, check)


def _numpy(size: Size) -> Case:
    """Go by blocks that stay in the cache."""
    parameters, gradients = _arrays(size, 0), _arrays(size, 1)
    means = [np.zeros_like(p) for p in parameters]
    squares = [np.zeros_like(p) for p in parameters]
    flat = [[a.reshape(-1) for a in arrays] for arrays in (parameters, gradients, means, squares)]
    block = 32_768
    scratch = np.empty((2, block), np.float32)
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        rate = np.float32(RATE / (1 - BETA1**count))
        root = np.float32((1 - BETA2**count) ** -0.5)
        for whole in zip(*flat, strict=True):
            for first in range(0, whole[0].size, block):
                p, g, m, v = (a[first : first + block] for a in whole)
                t, d = scratch[:, : p.size]
                np.subtract(g, m, out=t)
                t *= np.float32(1 - BETA1)
                m += t
                np.square(g, out=t)
                t *= np.float32(1 - BETA2)
                v *= np.float32(BETA2)
                v += t
                np.sqrt(v, out=d)
                d *= root
                d += np.float32(EPS)
                np.divide(m, d, out=d)
                d *= rate
                p -= d

    return _checked(step, parameters)


def _torch(compiled: bool, size: Size) -> Case:
    """Take the fused optimiser; compiled, the plain one, which inductor fuses."""
    torch = torch_module()
    torch.set_grad_enabled(True)
    parameters = [torch.nn.Parameter(t) for t in torch_tensors(_arrays(size, 0))]
    for parameter, gradient in zip(parameters, torch_tensors(_arrays(size, 1)), strict=True):
        parameter.grad = gradient
    betas = (BETA1, BETA2)
    if not compiled:
        step = torch.optim.Adam(parameters, RATE, betas, EPS, fused=True).step
    else:
        torch.compiler.reset()
        step = devices.compiled(torch.optim.Adam(parameters, RATE, betas, EPS, foreach=True).step)

    def check() -> object:
        step()
        return [p.detach().clone() for p in parameters[:4]]

    return Case(step, check)


def _jax(size: Size) -> Case:
    import jax
    from jax import numpy as jnp

    def update(state: Any, gradients: Any) -> Any:
        count, parameters, means, squares = state
        count = count + 1
        means = [m + (g - m) * (1 - BETA1) for m, g in zip(means, gradients, strict=True)]
        squares = [v * BETA2 + g * g * (1 - BETA2) for v, g in zip(squares, gradients, strict=True)]
        rate, root = RATE / (1 - BETA1**count), jnp.sqrt(1 - BETA2**count)
        moved = [
            p - rate * (m / (jnp.sqrt(v) / root + EPS))
            for p, m, v in zip(parameters, means, squares, strict=True)
        ]
        return count, moved, means, squares

    parameters = [jax.device_put(a) for a in _arrays(size, 0)]
    gradients = [jax.device_put(a) for a in _arrays(size, 1)]
    zeros = [jnp.zeros_like(p) for p in parameters]
    state = [(jnp.float32(0), parameters, zeros, [jnp.copy(z) for z in zeros])]
    compiled = jax.jit(update, donate_argnums=0)

    def step() -> None:
        state[0] = devices.waited(compiled(state[0], gradients))

    def check() -> object:
        step()
        return [np.array(p) for p in state[0][1][:4]]

    return Case(step, check)


def _numexpr(size: Size) -> Case:
    import numexpr

    numexpr.set_num_threads(len(cores()))
    parameters, gradients = _arrays(size, 0), _arrays(size, 1)
    means = [np.zeros_like(p) for p in parameters]
    squares = [np.zeros_like(p) for p in parameters]
    numbers = {"c": np.float32(1 - BETA1), "d": np.float32(1 - BETA2), "b": np.float32(BETA2)}
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        numbers["rate"] = np.float32(RATE / (1 - BETA1**count))
        numbers["root"] = np.float32((1 - BETA2**count) ** 0.5)
        numbers["e"] = np.float32(EPS)
        for p, g, m, v in zip(parameters, gradients, means, squares, strict=True):
            names = {"p": p, "g": g, "m": m, "v": v, **numbers}
            numexpr.evaluate("m + (g - m) * c", names, out=m)
            numexpr.evaluate("v * b + g * g * d", names, out=v)
            numexpr.evaluate("p - rate * (m / (sqrt(v) / root + e))", names, out=p)

    return _checked(step, parameters)


_CONTENDERS: dict[str, Callable[[Size], Case]] = {
    "graphfw": functools.partial(_graphfw, _graphfw_adam),
    "numpy": _numpy,
    "torch": functools.partial(_torch, False),
    "torch.compile": functools.partial(_torch, True),
    "jax": _jax,
    "numexpr": _numexpr,
}


def contest(name: str, size: Size, targets: tuple[Target, ...]) -> Contest:
    """Return the workload of a size."""
    millions = sum(map(math.prod, size.shapes)) / 1e6
    return Contest(
        name,
        f"Adam's step on {millions:.1f}M parameters in {len(size.shapes)} tensors",
        {who: functools.partial(maker, size) for who, maker in _CONTENDERS.items()},
        targets,
        rtol=1e-4,
        atol=1e-5,
        checks=3,
    )


class Matrices(Size):
    """A transformer's, of which only the matrices are trained."""

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Its matrices' shapes."""
        return [shape for shape in super().shapes if len(shape) == 2]


def _named_graphfw(name: str, size: Size) -> Case:
    import graphfw as gf

    return _graphfw(lambda: getattr(gf.optim, name)(RATE), size)


def _named_torch(name: str, size: Size) -> Case:
    torch = torch_module()
    torch.set_grad_enabled(True)
    parameters = [torch.nn.Parameter(t) for t in torch_tensors(_arrays(size, 0))]
    for parameter, gradient in zip(parameters, torch_tensors(_arrays(size, 1)), strict=True):
        parameter.grad = gradient
    step = getattr(torch.optim, name)(parameters, RATE).step

    def check() -> object:
        step()
        return [p.detach().clone() for p in parameters[:4]]

    return Case(step, check)


def _named(name: str, size: Size, atol: float) -> Contest:
    """Return the workload of a rule that PyTorch has by the same name, with the same numbers."""
    millions = sum(map(math.prod, size.shapes)) / 1e6
    makers = {"graphfw": _named_graphfw, "torch": _named_torch}
    return Contest(
        name.lower(),
        f"{name}'s step on {millions:.1f}M parameters in {len(size.shapes)} tensors",
        {who: functools.partial(maker, name, size) for who, maker in makers.items()},
        (Target(0.9),),
        rtol=1e-4,
        atol=atol,
        checks=3,
    )


ROWS, INPUTS, HIDDEN, ITERATIONS = 2000, 30, 40, 20


def _regression() -> list[Array]:
    """Return inputs, outputs, and the weights to begin with."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, INPUTS), np.float32)
    y = np.tanh(x @ rng.standard_normal((INPUTS, 1), np.float32))
    first = rng.standard_normal((INPUTS, HIDDEN), np.float32) / INPUTS**0.5
    return [x, y, first, rng.standard_normal((HIDDEN, 1), np.float32) / HIDDEN**0.5]


def _lbfgs_graphfw() -> Case:
    import graphfw as gf

    arrays = _regression()
    with gf.Graph() as graph:
        x, y = [gf.Variable(a, f"d{i}", trainable=False) for i, a in enumerate(arrays[:2])]
        starts = [gf.Variable(a, f"s{i}", trainable=False) for i, a in enumerate(arrays[2:])]
        weights = [gf.Variable(a, name=f"w{i}") for i, a in enumerate(arrays[2:])]
        loss = gf.mean((gf.tanh(x @ weights[0]) @ weights[1] - y) ** 2)
        optimiser = gf.optim.LBFGS(max_iterations=ITERATIONS)
        step = optimiser.minimize(loss)
        begin = gf.group(
            *[gf.update(w, s) for w, s in zip(weights, starts, strict=True)],
            *[gf.update(v, gf.zeros_like(v)) for v in optimiser.variables],
        )
    session = devices.session(graph)
    plans = [session.compile(begin), session.compile(step), session.compile(loss)]

    def run() -> None:
        plans[0]()
        plans[1]()

    def check() -> object:
        run()
        return plans[2]()

    return Case(run, check)


def _lbfgs_torch() -> Case:
    torch = torch_module()
    torch.set_grad_enabled(True)
    x, y, *starts = torch_tensors(_regression())
    weights = [torch.nn.Parameter(s.clone()) for s in starts]

    def loss() -> Any:
        return ((torch.tanh(x @ weights[0]) @ weights[1] - y) ** 2).mean()

    def run() -> None:
        with torch.no_grad():
            for weight, start in zip(weights, starts, strict=True):
                weight.copy_(start)
        optimiser = torch.optim.LBFGS(
            weights,
            max_iter=ITERATIONS,
            max_eval=25 * ITERATIONS,
            history_size=10,
            line_search_fn="strong_wolfe",
        )

        def closure() -> Any:
            optimiser.zero_grad()
            value = loss()
            value.backward()
            return value

        optimiser.step(closure)

    def check() -> object:
        run()
        return loss().detach()

    return Case(run, check)


LBFGS = Contest(
    "lbfgs",
    f"{ITERATIONS} iterations of L-BFGS on a network of {INPUTS * HIDDEN + HIDDEN} weights, "
    f"with {ROWS} examples",
    {"graphfw": _lbfgs_graphfw, "torch": _lbfgs_torch},
    (Target(0.9),),
    rtol=0.05,  # rounding takes the iterates apart
)

WORKLOADS = [
    contest("adam", Size(384, 6), (Target(0.9),)),
    _named("Adafactor", Size(384, 6), 1e-5),
    _named("Muon", Matrices(384, 6), 1e-4),
    LBFGS,
]
