"""Chains of elementwise operations: bias + GELU, twelve mixed ones, Black–Scholes; dropout.

They are bound by memory, so what results are written to matters: each of the first two is measured
with memory that is recycled and with new memory in every call. Dropout is bound by its random bits.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from benchmarks.frameworks import FRESH, RECYCLED, Arrays, Formula
from benchmarks.workload import Contest, Target

ROWS, COLUMNS = 4096, 3072
OPTIONS = 4_000_000
DROPPED = (4096, 1024)
RATE_DROPPED = 0.1
RATE, VOLATILITY = 0.03, 0.2

_GELU = math.sqrt(2 / math.pi)


# y = gelu(x + b), with tanh.  x: [4096, 3072], b: [3072]


def _gelu_inputs() -> Arrays:
    rng = np.random.default_rng(0)
    return [
        rng.standard_normal((ROWS, COLUMNS), np.float32),
        rng.standard_normal(COLUMNS, np.float32),
    ]


def _gelu_graphfw(x: Any, b: Any) -> Any:
    import graphfw as gf

    return gf.gelu(x + b, approximate="tanh")


def _gelu_numpy(x: Any, b: Any) -> Any:
    return _gelu_numpy_into(x, b, np.empty_like(x))


def _gelu_numpy_into(x: Any, b: Any, out: Any) -> Any:
    """Go by blocks of rows that stay in the cache."""
    block = np.empty((16, x.shape[1]), x.dtype)
    for first in range(0, len(x), 16):
        rows = slice(first, first + 16)
        np.add(x[rows], b, out=out[rows])
        np.square(out[rows], out=block)
        block *= np.float32(0.044715)
        block += np.float32(1)
        block *= out[rows]
        block *= np.float32(_GELU)
        np.tanh(block, out=block)
        block += np.float32(1)
        block *= np.float32(0.5)
        out[rows] *= block
    return out


def _gelu_torch(x: Any, b: Any) -> Any:
    import torch

    return torch.nn.functional.gelu(x + b, approximate="tanh")


def _gelu_torch_into(x: Any, b: Any, out: Any) -> Any:
    import torch

    torch.add(x, b, out=out)
    return torch.ops.aten.gelu_(out, approximate="tanh")


def _gelu_jax(x: Any, b: Any) -> Any:
    import jax

    return jax.nn.gelu(x + b, approximate=True)


def _gelu_numexpr(x: Any, b: Any, out: Any) -> Any:
    import numexpr

    names = {"x": x, "b": b, "c": np.float32(_GELU), "k": np.float32(0.044715)}
    names |= {"h": np.float32(0.5), "one": np.float32(1)}
    text = "h * (x + b) * (one + tanh(c * (x + b) * (one + k * (x + b) * (x + b))))"
    return numexpr.evaluate(text, names, out=out)


def _gelu_pytensor(x: Any, b: Any) -> Any:
    from pytensor import tensor as pt

    c, k, h = np.float32(_GELU), np.float32(0.044715), np.float32(0.5)
    t = x + b
    return h * t * (1 + pt.tanh(c * t * (1 + k * t * t)))


GELU = Formula(
    _gelu_inputs,
    _gelu_graphfw,
    _gelu_numpy,
    _gelu_torch,
    _gelu_jax,
    _gelu_numexpr,
    _gelu_pytensor,
    numpy_into=_gelu_numpy_into,
    torch_into=_gelu_torch_into,
)


# Twelve operations, two broadcasts.  x: [4096, 3072], b: [3072], s: [4096, 1]
#   t = x s + b;  v = tanh(t)²;  w = v + |x|;  z = w if w > 1/2 else sqrt(w)
#   y = max(z, t / 10) - b


def _chain_inputs() -> Arrays:
    rng = np.random.default_rng(1)
    shapes = [(ROWS, COLUMNS), (COLUMNS,), (ROWS, 1)]
    return [rng.standard_normal(shape, np.float32) for shape in shapes]


def _chain_graphfw(x: Any, b: Any, s: Any) -> Any:
    import graphfw as gf

    t = x * s + b
    v = gf.square(gf.tanh(t))
    w = v + gf.abs(x)
    z = gf.where(w > 0.5, w, gf.sqrt(w))
    return gf.maximum(z, t * 0.1) - b


def _chain_numpy(x: Any, b: Any, s: Any) -> Any:
    return _chain_numpy_into(x, b, s, np.empty_like(x))


def _chain_numpy_into(x: Any, b: Any, s: Any, out: Any) -> Any:
    """Go by blocks of rows that stay in the cache."""
    w, root = np.empty((2, 16, x.shape[1]), x.dtype)
    small = np.empty((16, x.shape[1]), np.bool_)
    for first in range(0, len(x), 16):
        rows = slice(first, first + 16)
        t = out[rows]
        np.multiply(x[rows], s[rows], out=t)
        t += b
        np.tanh(t, out=w)
        np.square(w, out=w)
        np.abs(x[rows], out=root)
        w += root
        np.sqrt(w, out=root)
        np.less_equal(w, np.float32(0.5), out=small)
        np.copyto(w, root, where=small)
        t *= np.float32(0.1)
        np.maximum(w, t, out=t)
        t -= b
    return out


def _chain_torch(x: Any, b: Any, s: Any) -> Any:
    import torch

    t = torch.addcmul(b, x, s)
    w = torch.tanh(t).square() + x.abs()
    z = torch.where(w > 0.5, w, w.sqrt())
    return torch.maximum(z, t * 0.1) - b


def _chain_torch_into(x: Any, b: Any, s: Any, out: Any) -> Any:
    import torch

    t = torch.addcmul(b, x, s, out=out)
    w = torch.tanh(t).square_().add_(x.abs())
    z = torch.where(w > 0.5, w, w.sqrt())
    return torch.maximum(z, t.mul_(0.1), out=out).sub_(b)


def _chain_jax(x: Any, b: Any, s: Any) -> Any:
    from jax import numpy as jnp

    t = x * s + b
    w = jnp.square(jnp.tanh(t)) + jnp.abs(x)
    z = jnp.where(w > 0.5, w, jnp.sqrt(w))
    return jnp.maximum(z, t * 0.1) - b


def _chain_numexpr(x: Any, b: Any, s: Any, out: Any) -> Any:
    """Two expressions: numexpr has no names for parts, and no maximum."""
    import numexpr

    names = {"x": x, "b": b, "s": s, "h": np.float32(0.5), "k": np.float32(0.1)}
    names["w"] = numexpr.evaluate("tanh(x * s + b) ** 2 + abs(x)", names)
    larger = "where(w > h, w, sqrt(w))"
    text = f"where({larger} > k * (x * s + b), {larger}, k * (x * s + b)) - b"
    return numexpr.evaluate(text, names, out=out)


def _chain_pytensor(x: Any, b: Any, s: Any) -> Any:
    from pytensor import tensor as pt

    t = x * s + b
    w = pt.sqr(pt.tanh(t)) + pt.abs(x)
    z = pt.switch(w > np.float32(0.5), w, pt.sqrt(w))
    return pt.maximum(z, t * np.float32(0.1)) - b


CHAIN = Formula(
    _chain_inputs,
    _chain_graphfw,
    _chain_numpy,
    _chain_torch,
    _chain_jax,
    _chain_numexpr,
    _chain_pytensor,
    numpy_into=_chain_numpy_into,
    torch_into=_chain_torch_into,
)


# Prices of European calls and puts.  spot, strike, years: [4M] -> call, put: [4M]


def options(count: int = OPTIONS) -> Arrays:
    """Return spot, strike and years of random options."""
    rng = np.random.default_rng(2)
    ranges = [(10, 50), (10, 50), (0.25, 2)]
    return [rng.uniform(low, high, count).astype(np.float32) for low, high in ranges]


def _prices(lib: Any, erf: Any, spot: Any, strike: Any, years: Any) -> Any:
    """Return [call, put] by the functions of a library."""
    spread = lib.sqrt(years) * VOLATILITY
    d1 = (lib.log(spot / strike) + years * (RATE + VOLATILITY**2 / 2)) / spread
    half = math.sqrt(0.5)
    n1 = erf(d1 * half) * 0.5 + 0.5
    n2 = erf((d1 - spread) * half) * 0.5 + 0.5
    discounted = strike * lib.exp(years * -RATE)
    call = spot * n1 - discounted * n2
    return [call, call - spot + discounted]


def _prices_graphfw(*options: Any) -> Any:
    import graphfw as gf

    return _prices(gf, gf.erf, *options)


def _prices_torch(*options: Any) -> Any:
    import torch

    return _prices(torch, torch.erf, *options)


def _prices_jax(*options: Any) -> Any:
    import jax

    return _prices(jax.numpy, jax.scipy.special.erf, *options)


def _prices_pytensor(*options: Any) -> Any:
    from pytensor import tensor as pt

    return [p.astype("float32") for p in _prices(pt, pt.erf, *options)]


BLACK_SCHOLES = Formula(
    options,
    _prices_graphfw,
    torch=_prices_torch,
    jax=_prices_jax,
    pytensor=_prices_pytensor,
)


# y = x mask / (1 - rate), dx = dy mask / (1 - rate), with the same random mask.  x: [4096, 1024]


def _dropout_inputs() -> Arrays:
    rng = np.random.default_rng(3)
    return [rng.standard_normal(DROPPED, np.float32) for _ in range(2)]


def _dropout_graphfw(x: Any) -> Any:
    import graphfw as gf

    return gf.dropout(x, RATE_DROPPED)


def _dropout_numpy(x: Any, dy: Any) -> Any:
    scale = np.random.default_rng().random(x.shape, np.float32) >= np.float32(RATE_DROPPED)
    scale = scale / np.float32(1 - RATE_DROPPED)
    return [x * scale, dy * scale]


def _dropout_torch(x: Any) -> Any:
    import torch

    return torch.nn.functional.dropout(x, RATE_DROPPED, training=True)


def _dropout_jax(x: Any) -> Any:
    import jax

    # The same key in each call: it takes as long as another one.
    keeps = jax.random.bernoulli(jax.random.key(0), 1 - RATE_DROPPED, x.shape)
    return jax.numpy.where(keeps, x / (1 - RATE_DROPPED), 0)


DROPOUT = Formula(
    _dropout_inputs,
    _dropout_graphfw,
    _dropout_numpy,
    _dropout_torch,
    _dropout_jax,
    wrt=(0,),
)


def _with_outputs(name: str, title: str, formula: Formula) -> list[Contest]:
    found = []
    for outputs, limit in ((RECYCLED, 0.25), (FRESH, 0.5)):
        makers = dataclasses.replace(formula, outputs=outputs).makers(floor=True)
        targets = (Target(limit), *([Target(1.4, "copy")] if outputs == RECYCLED else []))
        found.append(Contest(f"{name}-{outputs}", f"{title}, {outputs} outputs", makers, targets))
    return found


WORKLOADS = [
    *_with_outputs("gelu", f"bias + GELU (tanh), {ROWS}×{COLUMNS}", GELU),
    *_with_outputs("chain", f"12 mixed operations with broadcasts, {ROWS}×{COLUMNS}", CHAIN),
    Contest(
        "black-scholes",
        f"Black–Scholes, calls and puts, {OPTIONS:,} options",
        BLACK_SCHOLES.makers(),
        (Target(0.55),),
        atol=1e-5,
    ),
    Contest(
        "dropout",
        f"dropout and its gradient, {DROPPED[0]}×{DROPPED[1]}",
        DROPOUT.makers(),
        (Target(0.1, "torch"),),
        # Each library draws another mask.
        atol=math.inf,
    ),
]
