"""An LSTM over 1,000 steps, and its gradients: batch 32, 128 inputs, 256 hidden."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.frameworks import Array, Described, torch_module
from benchmarks.workload import Case, Contest, Maker, Target

STEPS, BATCH, INPUTS, HIDDEN = 1000, 32, 128, 256


def data() -> tuple[Array, Array]:
    """Return the input, and a cotangent of the outputs."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((STEPS, BATCH, INPUTS), np.float32)
    return x, rng.standard_normal((STEPS, BATCH, HIDDEN), np.float32) * np.float32(0.01)


def weights() -> dict[str, Array]:
    """Return the weights as graphfw has them: matrices are the other way round in PyTorch."""
    rng = np.random.default_rng(1)
    gates = 4 * HIDDEN
    shapes = {
        "weight_ih_l0": (INPUTS, gates),
        "weight_hh_l0": (HIDDEN, gates),
        "bias_ih_l0": (gates,),
        "bias_hh_l0": (gates,),
    }
    bound = HIDDEN**-0.5
    return {
        name: rng.uniform(-bound, bound, shape).astype(np.float32) for name, shape in shapes.items()
    }


def described(backward: bool) -> tuple[Described, Any]:
    """Describe the layer to graphfw; returns the layer too."""
    import graphfw as gf

    with gf.Graph() as graph:
        x = gf.placeholder((STEPS, BATCH, INPUTS), name="x")
        ct = gf.placeholder((STEPS, BATCH, HIDDEN), name="ct")
        lstm = gf.nn.LSTM(INPUTS, HIDDEN)
        y, _ = lstm(x)
        if not backward:
            return Described(graph, [y], [x]), lstm
        gradients = gf.grad(y, [x, *lstm.parameters()], ct)
    return Described(graph, [y, *gradients], [x, ct]), lstm


def graphfw_case(backward: bool) -> Case:
    """Run the layer."""
    import graphfw as gf

    (graph, fetches, feeds), lstm = described(backward)
    session = gf.Session(graph, verify="off")
    lstm.load_state_dict(session, weights())
    plan = session.compile(fetches, feeds=feeds)
    arrays = data()[: len(feeds)]
    return Case(lambda: plan(*arrays))


def torch_case(backward: bool) -> Case:
    """Run the layer that PyTorch has; torch.compile leaves it as it is."""
    torch = torch_module()
    torch.set_grad_enabled(backward)
    x, ct = map(torch.from_numpy, data())
    lstm = torch.nn.LSTM(INPUTS, HIDDEN)
    lstm.load_state_dict({name: torch.from_numpy(a.T.copy()) for name, a in weights().items()})
    if not backward:
        return Case(lambda: [lstm(x)[0]])
    leaves = [x.requires_grad_(), *lstm.parameters()]

    def run() -> object:
        y = lstm(x)[0]
        found = torch.autograd.grad(y, leaves, ct)
        return [y.detach(), found[0], *[g.T if g.ndim == 2 else g for g in found[1:]]]

    return Case(run)


def jax_function(backward: bool) -> tuple[Any, list[Any]]:
    """Return jax.lax.scan in a function, with the inputs' product before it, and its arguments."""
    import jax
    from jax import numpy as jnp

    def lstm(x: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
        def step(state: Any, z: Any) -> Any:
            h, c = state
            i, f, g, o = jnp.split(z + h @ w_hh, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        first = jnp.zeros((BATCH, HIDDEN))
        return jax.lax.scan(step, (first, first), x @ w_ih + (b_ih + b_hh))[1]

    def pulled(ct: Any, *given: Any) -> Any:
        y, pull = jax.vjp(lstm, *given)
        return [y, *pull(ct)]

    x, ct = map(jax.device_put, data())
    given = [x, *map(jax.device_put, weights().values())]
    if backward:
        return jax.jit(pulled), [ct, *given]
    return jax.jit(lambda *given: [lstm(*given)]), given


def jax_case(backward: bool) -> Case:
    """Run it."""
    import jax

    compiled, given = jax_function(backward)
    return Case(lambda: jax.block_until_ready(compiled(*given)))


CASES: dict[str, Callable[[bool], Case]] = {
    "graphfw": graphfw_case,
    "torch": torch_case,
    "jax": jax_case,
}


def _makers(backward: bool) -> dict[str, Maker]:
    return {name: functools.partial(make, backward) for name, make in CASES.items()}


_SIZE = f"{STEPS} steps, batch {BATCH}, {INPUTS} inputs, {HIDDEN} hidden"

WORKLOADS = [
    Contest("lstm", f"LSTM, {_SIZE}", _makers(False), (Target(0.8),), rtol=1e-3, atol=1e-4),
    Contest(
        "lstm-grad",
        f"LSTM and its gradients, {_SIZE}",
        _makers(True),
        (Target(0.8),),
        rtol=1e-3,
        atol=1e-4,
    ),
]
