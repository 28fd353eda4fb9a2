"""Matrix products with constant weights: alone, with bias and GELU, and in few bits."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks.frameworks import Arrays, Formula, Function
from benchmarks.workload import Contest, Target

SIZES = ((128, 512, 784), (64, 3136, 576), (256, 196, 2304), (1024, 1536, 384), (2048,) * 3)
"""M, N, K: [M, K] @ [K, N]."""

TALL_SIZES = ((4096, 10, 768), (2900, 400, 301))
"""Of products of what an activation gives, in which each element of that is read once."""

BATCH_SIZES = ((128, 10, 768), (1024, 10, 768))
"""The same, where graphfw is not told M."""

WIDENED_SIZES = ((1, 1024, 1024), (64, 1024, 1024), (1, 2048, 2048), (1, 65536, 640))
"""Of products with weights of 4, 8 or 16 bits, which are widened and scaled."""

WIDENED = {"int8": "", "float8_e4m3fn": "float8-", "bfloat16": "bfloat16-", "float32": "float32-"}
"""Their dtypes, and what these add to a workload's name."""

NARROW_SIZES = ((512,) * 3, (128, 512, 784))
"""The same for 16-bit floats."""

NARROW = {"bfloat16": 2e-2, "float16": 2e-3}
"""The relative tolerance of results of 16-bit floats: a few of their roundings."""


def _inputs(size: tuple[int, int, int], parameters: int, dtype: str = "float32") -> Arrays:
    """Return x, and the weights, of ordinary scale: results have variance 1."""
    m, n, k = size
    rng = np.random.default_rng(0)
    w = rng.standard_normal((k, n), np.float32) / np.float32(k**0.5)
    bias = [rng.standard_normal(n, np.float32)] if parameters == 2 else []
    arrays = [rng.standard_normal((m, k), np.float32), w, *bias]
    return [a.astype(_numpy_dtype(dtype)) for a in arrays]


def _numpy_dtype(name: str) -> Any:
    if name.startswith(("bfloat", "float8", "int4")):
        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)


def _product(x: Any, w: Any) -> Any:
    return x @ w


def _fused_graphfw(x: Any, w: Any, b: Any) -> Any:
    import graphfw as gf

    return gf.gelu(x @ w + b, approximate="tanh")


def _fused_numpy(x: Any, w: Any, b: Any) -> Any:
    y = x @ w
    y += b
    t = y * y
    t *= np.float32(0.044715 * (2 / np.pi) ** 0.5)
    t += np.float32((2 / np.pi) ** 0.5)
    t *= y
    np.tanh(t, out=t)
    t += np.float32(1)
    t *= np.float32(0.5)
    y *= t
    return y


def _fused_torch(x: Any, w: Any, b: Any) -> Any:
    import torch

    return torch.nn.functional.gelu(torch.addmm(b, x, w), approximate="tanh")


def _fused_jax(x: Any, w: Any, b: Any) -> Any:
    import jax

    return jax.nn.gelu(x @ w + b, approximate=True)


def _ahead_graphfw(x: Any, w: Any) -> Any:
    import graphfw as gf

    return (gf.relu(x) * 2) @ w


def _ahead_numpy(x: Any, w: Any) -> Any:
    y = np.maximum(x, 0)
    y *= 2
    return y @ w


def _ahead_torch(x: Any, w: Any) -> Any:
    import torch

    return (torch.relu(x) * 2) @ w


def _ahead_jax(x: Any, w: Any) -> Any:
    import jax

    return (jax.nn.relu(x) * 2) @ w


def _in_float32(function: Function, x: Any, *weights: Any) -> Any:
    """Compute as NumPy does best with 16-bit floats, of which it has no products worth the name."""
    return function(*[a.astype(np.float32) for a in (x, *weights)]).astype(x.dtype)


def _contests(size: tuple[int, int, int]) -> list[Contest]:
    text = "×".join(map(str, size))
    name = text.replace("×", "x")
    target = (Target(1.0 if min(size) >= 2048 else 0.9),)
    plain = Formula(
        functools.partial(_inputs, size, 1), _product, _product, _product, _product, constants=1
    )
    fused = Formula(
        functools.partial(_inputs, size, 2),
        _fused_graphfw,
        _fused_numpy,
        _fused_torch,
        _fused_jax,
        constants=2,
    )
    return [
        Contest(f"matmul-{name}", f"matmul M×N×K {text}", plain.makers(), target),
        Contest(f"matmul-gelu-{name}", f"matmul + bias + GELU {text}", fused.makers(), target),
    ]


def _widened_inputs(size: tuple[int, int, int], dtype: str) -> Arrays:
    m, n, k = size
    rng = np.random.default_rng(0)
    scale = rng.random(n, np.float32) / np.float32(64 * k**0.5)
    largest = 7 if dtype == "int4" else 127
    weights = rng.integers(-largest, largest + 1, (k, n), np.int8)
    return [rng.standard_normal((m, k), np.float32), weights.astype(_numpy_dtype(dtype)), scale]


def _widened_graphfw(x: Any, w: Any, scale: Any) -> Any:
    import graphfw as gf

    return x @ (gf.astype(w, gf.float32) * scale)


def _widened_numpy(x: Any, w: Any, scale: Any) -> Any:
    return x @ (w.astype(np.float32) * scale)


def _widened_torch(x: Any, w: Any, scale: Any) -> Any:
    return x @ (w.float() * scale)


def _widened_contest(size: tuple[int, int, int], dtype: str) -> Contest:
    text = "×".join(map(str, size))
    inputs = functools.partial(_widened_inputs, size, dtype)
    formula = Formula(inputs, _widened_graphfw, _widened_numpy, _widened_torch, _widened_numpy)
    name = f"widened-matmul-{WIDENED[dtype]}{text.replace('×', 'x')}"
    title = f"weights of {dtype} widened and scaled, matmul M×N×K {text}"
    return Contest(name, title, formula.makers(), (Target(0.9),), atol=1e-4)


def _packed_graphfw(x: Any, w: Any, scale: Any) -> Any:
    import graphfw as gf

    return _widened_graphfw(x, gf.Variable(w, trainable=False), scale)


def _bytewise_inputs(size: tuple[int, int, int]) -> Arrays:
    return [
        a.astype(np.int8) if a.dtype.name == "int4" else a for a in _widened_inputs(size, "int4")
    ]


def _packed_contest(size: tuple[int, int, int]) -> Contest:
    """Keep weights of int4 two to a byte: in JAX, and in graphfw, which packs variables.

    NumPy and PyTorch have no int4, and a byte for each weight.
    """
    text = "×".join(map(str, size))
    inputs = functools.partial(_widened_inputs, size, "int4")
    made = Formula(inputs, _packed_graphfw, jax=_widened_numpy, constants=2).makers()
    in_bytes = functools.partial(_bytewise_inputs, size)
    bytewise = Formula(in_bytes, _widened_graphfw, _widened_numpy, _widened_torch).makers()
    name = f"widened-matmul-int4-{text.replace('×', 'x')}"
    title = f"weights of int4 widened and scaled, matmul M×N×K {text}"
    return Contest(name, title, {**bytewise, **made}, (Target(0.9),), atol=1e-4)


def _ahead_contest(size: tuple[int, int, int], batch: str = "") -> Contest:
    text = "×".join(map(str, size))
    formula = Formula(
        functools.partial(_inputs, size, 1),
        _ahead_graphfw,
        _ahead_numpy,
        _ahead_torch,
        _ahead_jax,
        constants=1,
        batch=batch,
    )
    name = f"relu-matmul-{'batch-' if batch else ''}{text.replace('×', 'x')}"
    title = f"ReLU · 2, then matmul M×N×K {text}{', M symbolic' if batch else ''}"
    return Contest(name, title, formula.makers(), (Target(0.9),))


def _narrow_contests(size: tuple[int, int, int], dtype: str) -> list[Contest]:
    text = "×".join(map(str, size))
    name = f"{dtype}-{text.replace('×', 'x')}"
    inputs = functools.partial(_inputs, size, dtype=dtype)
    plain = Formula(
        functools.partial(inputs, parameters=1),
        _product,
        functools.partial(_in_float32, _product),
        _product,
        _product,
        constants=1,
    )
    fused = Formula(
        functools.partial(inputs, parameters=2),
        _fused_graphfw,
        functools.partial(_in_float32, _fused_numpy),
        _fused_torch,
        _fused_jax,
        constants=2,
    )
    options: dict[str, Any] = {"targets": (Target(1.0),), "rtol": NARROW[dtype]}
    options["atol"] = options["rtol"] / 4
    return [
        Contest(f"matmul-{name}", f"{dtype} matmul M×N×K {text}", plain.makers(), **options),
        Contest(
            f"matmul-gelu-{name}",
            f"{dtype} matmul + bias + GELU {text}",
            fused.makers(),
            **options,
        ),
    ]


def _long_sums() -> Arrays:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((32_000, width), np.float32) for width in (128, 1024)]


def _summed_over_rows(x: Any, y: Any) -> Any:
    return x.T @ y


_GRADIENT = Formula(_long_sums, *[_summed_over_rows] * 4)

WORKLOADS = [
    Contest(
        "matmul-long-k",
        "gradient of a weight: the product over 32,000 rows, 128×1024",
        _GRADIENT.makers(),
        (Target(1.0),),
        atol=1e-4,
    ),
    *[contest for size in SIZES for contest in _contests(size)],
    *[_ahead_contest(size) for size in TALL_SIZES],
    *[_ahead_contest(size, "batch") for size in BATCH_SIZES],
    *[_widened_contest(size, dtype) for dtype in WIDENED for size in WIDENED_SIZES],
    *[_packed_contest(size) for size in WIDENED_SIZES],
    *[c for dtype in NARROW for size in NARROW_SIZES for c in _narrow_contests(size, dtype)],
]
