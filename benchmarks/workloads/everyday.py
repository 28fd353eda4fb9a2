"""What array libraries are asked for beside networks: special functions, counts, order, draws.

Where NumPy has no such function, the row "numpy" is SciPy's, or a loop as one would write it.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np

from benchmarks import devices
from benchmarks.frameworks import Array, Arrays, Formula, by_path, torch_module
from benchmarks.workload import Case, Contest, Maker, Target

TARGETS = (Target(1.0),)


def _contest(name: str, title: str, formula: Formula, **tolerances: float) -> Contest:
    return Contest(name, title, formula.makers(), TARGETS, **tolerances)


# Special functions of 200,000 numbers

SIZE = 200_000


def _numbers(low: float, high: float, count: int = 1) -> Arrays:
    rng = np.random.default_rng(0)
    return [rng.uniform(low, high, SIZE).astype(np.float32) for _ in range(count)]


def _shapes_and_fraction() -> Arrays:
    return [*_numbers(0.1, 20, 2), np.random.default_rng(1).random(SIZE, np.float32)]


def _special(name: str, inputs: Any, ours: str, scipy: str, torch: str, jax: str = "") -> Contest:
    formula = Formula(
        inputs,
        by_path(f"graphfw:{ours}"),
        by_path(f"scipy.special:{scipy}"),
        by_path(f"torch:{torch}") if torch else None,
        by_path(f"jax.scipy.special:{jax or scipy}"),
    )
    title = f"{name} of {SIZE:,} numbers, float32"
    return _contest(name, title, formula, rtol=1e-3, atol=1e-4)


_POSITIVE = functools.partial(_numbers, 0.1, 20)
_TWO = functools.partial(_numbers, 0.1, 20, 2)
_AROUND = functools.partial(_numbers, -20, 20)
_SPECIAL = [
    _special("lgamma", _POSITIVE, "lgamma", "gammaln", "special.gammaln"),
    _special("digamma", _POSITIVE, "digamma", "digamma", "special.digamma"),
    _special("gammainc", _TWO, "special.gammainc", "gammainc", "special.gammainc"),
    _special("betainc", _shapes_and_fraction, "special.betainc", "betainc", ""),
    _special("ndtri", functools.partial(_numbers, 0, 1), "special.ndtri", "ndtri", "special.ndtri"),
    _special(
        "bessel-i0e", functools.partial(_numbers, -20, 20), "special.i0e", "i0e", "special.i0e"
    ),
]


# Sums and largest of segments.  x: [500000, 8], segments: [500000], in no order

SEGMENTS = 1000


def _segmented() -> Arrays:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((500_000, 8), np.float32), rng.integers(0, SEGMENTS, 500_000)]


def _sum_numpy(x: Array, segments: Array) -> Array:
    y = np.zeros((SEGMENTS, x.shape[1]), x.dtype)
    np.add.at(y, segments, x)
    return y


def _sum_torch(x: Any, segments: Any) -> Any:
    return x.new_zeros((SEGMENTS, x.shape[1])).index_add_(0, segments, x)


def _max_numpy(x: Array, segments: Array) -> Array:
    y = np.full((SEGMENTS, x.shape[1]), -np.inf, x.dtype)
    np.maximum.at(y, segments, x)
    return y


def _max_torch(x: Any, segments: Any) -> Any:
    y = x.new_full((SEGMENTS, x.shape[1]), -float("inf"))
    return y.index_reduce_(0, segments, x, "amax")


def _segment(kind: str, numpy: Any, torch: Any) -> Contest:
    ours = by_path(f"graphfw:segment_{kind}", num_segments=SEGMENTS)
    jax = by_path(f"jax.ops:segment_{kind}", num_segments=SEGMENTS)
    title = f"segment_{kind} of 500,000 rows of 8 numbers, {SEGMENTS} segments"
    formula = Formula(_segmented, ours, numpy, torch, jax)
    return _contest(f"segment-{kind}", title, formula, rtol=1e-3, atol=1e-4)


# Counts.  x: [1000000]


def _whole() -> Arrays:
    return [np.random.default_rng(0).integers(0, 1000, 1_000_000)]


def _normal(shape: tuple[int, ...]) -> Arrays:
    return [np.random.default_rng(0).standard_normal(shape, np.float32)]


def _histogram(x: Any) -> Any:
    import graphfw as gf

    return gf.histogram(x, 100, range=(-5.0, 5.0))[0]


def _histogram_torch(x: Any) -> Any:
    import torch

    return torch.histc(x, 100, -5.0, 5.0).long()


def _histogram_of(module: str, x: Any) -> Any:
    return importlib.import_module(module).histogram(x, 100, (-5.0, 5.0))[0]


_MILLION = functools.partial(_normal, (1_000_000,))
_SQUARE = functools.partial(_normal, (1000, 1000))
_BINCOUNT = Formula(
    _whole,
    by_path("graphfw:bincount", length=1000),
    by_path("numpy:bincount", minlength=1000),
    by_path("torch:bincount", minlength=1000),
    by_path("jax.numpy:bincount", length=1000),
)
_HISTOGRAM = Formula(
    _MILLION,
    _histogram,
    functools.partial(_histogram_of, "numpy"),
    _histogram_torch,
    functools.partial(_histogram_of, "jax.numpy"),
)


# Order


def _medians_torch(x: Any) -> Any:
    return x.quantile(0.5, dim=1)


def _cummax_torch(x: Any) -> Any:
    return x.cummax(1).values


def _cummax_jax(x: Any) -> Any:
    from jax import lax

    return lax.cummax(x, axis=1)


def _sort_torch(x: Any) -> Any:
    return x.sort(-1).values


_QUANTILE = Formula(
    _MILLION,
    by_path("graphfw:quantile", 0.9),
    by_path("numpy:quantile", 0.9),
    by_path("torch:quantile", 0.9),
    by_path("jax.numpy:quantile", 0.9),
)
_MEDIAN = Formula(
    _SQUARE,
    by_path("graphfw:median", axis=1),
    by_path("numpy:median", axis=1),
    _medians_torch,
    by_path("jax.numpy:median", axis=1),
)
_CUMMAX = Formula(
    _SQUARE,
    by_path("graphfw:cumulative_max", axis=1),
    by_path("numpy:maximum.accumulate", axis=1),
    _cummax_torch,
    _cummax_jax,
)
_SORT = Formula(
    _MILLION, by_path("graphfw:sort"), by_path("numpy:sort"), _sort_torch, by_path("jax.numpy:sort")
)
_SORT_ROWS = Formula(
    _SQUARE, by_path("graphfw:sort"), by_path("numpy:sort"), _sort_torch, by_path("jax.numpy:sort")
)


# Draws: their means are compared, as each library has bits of its own.

DRAWN = 200_000


def _drawn_graphfw(name: str, fixed: tuple[Any, ...]) -> Case:
    import graphfw as gf

    with gf.Graph() as graph:
        draw = getattr(gf.random, name)
        if name == "poisson":
            y = draw(gf.full((DRAWN,), *fixed))
        elif name == "categorical":
            y = draw(gf.constant(_logits()), (DRAWN,))
        else:
            y = draw((DRAWN,), *fixed)
    plan = devices.session(graph).compile(y, feeds=[])
    return Case(plan, lambda: np.mean(np.asarray(plan()), dtype=np.float64))


def _drawn_numpy(name: str, fixed: tuple[Any, ...]) -> Case:
    rng = np.random.default_rng(0)

    def run() -> Any:
        if name == "gamma":
            return rng.standard_gamma(*fixed, DRAWN, np.float32)
        if name == "categorical":
            p = np.exp(_logits().astype(np.float64))
            return rng.choice(len(p), DRAWN, p=p / p.sum())
        return getattr(rng, name)(*fixed, DRAWN)

    return Case(run, lambda: np.mean(run()))


def _drawn_torch(name: str, fixed: tuple[Any, ...]) -> Case:
    torch = torch_module()
    one = [torch.full((DRAWN,), value) for value in fixed]
    distribution = {
        "gamma": lambda: torch._standard_gamma(*one),
        "beta": lambda: torch.distributions.Beta(*one, validate_args=False).sample(),
        "poisson": lambda: torch.poisson(*one),
        "categorical": lambda: torch.multinomial(
            torch.tensor(_logits()).softmax(-1), DRAWN, replacement=True
        ),
    }
    run = distribution[name]
    return Case(run, lambda: run().double().mean().numpy())


def _drawn_jax(name: str, fixed: tuple[Any, ...]) -> Case:
    import jax

    def draw(key: Any) -> Any:
        if name == "categorical":
            return jax.random.categorical(key, jax.numpy.asarray(_logits()), shape=(DRAWN,))
        return getattr(jax.random, name)(key, *fixed, shape=(DRAWN,))

    key, compiled = jax.random.key(0), jax.jit(draw)
    return Case(
        lambda: compiled(key).block_until_ready(),
        lambda: np.mean(np.asarray(compiled(key)), dtype=np.float64),
    )


def _logits() -> Array:
    return np.random.default_rng(0).standard_normal(100, np.float32)


def _draw(name: str, title: str, *fixed: float) -> Contest:
    cases = (_drawn_graphfw, _drawn_numpy, _drawn_torch, _drawn_jax)
    names = ("graphfw", "numpy", "torch", "jax")
    makers: dict[str, Maker] = {
        who: functools.partial(case, name, fixed) for who, case in zip(names, cases, strict=True)
    }
    return Contest(f"draw-{name}", f"{DRAWN:,} draws, {title}", makers, TARGETS, rtol=0.03)


# Signals, boxes, linear algebra

WINDOW, HOP = 1024, 256


def _stft_graphfw(x: Any, window: Any) -> Any:
    import graphfw as gf

    return gf.abs(gf.fft.stft(x, window, HOP, centred=False))


def _stft_numpy(x: Array, window: Array) -> Array:
    frames = np.lib.stride_tricks.sliding_window_view(x, WINDOW)[::HOP]
    return np.abs(np.fft.rfft(frames * window, axis=-1))


def _stft_torch(x: Any, window: Any) -> Any:
    import torch

    y = torch.stft(x, WINDOW, HOP, window=window, center=False, return_complex=True)
    return y.abs().T


def _stft_jax(x: Any, window: Any) -> Any:
    from jax import numpy as jnp

    indices = jnp.arange(0, x.shape[0] - WINDOW + 1, HOP)[:, None] + jnp.arange(WINDOW)
    return jnp.abs(jnp.fft.rfft(x[indices] * window, axis=-1))


def _signal() -> Arrays:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(480_000, np.float32), np.hanning(WINDOW).astype(np.float32)]


def _boxes() -> Arrays:
    rng = np.random.default_rng(0)
    corners = rng.uniform(0, 500, (2000, 2))
    boxes = np.concatenate([corners, corners + rng.uniform(10, 100, (2000, 2))], axis=1)
    return [boxes.astype(np.float32), rng.random(2000, np.float32)]


def _nms_graphfw(boxes: Any, scores: Any) -> Any:
    import graphfw as gf

    return gf.nms(boxes, scores, 0.5)


def _nms_numpy(boxes: Array, scores: Array) -> Array:
    order, kept = np.argsort(-scores, kind="stable"), []
    area = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    while order.size:
        best, order = order[0], order[1:]
        kept.append(best)
        low = np.maximum(boxes[best, :2], boxes[order, :2])
        high = np.minimum(boxes[best, 2:], boxes[order, 2:])
        common = np.prod(np.maximum(high - low, 0), axis=1)
        order = order[common <= 0.5 * (area[best] + area[order] - common)]
    return np.array(kept)


def _matrices(size: int, columns: int = 0) -> Arrays:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((size, size), np.float32) / np.float32(size**0.5)
    if not columns:
        return [x]
    return [
        x + 3 * np.eye(size, dtype=np.float32),
        rng.standard_normal((size, columns), np.float32),
    ]


def _solved_torch(a: Any, b: Any) -> Any:
    import torch

    return torch.linalg.solve_triangular(a, b, upper=False)


_LINEAR = [
    _contest(
        "solve-triangular",
        "a triangle of 512×512 solved for 64 columns",
        Formula(
            functools.partial(_matrices, 512, 64),
            by_path("graphfw:linalg.solve_triangular"),
            by_path("scipy.linalg:solve_triangular", lower=True),
            _solved_torch,
            by_path("jax.scipy.linalg:solve_triangular", lower=True),
        ),
        rtol=1e-3,
        atol=1e-4,
    ),
    _contest(
        "lu",
        "P, L and U of 512×512",
        Formula(
            functools.partial(_matrices, 512),
            by_path("graphfw:linalg.lu"),
            by_path("scipy.linalg:lu"),
            by_path("torch:linalg.lu"),
            by_path("jax.scipy.linalg:lu"),
        ),
        rtol=1e-2,
        atol=1e-3,
    ),
    _contest(
        "matrix-exp",
        "the exponential of a matrix, 256×256",
        Formula(
            functools.partial(_matrices, 256),
            by_path("graphfw:linalg.matrix_exp"),
            by_path("scipy.linalg:expm"),
            by_path("torch:linalg.matrix_exp"),
            by_path("jax.scipy.linalg:expm"),
        ),
        rtol=1e-3,
        atol=1e-4,
    ),
]


WORKLOADS = [
    *_SPECIAL,
    _segment("sum", _sum_numpy, _sum_torch),
    _segment("max", _max_numpy, _max_torch),
    _contest("bincount", "how often each of 1000 numbers occurs in 1,000,000", _BINCOUNT),
    _contest("histogram", "a histogram of 1,000,000 numbers, 100 bins", _HISTOGRAM, atol=1e-3),
    _contest("quantile", "one quantile of 1,000,000 numbers", _QUANTILE),
    _contest("median-rows", "the median of each row, 1000×1000", _MEDIAN),
    _contest("cumulative-max", "the largest so far along rows, 1000×1000", _CUMMAX),
    _contest("sort", "1,000,000 numbers in order", _SORT),
    _contest("sort-rows", "each row of 1000×1000 in order", _SORT_ROWS),
    _draw("gamma", "gamma distribution of shape 2.5", 2.5),
    _draw("beta", "beta distribution of shapes 2 and 3", 2.0, 3.0),
    _draw("poisson", "Poisson distribution of rate 4", 4.0),
    _draw("categorical", "of 100 classes"),
    _contest(
        "stft",
        "magnitudes of a short-time Fourier transform of 480,000 numbers",
        Formula(_signal, _stft_graphfw, _stft_numpy, _stft_torch, _stft_jax, constants=1),
        rtol=1e-3,
        atol=1e-4,
    ),
    _contest(
        "nms", "the best of 2000 boxes that overlap", Formula(_boxes, _nms_graphfw, _nms_numpy)
    ),
    *_LINEAR,
]
