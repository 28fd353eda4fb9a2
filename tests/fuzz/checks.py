"""The kinds of cases: each takes a seed, and raises where graphfw and another library differ."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import graphfw as gf
from tests.fuzz.forms import ANY, NUMPY, SMOOTH, Array, Space, torch_space
from tests.fuzz.programs import WAYS, Program, generate, random_shapes, sized

LENGTHS = (1, 2, 3, 5, 8, 17, 33)
LARGE = 2500
"""Rows that are enough for several threads."""

SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 1e-40, 2.0**20])

seen: Counter[str] = Counter()
"""How many cases, values and gradients were compared, and how many programs were refused."""


@functools.cache
def _torch() -> Space | None:
    return torch_space() if importlib.util.find_spec("torch") else None


def values(seed: int) -> None:
    """Each value of a program of any functions, against NumPy from the same operands."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(rng.choice(["float32", "float64", "int32", "int64", "float32", "bool"]))
    special = dtype.kind == "f" and rng.random() < 0.3

    def draw(shape: tuple[int, ...]) -> Array:
        if dtype.kind != "f":
            return np.asarray(rng.integers(0 if dtype.kind == "b" else -5, 6, shape)).astype(dtype)
        x = np.asarray(rng.standard_normal(shape))
        if special:
            x = np.where(rng.random(shape) < 0.2, rng.choice(SPECIAL, shape), x)
        return x.astype(dtype)

    program = generate(rng, ANY, random_shapes(rng), int(rng.integers(1, 12)), draw)
    with _explained(program), gf.Graph() as g:
        feeds = [
            gf.placeholder(shape, dtype, name=f"x{i}") for i, shape in enumerate(program.shapes)
        ]
        try:
            made = program.values(gf, feeds)
        except gf.GraphfwError:
            seen["refused"] += 1
            return
        last = program.results(gf, feeds)
        for sizes in _sizes(rng, program):
            arrays = [draw(sized(shape, sizes)) for shape in program.shapes]
            with np.errstate(all="ignore"):
                try:
                    program.values(NUMPY, arrays)
                except (ValueError, IndexError):  # a size that one of the functions refuses
                    continue
            fed = dict(zip(feeds, arrays, strict=True))
            found = _both_thread_counts(g, [made, last], fed)
            if found is None:
                continue
            each, final = found
            for number, step in enumerate(program.steps, len(arrays)):
                operands = [np.asarray(each[i]) for i in step.args]
                with np.errstate(all="ignore"):
                    wanted = np.asarray(step.form.call(NUMPY, *operands))
                    if _unsaid(step.form.text, operands):
                        continue
                _compare(f"x{number}", each[number], wanted, operands)
                seen["values"] += 1
            if not special and dtype.name == "float64" and len(final) == 1:
                _compare("the last, alone", final[0], each[-1], each)


def _unsaid(text: str, operands: Sequence[Array]) -> bool:
    """Whether nobody says what the result is, or the docs say that it is not NumPy's."""
    name = text.split()[0]
    floats = [x for x in operands if x.dtype.kind == "f"]
    odd = any([not np.isfinite(x).all() for x in floats])
    if "//" in text or "%" in text:  # the Array API has other results for infinite numbers
        return odd or any([(x == 0).any() for x in operands])
    if name in ("copysign", "signbit"):  # the sign of a NaN
        return any([np.isnan(x).any() for x in floats])
    if name in ("pow", "nextafter", "argsort") or "searchsorted" in text or "sort" in text:
        return odd
    if name in ("median", "argmax", "argmin", "sort", "prod", "cumulative_prod"):
        return odd
    return "matmul" in text and odd


def transformed(way: str, seed: int) -> None:
    """A smooth program called in some way, and its gradients, against NumPy and PyTorch."""
    rng = np.random.default_rng(seed)
    shapes = random_shapes(rng, leading=way == "staged")
    while way == "scan" and len(shapes) < 2:
        shapes = random_shapes(rng)

    def draw(shape: tuple[int, ...]) -> Array:
        return np.asarray(rng.standard_normal(shape))

    program = generate(
        rng, SMOOTH, shapes, int(rng.integers(2, 9)), draw, lambda x: bool(abs(x).max() < 1e3)
    )
    if not program.steps:
        return
    how = WAYS[way]
    with _explained(program), gf.Graph() as g:
        kinds = how.shapes(program.shapes)
        feeds = [gf.placeholder(shape, "float64", name=f"x{i}") for i, shape in enumerate(kinds)]
        try:
            outputs = how.graph(program, feeds)
        except gf.GraphfwError:
            seen["refused"] += 1
            return
        loss = sum(gf.sum(gf.sin(y)) for y in outputs)
        gradients = gf.grad(loss, feeds, missing="zeros")
        for sizes in _sizes(rng, program):
            arrays = [draw(sized(shape, sizes)) for shape in kinds]
            nudged = [x * (1 + 1e-9 * rng.standard_normal(x.shape)) for x in arrays]
            with np.errstate(all="ignore"):
                try:
                    wanted = how.reference(program, NUMPY, arrays)
                    near = how.reference(program, NUMPY, nudged)
                except (ValueError, IndexError):
                    continue
            if [x.shape for x in wanted] != [x.shape for x in near]:
                continue
            fed = dict(zip(feeds, arrays, strict=True))
            found = _both_thread_counts(g, [outputs, gradients], fed)
            if found is None:
                continue
            for i, (a, b, c) in enumerate(zip(found[0], wanted, near, strict=True)):
                _within(f"output {i}", a, b, c)
                seen["values"] += 1
            exact, close = (_gradients(program, how.reference, xs) for xs in (arrays, nudged))
            for i, (a, b, c) in enumerate(zip(found[1], exact, close, strict=False)):
                _within(f"the gradient by x{i}", a, b, c)
                seen["gradients"] += 1


def _gradients(program: Program, reference: Any, arrays: list[Array]) -> list[Array]:
    """Return what PyTorch finds, or nothing where there is no PyTorch."""
    xp = _torch()
    if xp is None:
        return []
    import torch

    xs = [torch.tensor(x, requires_grad=True) for x in arrays]
    loss = sum(torch.sin(y).sum() for y in reference(program, xp, xs))
    if not loss.requires_grad:
        return [np.zeros_like(x) for x in arrays]
    found = torch.autograd.grad(loss, xs, allow_unused=True)
    return [
        np.zeros_like(x) if d is None else d.numpy() for x, d in zip(arrays, found, strict=True)
    ]


def _sizes(rng: np.random.Generator, program: Program) -> list[dict[str, int]]:
    """Return sizes for all symbols, of a few runs of one plan."""
    found = [
        {name: int(rng.choice(LENGTHS)) for name in ("n", "m")}
        | {name: int(rng.integers(1, 5)) for name in ("b", "t")}
        for _ in range(2)
    ]
    if rng.random() < 0.2 and program.grows_by_rows():
        found.append({"n": LARGE, "m": 3, "b": 2, "t": 2})
    return found


def _both_thread_counts(g: gf.Graph, fetches: Any, feeds: Any) -> Any:
    """Return what a run gives; one thread and two give the same bits. None if it is refused."""
    runs = []
    for threads in (1, 2):
        with gf.Session(g, threads=threads) as session:
            try:
                runs.append(session.run(fetches, feeds))
            except gf.GraphfwError as error:
                runs.append(error)
    if isinstance(runs[0], gf.GraphfwError) or isinstance(runs[1], gf.GraphfwError):
        kinds = [type(run) for run in runs]
        assert kinds[0] is kinds[1], f"one and two threads: {kinds}"
        # NumPy computes it: an error is one that says why.
        raise AssertionError(f"graphfw refuses sizes that NumPy takes: {runs[0]}")
    for one, two in zip(_flat(runs[0]), _flat(runs[1]), strict=True):
        assert one.tobytes() == two.tobytes(), "one thread and two give other bits"
    return runs[0]


def _flat(fetched: Any) -> list[Array]:
    return [np.asarray(x) for part in fetched for x in part]


def _compare(what: str, got: Any, wanted: Array, operands: Sequence[Array]) -> None:
    got = np.asarray(got)
    assert got.shape == wanted.shape, f"{what}: {got.shape}, {wanted.shape} in NumPy"
    if got.dtype.kind in "iub":
        assert got.dtype.kind == wanted.dtype.kind, f"{what}: {got.dtype}, {wanted.dtype} in NumPy"
        np.testing.assert_array_equal(got, wanted.astype(got.dtype), err_msg=what)
        return
    with np.errstate(all="ignore"):
        wanted = wanted.astype(got.dtype)  # of integers NumPy makes float64
    rtol = {"float32": 2e-5, "float64": 1e-11}[got.dtype.name]
    finite = [abs(x[np.isfinite(x)]).max(initial=1.0) for x in (*operands, wanted) if x.size]
    # A sum is as exact as its terms are small.
    atol = rtol * max(finite, default=1.0) * max((x.size for x in operands), default=1) ** 0.5
    np.testing.assert_allclose(got, wanted, rtol, atol, err_msg=what)


def _within(what: str, got: Any, wanted: Array, nudged: Array) -> None:
    """Compare as exactly as inputs that are off by 1e-9 of themselves let results be told."""
    got = np.asarray(got)
    assert got.shape == wanted.shape, f"{what}: {got.shape}, expected {wanted.shape}"
    with np.errstate(all="ignore"):
        scale = abs(wanted).max(initial=1.0)
        moved = abs(wanted - nudged).max(initial=0.0)
        if not np.isfinite(scale) or not np.isfinite(moved) or moved > 1e-4 * scale:
            return  # ill-conditioned: nothing can be said
        off = abs(got - wanted).max(initial=0.0)
    assert off <= 1e-9 * scale + 10 * moved, (
        f"{what}: off by {off:g}, of {scale:g}\n{got}\n{wanted}"
    )


@contextlib.contextmanager
def _explained(program: Program) -> Any:
    try:
        yield
    except Exception as error:
        error.add_note(str(program))
        raise
    seen["cases"] += 1


KINDS: dict[str, Callable[[int], None]] = {
    "values": values,
    **{way: functools.partial(transformed, way) for way in WAYS},
}
