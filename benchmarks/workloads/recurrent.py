"""An LSTM over 1,000 steps, and its gradients: batch 32, 128 inputs, 256 hidden."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.frameworks import Array, Described, plan_case, torch_module
from benchmarks.workload import Case, Contest, Maker, Target

_GATES = {"lstm": 4, "gru": 3}


@dataclass(frozen=True)
class Layer:
    """A recurrent layer and what it is given.

    Attributes:
        cell: "lstm" or "gru".
        steps, batch, inputs, hidden: The sizes.
    """

    cell: str
    steps: int
    batch: int
    inputs: int
    hidden: int

    def __str__(self) -> str:
        """Say the sizes."""
        text = f"{self.cell.upper()}, {self.steps:,} steps, batch {self.batch}, "
        return text + f"{self.inputs} inputs, {self.hidden} hidden"

    def data(self) -> tuple[Array, Array]:
        """Return the input, and a cotangent of the outputs."""
        rng = np.random.default_rng(0)
        x = rng.standard_normal((self.steps, self.batch, self.inputs), np.float32)
        ct = rng.standard_normal((self.steps, self.batch, self.hidden), np.float32)
        return x, ct * np.float32(0.01)

    def weights(self) -> dict[str, Array]:
        """Return the weights as graphfw has them: matrices are the other way round in PyTorch."""
        rng = np.random.default_rng(1)
        gates = _GATES[self.cell] * self.hidden
        shapes = {
            "weight_ih_l0": (self.inputs, gates),
            "weight_hh_l0": (self.hidden, gates),
            "bias_ih_l0": (gates,),
            "bias_hh_l0": (gates,),
        }
        bound = self.hidden**-0.5
        return {
            name: rng.uniform(-bound, bound, shape).astype(np.float32)
            for name, shape in shapes.items()
        }


LSTM = Layer("lstm", 1000, 32, 128, 256)


def described(layer: Layer, backward: bool) -> tuple[Described, Any]:
    """Describe the layer to graphfw; returns the layer too."""
    import graphfw as gf

    with gf.Graph() as graph:
        x = gf.placeholder((layer.steps, layer.batch, layer.inputs), name="x")
        ct = gf.placeholder((layer.steps, layer.batch, layer.hidden), name="ct")
        kind = gf.nn.LSTM if layer.cell == "lstm" else gf.nn.GRU
        made = kind(layer.inputs, layer.hidden)
        y, _ = made(x)
        if not backward:
            return Described(graph, [y], [x]), made
        gradients = gf.grad(y, [x, *made.parameters()], ct)
    return Described(graph, [y, *gradients], [x, ct]), made


def graphfw_case(layer: Layer, backward: bool) -> Case:
    """Run the layer."""
    import graphfw as gf

    (graph, fetches, feeds), made = described(layer, backward)
    session = gf.Session(graph, verify="off")
    made.load_state_dict(session, layer.weights())
    plan = session.compile(fetches, feeds=feeds)
    return plan_case(plan, layer.data()[: len(feeds)])


def torch_case(layer: Layer, backward: bool) -> Case:
    """Run the layer that PyTorch has; torch.compile leaves it as it is."""
    torch = torch_module()
    torch.set_grad_enabled(backward)
    x, ct = map(torch.from_numpy, layer.data())
    kind = torch.nn.LSTM if layer.cell == "lstm" else torch.nn.GRU
    made = kind(layer.inputs, layer.hidden)
    weights = {name: torch.from_numpy(a.T.copy()) for name, a in layer.weights().items()}
    made.load_state_dict(weights)
    if not backward:
        return Case(lambda: [made(x)[0]])
    leaves = [x.requires_grad_(), *made.parameters()]

    def run() -> object:
        y = made(x)[0]
        found = torch.autograd.grad(y, leaves, ct)
        return [y.detach(), found[0], *[g.T if g.ndim == 2 else g for g in found[1:]]]

    return Case(run)


def jax_function(layer: Layer, backward: bool) -> tuple[Any, list[Any]]:
    """Return jax.lax.scan in a function, with the inputs' product before it, and its arguments."""
    import jax
    from jax import numpy as jnp

    first = jnp.zeros((layer.batch, layer.hidden))

    def lstm(x: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
        def step(state: Any, z: Any) -> Any:
            h, c = state
            i, f, g, o = jnp.split(z + h @ w_hh, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        return jax.lax.scan(step, (first, first), x @ w_ih + (b_ih + b_hh))[1]

    def gru(x: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
        def step(h: Any, z: Any) -> Any:
            of_h = jnp.split(h @ w_hh + b_hh, 3, axis=-1)
            reset, update, new = jnp.split(z, 3, axis=-1)
            reset, update = jax.nn.sigmoid(reset + of_h[0]), jax.nn.sigmoid(update + of_h[1])
            new = jnp.tanh(new + reset * of_h[2])
            h = new + update * (h - new)
            return h, h

        return jax.lax.scan(step, first, x @ w_ih + b_ih)[1]

    compute = lstm if layer.cell == "lstm" else gru

    def pulled(ct: Any, *given: Any) -> Any:
        y, pull = jax.vjp(compute, *given)
        return [y, *pull(ct)]

    x, ct = map(jax.device_put, layer.data())
    given = [x, *map(jax.device_put, layer.weights().values())]
    if backward:
        return jax.jit(pulled), [ct, *given]
    return jax.jit(lambda *given: [compute(*given)]), given


def jax_case(layer: Layer, backward: bool) -> Case:
    """Run it."""
    import jax

    compiled, given = jax_function(layer, backward)
    return Case(lambda: jax.block_until_ready(compiled(*given)))


CASES: dict[str, Callable[[Layer, bool], Case]] = {
    "graphfw": graphfw_case,
    "torch": torch_case,
    "jax": jax_case,
}


def makers(layer: Layer, backward: bool) -> dict[str, Maker]:
    """Return what makes the contenders."""
    return {name: functools.partial(make, layer, backward) for name, make in CASES.items()}


def contest(name: str, layer: Layer, backward: bool) -> Contest:
    """Return the workload of a layer, or of its gradients too."""
    title = f"{layer}{', and its gradients' if backward else ''}"
    return Contest(name, title, makers(layer, backward), (Target(0.8),), rtol=1e-3, atol=1e-4)


WORKLOADS = [contest("lstm", LSTM, False), contest("lstm-grad", LSTM, True)]
