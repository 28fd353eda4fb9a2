"""The kinds of cases: each takes a seed, and raises where graphfw and another library differ."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

import graphfw as gf
from tests.fuzz.forms import ANY, SMOOTH
from tests.fuzz.layers import LAYERS
from tests.fuzz.libraries import GRAPHFW, NUMPY, Array, Recording, Space, torch_space
from tests.fuzz.noise import Noise
from tests.fuzz.programs import WAYS, Program, Way, generate, random_shapes, sized
from tests.fuzz.routes import check_routes

LENGTHS = (1, 2, 3, 5, 8, 17, 33)
LARGE = 2500
"""Rows that are enough for several threads."""

SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 1e-40, 2.0**20])

seen: Counter[str] = Counter()
"""The numbers of compared cases, values and gradients, and of refused programs."""


@functools.cache
def _torch() -> Space | None:
    return torch_space() if importlib.util.find_spec("torch") else None


KINDS_OF_NUMBERS = {
    "float32": 4, "float64": 3, "int32": 2, "int64": 2, "bool": 2, "float16": 1, "bfloat16": 1,
    "int8": 1, "uint8": 1, "int16": 1, "uint32": 1, "uint64": 1, "complex64": 1, "complex128": 1,
}  # fmt: skip
"""Dtypes, and how often values have them."""


def values(seed: int) -> None:
    """Each value of a program of any functions, against NumPy from the same operands."""
    rng = np.random.default_rng(seed)
    weights = np.array(list(KINDS_OF_NUMBERS.values()))
    name = str(rng.choice(list(KINDS_OF_NUMBERS), p=weights / weights.sum()))
    dtype = np.dtype(getattr(gf, name))
    # NumPy computes numbers of 16 bits as float32; then they are rounded.
    wide = np.dtype("float32") if name in ("float16", "bfloat16") else dtype
    special = dtype.kind == "f" and wide == dtype and rng.random() < 0.3

    def draw(shape: tuple[int, ...]) -> Array:
        if dtype.kind in "biu":
            low = 0 if dtype.kind in "bu" else -5
            return np.asarray(rng.integers(low, 6, shape)).astype(dtype)
        x = np.asarray(rng.standard_normal(shape))
        if dtype.kind == "c":
            x = x + 1j * rng.standard_normal(shape)
        if special:
            x = np.where(rng.random(shape) < 0.2, rng.choice(SPECIAL, shape), x)
        return x.astype(dtype).astype(wide)

    program = generate(rng, ANY, random_shapes(rng), int(rng.integers(1, 12)), draw)
    with _explained(program, name), gf.Graph() as g, _Sessions(g) as sessions:
        feeds = [
            gf.placeholder(shape, name, name=f"x{i}") for i, shape in enumerate(program.shapes)
        ]
        try:
            made = program.values(GRAPHFW, feeds)
        except gf.GraphfwError:
            seen["refused"] += 1
            return
        last = program.results(GRAPHFW, feeds)
        for sizes in _sizes(rng, program, draw):
            arrays = [draw(sized(shape, sizes)) for shape in program.shapes]
            with np.errstate(all="ignore"):
                try:
                    program.values(NUMPY, arrays)
                except (ValueError, IndexError, OverflowError):  # a function refuses a size
                    continue
            fed = {tensor: x.astype(dtype) for tensor, x in zip(feeds, arrays, strict=True)}
            found = sessions.run([*made, *last], fed)
            each, final = found[: len(made)], found[len(made) :]
            for number, step in enumerate(program.steps, len(arrays)):
                operands = [_widened(each[i], each[number]) for i in step.args]
                with np.errstate(all="ignore"):
                    wanted = np.asarray(step.form.call(NUMPY, *operands))
                    if _unsaid(step.form.text, operands) or _leaves_range(each[number], operands):
                        continue
                _compare(f"x{number}", each[number], wanted, operands)
                seen["values"] += 1
            if not special and dtype.name == "float64" and len(final) == 1:
                _compare("the last, alone", final[0], each[-1], each)


def _widened(x: Array, result: Array) -> Array:
    """Return an operand as numbers that NumPy computes a result of."""
    if x.dtype.itemsize == 2 and x.dtype.kind not in "iu":
        return x.astype(np.float32)
    # Of short integers NumPy makes float16, and graphfw the default dtype.
    return x.astype(np.float64) if x.dtype.kind in "iu" and result.dtype.kind == "f" else x


def _leaves_range(result: Array, operands: Sequence[Array]) -> bool:
    """Whether what is computed on the way may be too large for a result of 16 bits."""
    return result.dtype.itemsize == 2 and any([(abs(x) > 200).any() for x in operands])


def _unsaid(text: str, operands: Sequence[Array]) -> bool:
    """Whether nobody says what the result is, or the docs say that it is not NumPy's."""
    name = text.split()[0]
    floats = [x for x in operands if x.dtype.kind in "fc"]
    odd = any([not np.isfinite(x).all() for x in floats])
    if any([x.dtype.kind == "c" for x in operands]) and odd:
        return True
    if "//" in text or "%" in text:  # the Array API has other results for infinite numbers
        return odd or any([(x == 0).any() for x in operands])
    if name in ("copysign", "signbit"):  # the sign of a NaN
        return any([np.isnan(x).any() for x in floats])
    if name in ("pow", "nextafter", "argsort") or "searchsorted" in text or "sort" in text:
        return odd
    if name in ("median", "argmax", "argmin", "sort", "prod", "cumulative_prod"):
        return odd
    return odd and ("matmul" in text or "segment" in text)


class Precision(NamedTuple):
    """The tolerance of results of a dtype.

    Attributes:
        noise: How much each value is moved, of itself, to see how far that moves others.
        unit: Of what sums are added up in: that of many terms is moved further.
        least: What results may be off, of the largest, where nothing moves them.
        factor: How many times as far as noise moves results these may be off.
        most: Where noise moves results further, of the largest, nothing is said.
        safe: Where results are larger, squares on the way may have left the dtype's range, so that
            results may be infinite or NaN. The reference is float64, and has a wider range.
    """

    noise: float
    unit: float
    least: float
    factor: float
    most: float
    safe: float


PRECISIONS = {
    "float64": Precision(1e-9, 2.0**-52, 1e-9, 10, 1e-4, 1e150),
    "float32": Precision(2.0**-23, 2.0**-23, 2.0**-19, 100, 1e-2, 1e19),
    "float16": Precision(2.0**-10, 2.0**-23, 2.0**-7, 100, 1e-2, 0.0),
    "bfloat16": Precision(2.0**-7, 2.0**-23, 2.0**-4, 100, 5e-2, 1e19),
}


def transformed(way: str, seed: int) -> None:
    """A smooth program called in some way, and its gradients, against NumPy and PyTorch."""
    rng = np.random.default_rng(seed)
    dtype = str(rng.choice(list(PRECISIONS), p=[0.76, 0.12, 0.06, 0.06]))
    kind = np.dtype(getattr(gf, dtype))
    shapes = random_shapes(rng, leading=way == "staged")

    def draw(shape: tuple[int, ...]) -> Array:
        x = np.asarray(rng.standard_normal(shape))
        return np.asarray(x.astype(kind).astype(np.float64))

    program = generate(
        rng,
        [*SMOOTH, *LAYERS, *LAYERS],
        shapes,
        int(rng.integers(2, 9)),
        draw,
        lambda x: bool(abs(x).max() < 1e3),
    )
    if not program.steps:
        return
    how = WAYS[way]
    twice = rng.random() < 0.25
    with _explained(program, dtype), gf.Graph() as g, _Sessions(g) as sessions:
        every = _sizes(rng, program, draw)
        if rng.random() < 0.3:
            every = every[:1]
            program = program.fixed(every[0])
        kinds = how.shapes(program.shapes)
        feeds = [gf.placeholder(shape, dtype, name=f"x{i}") for i, shape in enumerate(kinds)]
        try:
            outputs = how.graph(program, feeds)
        except gf.GraphfwError:
            seen["refused"] += 1
            return
        gradients = gf.grad(_loss(gf, outputs), feeds, missing="zeros")
        if twice:
            gradients += gf.grad(_loss(gf, gradients), feeds, missing="zeros")
        fetches = [*outputs, *gradients]
        again = rng.integers(len(every))
        for run, sizes in enumerate(every):
            arrays = [draw(sized(shape, sizes)) for shape in kinds]
            reference = _References(program, how, PRECISIONS[dtype], arrays, rng)
            if reference.outputs is None:
                continue
            given = [x.astype(kind) for x in arrays]
            fed = dict(zip(feeds, given, strict=True))
            found = sessions.run(fetches, fed)
            # PyTorch's second gradients of long cumulative products take it gigabytes.
            reference.compare(found, twice=twice and sizes["n"] != LARGE)

            if run == again:
                check_routes(rng, g, fetches, fed, found, reference.near)


def _loss(xp: Any, outputs: Sequence[Any]) -> Any:
    return sum(xp.sum(xp.sin(y)) for y in outputs)


class _References:
    """Another library's results of a program, and how far noise moves them.

    Attributes:
        outputs: What NumPy computes; None where it can't.
    """

    def __init__(
        self,
        program: Program,
        how: Way,
        precision: Precision,
        arrays: Sequence[Array],
        rng: np.random.Generator,
    ) -> None:
        self._program, self._how, self._precision = program, how, precision
        self._arrays, self._rng = arrays, rng
        self._allowed: dict[int, float] = {}
        terms = max([x.size for x in arrays], default=1)
        self._noise = max(precision.noise, precision.unit * terms**0.5)
        recording = Recording()
        self.outputs = self._computed(recording, 0)
        self._largest = recording.largest
        self._moved = [self._computed(NUMPY, self._noise) for _ in range(2)]
        if any([_shapes(x) != _shapes(self.outputs) for x in self._moved]):
            self.outputs = None

    def compare(self, found: Sequence[Any], *, twice: bool) -> None:
        """Compare outputs and gradients, and maybe second derivatives, with what was found."""
        assert self.outputs is not None
        for i, wanted in enumerate(self.outputs):
            self._within(i, f"output {i}", found[i], wanted, [x[i] for x in self._moved])
            seen["values"] += 1
        count = len(self.outputs)
        exact = self._gradients(0, twice=twice)
        moved = [self._gradients(self._noise, twice=twice) for _ in range(2)]
        is_certain = True
        for i, wanted in enumerate(exact):
            what, got = f"the gradient {i}, of {len(self._arrays)} inputs", found[count + i]
            if not is_certain and not np.isfinite(np.asarray(got)).all():
                continue  # it is made of gradients of which nothing could be said
            near = [x[i] for x in moved if x]
            is_certain &= self._within(count + i, what, got, wanted, near)
            seen["gradients"] += 1

    def near(self, what: str, number: int, got: Array, wanted: Array) -> None:
        """Compare what two runs found of one of the fetches."""
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype), what
        if self._allowed.get(number):
            off = abs(got.astype(np.float64) - wanted.astype(np.float64)).max(initial=0.0)
            assert off <= 2 * self._allowed[number], (
                f"{what}, fetch {number}: off by {off:g}\n{got}\n{wanted}"
            )
            seen["compared again"] += 1

    def _computed(self, xp: Space, noise: float) -> Any:
        with np.errstate(all="ignore"):
            try:
                inputs = [np.asarray(x) for x in self._arrays]
                return self._reference(xp, inputs, noise)
            except (ValueError, IndexError):
                return None

    def _reference(self, xp: Any, inputs: Sequence[Any], noise: float) -> list[Any]:
        """Compute the program, with noise in each value and in what it is made into."""
        if not noise:
            return list(self._how.reference(self._program, xp, list(inputs)))
        program = replace(self._program, noise=Noise(noise, self._rng))
        outside = Noise(noise, np.random.default_rng(0))
        return [outside.moved(x) for x in self._how.reference(program, xp, list(inputs))]

    def _gradients(self, noise: float, *, twice: bool) -> list[Array]:
        """Return PyTorch's gradients, or none where there is no PyTorch."""
        xp = _torch()
        if xp is None:
            return []
        import torch

        xs = [torch.tensor(x, requires_grad=True) for x in self._arrays]
        # What does not depend on an input has the gradient 0.
        nothing = sum((x * 0).sum() for x in xs)
        try:
            outputs = self._reference(xp, xs, noise)
        except RuntimeError:  # some of PyTorch's functions refuse empty arrays
            return []
        found = [nothing + _loss(xp, outputs)]
        every: list[Any] = []
        for _ in range(1 + twice):
            some = torch.autograd.grad(found[-1], xs, create_graph=twice)
            every += some
            found.append(nothing + _loss(torch, some))
        return [x.detach().numpy() for x in every]

    def _within(
        self, number: int, what: str, got: Any, wanted: Array, moved: Sequence[Array]
    ) -> bool:
        """Compare as exactly as noise lets results be told; return whether it does."""
        got = np.asarray(got)
        assert got.shape == wanted.shape, f"{what}: {got.shape}, expected {wanted.shape}"
        p = self._precision
        with np.errstate(all="ignore"):
            scale = abs(wanted).max(initial=1.0)
            apart = max([abs(wanted - x).max(initial=0.0) for x in moved])
            if not np.isfinite(scale) or not np.isfinite(apart) or apart > p.most * scale:
                return False  # ill-conditioned: nothing can be said
            if max(scale, self._largest) > gf.finfo(got.dtype).max:
                return False  # numbers on the way have left the dtype's range
            if scale > p.safe and not np.isfinite(got).all():
                return False
            off = abs(got.astype(np.float64) - wanted).max(initial=0.0)
        self._allowed[number] = allowed = p.least * scale + p.factor * apart
        assert off <= allowed, f"{what}, {got.dtype}: off by {off:g}, of {scale:g}\n{got}\n{wanted}"
        return True


def _shapes(arrays: Any) -> Any:
    return None if arrays is None else [x.shape for x in arrays]


def _sizes(
    rng: np.random.Generator, program: Program, draw: Callable[[tuple[int, ...]], Array]
) -> list[dict[str, int]]:
    """Return sizes for all symbols, of a few runs of one plan."""
    found = [
        {name: int(rng.choice(LENGTHS)) if rng.random() < 0.95 else 0 for name in ("n", "m")}
        | {name: int(rng.integers(1, 5)) for name in ("b", "t")}
        for _ in range(2)
    ]
    if rng.random() < 0.2 and program.grows_by_rows(draw):
        found.append({"n": LARGE, "m": 3, "b": 2, "t": 2})
    return found


class _Sessions:
    """Sessions of a graph with one thread and with two, which give the same bits."""

    def __init__(self, g: gf.Graph) -> None:
        self._sessions = [gf.Session(g, threads=threads) for threads in (1, 2)]

    def __enter__(self) -> _Sessions:
        return self

    def __exit__(self, *exc: object) -> None:
        for session in self._sessions:
            session.close()

    def run(self, fetches: Sequence[gf.Tensor], feeds: Any) -> list[Array]:
        runs: list[Any] = []
        for session in self._sessions:
            try:
                runs.append([np.asarray(x) for x in session.run(list(fetches), feeds)])
            except gf.GraphfwError as error:
                runs.append(error)
        one, two = runs
        if isinstance(one, gf.GraphfwError) or isinstance(two, gf.GraphfwError):
            assert type(one) is type(two), f"one and two threads: {one}\n{two}"
            # NumPy computes it: an error is one that says why.
            raise AssertionError(f"graphfw refuses sizes that NumPy takes: {one}")
        for x, y in zip(one, two, strict=True):
            assert x.tobytes() == y.tobytes(), "one thread and two give other bits"
        return list(one)


TOLERANCES = {
    "float64": 1e-11, "complex128": 1e-11, "float32": 2e-5, "complex64": 2e-5,
    "float16": 2.0**-8, "bfloat16": 2.0**-5,
}  # fmt: skip


def _compare(what: str, got: Any, wanted: Array, operands: Sequence[Array]) -> None:
    got = np.asarray(got)
    assert got.shape == wanted.shape, f"{what}: {got.shape}, {wanted.shape} in NumPy"
    if got.dtype.kind in "iub":
        assert got.dtype.kind == wanted.dtype.kind, f"{what}: {got.dtype}, {wanted.dtype} in NumPy"
        np.testing.assert_array_equal(got, wanted.astype(got.dtype), err_msg=what)
        return
    with np.errstate(all="ignore"):
        wanted = wanted.astype(got.dtype)  # of integers NumPy makes float64
    rtol = TOLERANCES[got.dtype.name]
    if got.dtype.itemsize == 2:
        got, wanted = got.astype(np.float32), wanted.astype(np.float32)
    finite = [abs(x[np.isfinite(x)]).max(initial=1.0) for x in (*operands, wanted) if x.size]
    # A sum is as exact as its terms are small.
    atol = rtol * max(finite, default=1.0) * max((x.size for x in operands), default=1) ** 0.5
    np.testing.assert_allclose(got, wanted, rtol, atol, err_msg=what)


@contextlib.contextmanager
def _explained(program: Program, dtype: str) -> Any:
    try:
        yield
    except Exception as error:
        error.add_note(f"{dtype}\n{program}")
        raise
    seen["cases"] += 1


KINDS: dict[str, Callable[[int], None]] = {
    "values": values,
    **{way: functools.partial(transformed, way) for way in WAYS},
}
