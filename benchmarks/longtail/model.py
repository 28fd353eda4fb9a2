"""Networks with weights: their training steps, and what they compute without one."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks import devices
from benchmarks.frameworks import (
    Array,
    Arrays,
    Function,
    plan_case,
    steps_of,
    torch_module,
    torch_tensors,
)
from benchmarks.workload import Case, Maker

SGD, ADAM = "sgd", "adam"

_CONTENDERS = ("graphfw", "torch", "torch.compile", "jax")


@dataclass(frozen=True)
class Model:
    """A network as each library would write it.

    Attributes:
        weights: Makes the arrays that are trained, or that stay where there is no optimiser.
        batches: Makes the batches, a list of arrays each, which calls take in turn.
        functions: By library: the function of (weights, *batch) that returns the loss, or the
            results where there is no optimiser.
        optimiser: `SGD`, `ADAM`, or "" for none.
        rate: The optimiser's learning rate.
    """

    weights: Callable[[], list[Array]]
    batches: Callable[[], list[Arrays]]
    functions: Mapping[str, Function]
    optimiser: str = ""
    rate: float = 0.01

    def makers(self, *, compiled: bool = True) -> dict[str, Maker]:
        """Return the makers of the contenders; `compiled`: torch.compile is one of them."""
        cases = (_graphfw_case, _torch_case, functools.partial(_torch_case, compiled=True))
        found = dict(zip(_CONTENDERS, (*cases, _jax_case), strict=True))
        return {
            name: functools.partial(case, self)
            for name, case in found.items()
            if name.removesuffix(".compile") in self.functions
            and (compiled or name != "torch.compile")
        }


def _graphfw_case(model: Model) -> Case:
    import graphfw as gf

    batches = model.batches()
    with gf.Graph() as graph:
        held = [gf.Variable(a, name=f"w{i}") for i, a in enumerate(model.weights())]
        feeds = [gf.placeholder(a.shape, a.dtype, name=f"x{i}") for i, a in enumerate(batches[0])]
        fetches = model.functions["graphfw"](held, *feeds)
        if model.optimiser:
            kind = gf.optim.SGD if model.optimiser == SGD else gf.optim.Adam
            fetches = [fetches, kind(model.rate).minimize(fetches)]
    plan = devices.session(graph).compile(fetches, feeds=feeds)
    if not model.optimiser:
        return plan_case(plan, batches[0])
    stream = itertools.cycle(batches)
    return Case(lambda: plan(*next(stream))[0], steps=lambda: steps_of(plan, batches[0]))


def _torch_case(model: Model, compiled: bool = False) -> Case:
    torch = torch_module()
    torch.set_grad_enabled(bool(model.optimiser))
    held = torch_tensors(model.weights())
    batches = [torch_tensors(batch) for batch in model.batches()]
    compute = functools.partial(model.functions["torch"], held)
    if model.optimiser:
        held = [t.requires_grad_() for t in held]
    if compiled:
        torch.compiler.reset()
        compute = torch.compile(compute)
    if not model.optimiser:
        return Case(functools.partial(compute, *batches[0]))
    kind = torch.optim.SGD if model.optimiser == SGD else torch.optim.Adam
    optimiser = kind(held, lr=model.rate, fused=True)
    stream = itertools.cycle(batches)

    def step() -> Any:
        optimiser.zero_grad()
        loss = compute(*next(stream))
        loss.backward()
        optimiser.step()
        return loss.detach()

    return Case(step)


def _jax_case(model: Model) -> Case:
    """Return a step, one function, which is given the state's memory; or a call."""
    import jax
    from jax import numpy as jnp

    jax.config.update("jax_enable_x64", False)
    held = [jax.device_put(a) for a in model.weights()]
    batches = [[jax.device_put(a) for a in batch] for batch in model.batches()]
    compute = model.functions["jax"]
    if not model.optimiser:
        compiled = jax.jit(compute)
        return Case(lambda: jax.block_until_ready(compiled(held, *batches[0])))

    def sgd(state: Any, *batch: Any) -> Any:
        loss, gradients = jax.value_and_grad(compute)(state, *batch)
        return loss, [p - model.rate * g for p, g in zip(state, gradients, strict=True)]

    def adam(state: Any, *batch: Any) -> Any:
        count, held, means, squares = state
        loss, gradients = jax.value_and_grad(compute)(held, *batch)
        count = count + 1
        means = [m + (g - m) * 0.1 for m, g in zip(means, gradients, strict=True)]
        squares = [v + (g * g - v) * 0.001 for v, g in zip(squares, gradients, strict=True)]
        rate, root = model.rate / (1 - 0.9**count), jnp.sqrt(1 - 0.999**count)
        held = [
            p - rate * m / (jnp.sqrt(v) / root + 1e-8)
            for p, m, v in zip(held, means, squares, strict=True)
        ]
        return loss, (count, held, means, squares)

    state: list[Any] = [held]
    if model.optimiser == ADAM:
        zeros = [[jnp.zeros_like(a) for a in held] for _ in range(2)]
        state = [(jnp.float32(0), held, *zeros)]
    update = jax.jit(sgd if model.optimiser == SGD else adam, donate_argnums=0)
    stream = itertools.cycle(batches)

    def step() -> Any:
        loss, state[0] = update(state[0], *next(stream))
        return jax.block_until_ready(loss)

    return Case(step)
