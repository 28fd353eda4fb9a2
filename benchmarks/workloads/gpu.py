"""The workloads of a GPU (`--device cuda`): the CPU's formulas and steps, in a GPU's sizes.

Formulas are bound by memory: besides the best peer they are held against a copy, by the bytes that
they have to read and write: 90 % of a copy's bandwidth is the target. Sizes are beyond all caches.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np

from benchmarks.frameworks import Arrays, Formula, copy_case, torch_case
from benchmarks.workload import Contest, Target, Workload
from benchmarks.workloads import (
    attention,
    convnets,
    elementwise,
    gpt,
    mlp,
    normalise,
    optimiser,
    rows,
    tiny,
)

SHAPE = (16384, 4096)
OPTIONS = 64_000_000
BANDWIDTH = 0.9
"""Of a copy's: what is to be reached."""

PEERS = ("numpy", "numexpr", "pytensor")
"""Who computes on CPUs only."""


def _normal(*shapes: tuple[int, ...]) -> Arrays:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape, np.float32) for shape in shapes]


def _bound_by_memory(
    name: str, title: str, formula: Formula, inputs: Any, arrays: float
) -> Contest:
    """Return the workload of a formula that reads and writes so many arrays of the first's size."""
    makers = dataclasses.replace(formula, inputs=inputs).makers(floor=True)
    kept = {who: maker for who, maker in makers.items() if who not in PEERS}
    copied = arrays / 2 / BANDWIDTH
    return Contest(name, title, kept, (Target(0.9), Target(copied, "copy")), rtol=1e-3)


def _memory() -> list[Contest]:
    wide = functools.partial(_normal, SHAPE)
    scaled = functools.partial(_normal, SHAPE, SHAPE[1:], SHAPE[1:])
    shifted = functools.partial(_normal, SHAPE, SHAPE[1:])
    text = f"{SHAPE[0]}×{SHAPE[1]}"
    prices = functools.partial(elementwise.options, OPTIONS)
    return [
        _bound_by_memory("gelu", f"GELU(x + bias), {text}", elementwise.GELU, shifted, 2),
        _bound_by_memory("softmax", f"softmax, {text}", rows.SOFTMAX, wide, 2),
        _bound_by_memory("layer-norm", f"layer norm, {text}", normalise.LAYER, scaled, 2),
        _bound_by_memory(
            "black-scholes",
            f"calls and puts by Black and Scholes, {OPTIONS / 1e6:.0f}M",
            elementwise.BLACK_SCHOLES,
            prices,
            5,
        ),
    ]


def _adam() -> Contest:
    size = optimiser.Size(1024, 8)
    copied = 3.5 / BANDWIDTH  # four arrays are read and three written
    found = optimiser.contest("adam", size, (Target(0.9), Target(copied, "copy")))
    count = sum(map(math.prod, size.shapes))
    floor = Formula(functools.partial(_normal, (count,)), elementwise.GELU.graphfw)
    makers = {who: maker for who, maker in found.makers.items() if who not in PEERS}
    return dataclasses.replace(
        found, makers={**makers, "copy": functools.partial(copy_case, floor)}
    )


def _bound_by_launches() -> list[Contest]:
    found = [*mlp.WORKLOADS, *[w for w in tiny.WORKLOADS if w.name == "logistic-step"]]
    return [
        dataclasses.replace(
            contest,
            makers={who: maker for who, maker in contest.makers.items() if who not in PEERS},
            targets=(Target(0.5, "torch.compile"),),
        )
        for contest in found
    ]


def _gpt(precision: str) -> Contest:
    size = gpt.Gpt(12, 768, 12, 1024, 8, 50304, precision)
    return Contest(
        f"gpt2-small-step-{precision}",
        f"GPT training step with AdamW in {precision}, {size}",
        gpt.makers(size, gpt.STEPS),
        (Target(0.95, "torch.compile"),),
        rtol=1e-2,
        checks=3,
    )


def _resnet(precision: str, training: bool) -> Contest:
    net = convnets.Net("ResNet-50", 224, 1000, 7, (3, 4, 6, 3), 4, 64, precision)
    what = "training step" if training else "forward"
    return Contest(
        f"resnet50-{'train' if training else 'forward'}-{precision}",
        f"ResNet-50 {what} in {precision}, batch {net.batch}",
        convnets.makers(net, training),
        (Target(1.0),),
        rtol=2e-2,
        atol=2e-2,
        checks=3 if training else 1,
    )


def _attention(time: int, backward: bool) -> Contest:
    """Hold attention against cuDNN's as PyTorch calls it, whose gradients differ from run to run.

    graphfw's is cuDNN's, too, where `nvidia-cudnn-frontend` is installed; with `GRAPHFW_CUDNN=0` it
    is its own.
    """
    size = (max(1, 16384 // time), 16, time, 64)
    found = attention.contest(size, causal=True, backward=backward, dtype="bfloat16")
    formula = attention.formula_of(size, causal=True, backward=backward, dtype="bfloat16")
    by_cudnn = dataclasses.replace(formula, torch=attention.torch_by_cudnn)
    return dataclasses.replace(
        found,
        title=f"{found.title} in bfloat16; cudnn: as PyTorch calls it",
        makers={
            **{who: maker for who, maker in found.makers.items() if who not in PEERS},
            "cudnn": functools.partial(torch_case, by_cudnn),
        },
        targets=(Target(1.1, "cudnn"),),
        rtol=2e-2,
        atol=2e-2,
    )


WORKLOADS: list[Workload] = [
    *_memory(),
    _adam(),
    *_bound_by_launches(),
    *[_gpt(precision) for precision in ("bf16", "tf32")],
    *[_resnet(p, training) for p in ("bf16", "tf32") for training in (False, True)],
    *[_attention(2**n, backward) for n in range(7, 14) for backward in (False, True)],
]
