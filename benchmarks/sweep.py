"""A few functions over all sizes, on one thread and on two, in each storage dtype.

Time is plotted against size, next to what copying takes and what the best matrix product of the
sweep would take: a cliff at an odd size is seen at once. Sizes are prime, or powers of 2 and 10.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import math
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine, timing
from benchmarks.frameworks import Arrays, Formula
from benchmarks.workers import Pool
from benchmarks.workload import Contest, Maker, Settings

SIZES = (
    *(100, 331, 1009, 4096, 10_007, 31_627, 100_003, 316_241),
    *(1_000_003, 1 << 20, 3_162_283, 10_000_019, 1 << 24, 31_622_777, 100_000_000),
)
DTYPES = ("float32", "float64", "float16", "bfloat16")
_MOST_BYTES = 400_000_000
_MOST_S = 0.5
_TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}


@dataclasses.dataclass(frozen=True)
class Point:
    """The measurement at one size.

    Attributes:
        function, dtype, threads: What was measured.
        elements: The size of the first argument.
        work: Multiplications and additions of a matrix product, else 0.
        seconds: The median time of each contender, and of copying the first argument.
        notes: Why a contender has no time.
    """

    function: str
    dtype: str
    threads: int
    elements: int
    work: int
    seconds: dict[str, float]
    notes: dict[str, str]


# exp(-x²) y + x.  x, y: [n]


def _chain_graphfw(x: Any, y: Any) -> Any:
    import graphfw as gf

    return gf.exp(-(x * x)) * y + x


def _chain_numpy(x: Any, y: Any) -> Any:
    z = x * x
    np.negative(z, out=z)
    np.exp(z, out=z)
    z *= y
    z += x
    return z


def _chain_torch(x: Any, y: Any) -> Any:
    return (x * x).neg_().exp_().mul_(y).add_(x)


# The softmax of rows.  x: [r, c]


def _softmax_graphfw(x: Any) -> Any:
    import graphfw as gf

    return gf.softmax(x, axis=-1)


def _softmax_numpy(x: Any) -> Any:
    y = np.exp(x - x.max(axis=1, keepdims=True))
    y /= y.sum(axis=1, keepdims=True, dtype=_wide(x)).astype(x.dtype)
    return y


def _wide(x: Any) -> Any:
    """Return the dtype that sums are made in: 16 bits are too few."""
    return np.float32 if x.dtype.itemsize == 2 else x.dtype


def _softmax_torch(x: Any) -> Any:
    import torch

    return torch.softmax(x, dim=-1)


# The sum of all.  x: [n]


def _sum_graphfw(x: Any) -> Any:
    import graphfw as gf

    return gf.sum(x)


def _sum_numpy(x: Any) -> Any:
    return x.sum(dtype=_wide(x)).astype(x.dtype)


def _sum_torch(x: Any) -> Any:
    return x.sum()


# The product of square matrices.  x, w: [m, m]


def _product(x: Any, w: Any) -> Any:
    return x @ w


def _shapes(function: str, elements: int) -> list[tuple[int, ...]]:
    side = math.isqrt(elements)
    shapes: dict[str, list[tuple[int, ...]]] = {
        "chain": [(elements,), (elements,)],
        "softmax": [(elements // side, side)],
        "sum": [(elements,)],
        "matmul": [(side, side), (side, side)],
    }
    return shapes[function]


def _inputs(function: str, elements: int, dtype: str) -> Arrays:
    """Return positive numbers, so small that no sum of them is too large for 16 bits."""
    kind: Any = dtype
    if dtype == "bfloat16":
        import ml_dtypes

        kind = ml_dtypes.bfloat16
    rng = np.random.default_rng(0)
    largest = np.float32(min(1.0, 32768 / elements) if function == "sum" else 1.0)
    return [
        (rng.random(shape, np.float32) * largest).astype(kind)
        for shape in _shapes(function, elements)
    ]


FUNCTIONS: dict[str, tuple[Any, Any, Any]] = {
    "chain": (_chain_graphfw, _chain_numpy, _chain_torch),
    "softmax": (_softmax_graphfw, _softmax_numpy, _softmax_torch),
    "sum": (_sum_graphfw, _sum_numpy, _sum_torch),
    "matmul": (_product, _product, _product),
}
"""Each as graphfw, NumPy and PyTorch write it."""

_CONTENDERS = ("graphfw", "numpy", "torch")


def _makers(function: str, elements: int, dtype: str) -> dict[str, Maker]:
    inputs = functools.partial(_inputs, function, elements, dtype)
    makers = Formula(inputs, *FUNCTIONS[function]).makers(floor=True)
    return {name: makers[name] for name in (*_CONTENDERS, *machine.FLOORS)}


def _sweep(pool: Pool, function: str, dtype: str, largest: float) -> list[Point]:
    """Measure one function at all sizes; who gets slow takes no part in larger ones."""
    threads = pool.settings.threads
    exponent = 1.5 if function == "matmul" else 1.0
    last: dict[str, tuple[int, float]] = {}
    points = []
    for elements in SIZES:
        shapes = _shapes(function, elements)
        if elements > largest or elements * _bytes(dtype) > _MOST_BYTES:
            break
        makers = {
            name: maker
            for name, maker in _makers(function, elements, dtype).items()
            if name not in last or last[name][1] * (elements / last[name][0]) ** exponent < _MOST_S
        }
        if not any(name in makers for name in pool.settings.contenders):
            break
        tolerance = _TOLERANCES[dtype]
        contest = Contest(function, "", makers, rtol=tolerance, atol=tolerance)
        result = pool.measure(contest)
        work = 2 * shapes[0][0] ** 3 if function == "matmul" else 0
        size = math.prod(shapes[0])
        points.append(Point(function, dtype, threads, size, work, result.seconds, result.notes))
        print(_row(points[-1]), flush=True)
        last |= {name: (elements, taken) for name, taken in result.seconds.items()}
    return points


def _bytes(dtype: str) -> int:
    return {"float64": 8, "float32": 4}.get(dtype, 2)


def _row(point: Point) -> str:
    """Return a row of the table: times, and graphfw's ratio to the best peer and to copying."""
    names = (*_CONTENDERS, *machine.FLOORS)
    times = [timing.text(point.seconds[n]) if n in point.seconds else "" for n in names]
    own = point.seconds.get("graphfw")
    peers = [t for name, t in point.seconds.items() if name in machine.PEERS]
    to_best = f"{own / min(peers):.2f}" if own and peers else ""
    to_copy = f"{own / point.seconds['copy']:.2f}" if own and "copy" in point.seconds else ""
    notes = "; ".join(f"{name} {note}" for name, note in point.notes.items())
    what = [point.function, point.dtype, str(point.threads), f"{point.elements:,}"]
    return "| " + " | ".join([*what, *times, to_best, to_copy, notes]) + " |"


_COLUMNS = (
    *("function", "dtype", "threads", "elements", *_CONTENDERS, *machine.FLOORS),
    *("× best peer", "× copy", "notes"),
)


def main(arguments: list[str]) -> None:
    """Read the command line, measure, and write a plot, a table and the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks sweep", description=__doc__)
    known = ", ".join(FUNCTIONS)
    parser.add_argument("functions", nargs="*", metavar="function", help=f"of: {known}; all")
    parser.add_argument("--threads", type=_threads, default="1,2", help="how many, in turn (1,2)")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help=f"of: {', '.join(DTYPES)}")
    parser.add_argument("--peers", default="numpy,torch", help="which take part (numpy,torch)")
    parser.add_argument("--peers-only", action="store_true", help="leave graphfw itself out")
    parser.add_argument("--largest", type=float, default=1e8, help="the most elements (1e8)")
    parser.add_argument("--out", type=machine.in_a_folder, default="sweep", help="a folder (sweep)")
    options = parser.parse_args(arguments)
    functions = options.functions or list(FUNCTIONS)
    dtypes = options.dtypes.split(",")
    peers = options.peers.split(",")
    for given, allowed in ((functions, FUNCTIONS), (dtypes, DTYPES), (peers, machine.PEERS)):
        for name in given:
            if name not in allowed:
                parser.error(f"{name!r} is none of {', '.join(allowed)}")
    contenders = (*([] if options.peers_only else ["graphfw"]), *peers)
    heading = f"{date.today()}; {machine.facts()}; {machine.load()}"
    rule = "\n|" + "---|" * len(_COLUMNS)
    print(f"{heading}\n\n| " + " | ".join(_COLUMNS) + " |" + rule, flush=True)
    points = []
    for threads in options.threads:
        settings = Settings(contenders, threads, rounds=3, budget_s=1.0)
        with Pool(settings) as pool:
            for function in functions:
                for dtype in dtypes:
                    points += _sweep(pool, function, dtype, options.largest)
    _write(options.out, heading, points)


def _threads(text: str) -> list[int]:
    return [machine.threads(one) for one in text.split(",")]


def _write(folder: Path, heading: str, points: list[Point]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    record = {"heading": heading, "points": [dataclasses.asdict(p) for p in points]}
    (folder / "sweep.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    rows = "\n".join(map(_row, points))
    head = "| " + " | ".join(_COLUMNS) + " |\n|" + "---|" * len(_COLUMNS)
    text = f"{heading}\n\n![time against size](sweep.png)\n\n{head}\n{rows}\n"
    (folder / "sweep.md").write_text(text, encoding="utf-8")
    if points:
        from benchmarks.plot import plot  # matplotlib, which is not needed to measure

        plot(points, heading, folder / "sweep.png")
    print(f"\nwritten: sweep.json, sweep.md and sweep.png in {folder}")
