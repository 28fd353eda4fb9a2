"""Random programs of forms, and the ways in which one is called: at once, by lanes, in a loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import graphfw as gf
from tests.fuzz.forms import NUMPY, Array, Draw, Form

SIZES = ({"n": 5, "m": 4}, {"n": 7, "m": 6})
"""Sizes with which programs are made: what works with both is taken to work with all."""

MOST = 4096
"""How many elements a value has at most, with these sizes."""

Shape = tuple[int | str, ...]


class Step(NamedTuple):
    form: Form
    args: tuple[int, ...]


@dataclass
class Program:
    """Steps, each of earlier values; the first of these are the inputs."""

    shapes: list[Shape]
    steps: list[Step]
    carried: int | None = None
    """A value of the first input's shape, if there is one."""

    def values(self, xp: Any, inputs: Sequence[Any]) -> list[Any]:
        """Return the inputs and what each step gives."""
        found = list(inputs)
        for step in self.steps:
            found.append(step.form.call(xp, *[found[i] for i in step.args]))
        return found

    def results(self, xp: Any, inputs: Sequence[Any]) -> list[Any]:
        """Return what no step reads."""
        found = self.values(xp, inputs)
        read = {i for step in self.steps for i in step.args}
        return [x for i, x in enumerate(found) if i not in read and i >= len(inputs)]

    def grows_by_rows(self) -> bool:
        """Whether its memory grows with `n` no faster than `n` does."""
        totals = []
        for n in (50, 100):
            arrays = [np.ones(sized(shape, {"n": n, "m": 4})) for shape in self.shapes]
            with np.errstate(all="ignore"):
                try:
                    totals.append(sum(x.size for x in self.values(NUMPY, arrays)))
                except (ValueError, IndexError):
                    return False
        return totals[1] <= 2 * totals[0]

    def __str__(self) -> str:
        lines = [f"x{i}: {shape}" for i, shape in enumerate(self.shapes)]
        for i, step in enumerate(self.steps, len(lines)):
            lines.append(f"x{i} = {step.form.text} of {', '.join(f'x{a}' for a in step.args)}")
        return "\n".join(lines)


def sized(shape: Shape, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(sizes[dim] if isinstance(dim, str) else dim for dim in shape)


def random_shapes(rng: np.random.Generator, *, leading: bool = False) -> list[Shape]:
    """Return the shapes of some inputs; with `leading`, `n` is nowhere but in front."""
    dims: list[int | str] = ["n", "m", 1, 2, 3]
    others = dims[1:] if leading else dims
    found: list[Shape] = [("n", *_some(rng, others, 1, 2))]
    for _ in range(rng.integers(1, 4)):
        first = [dims[rng.integers(len(dims))]] if rng.random() < 0.7 else []
        found.append((*first, *_some(rng, others, 0, 2)))
    return found


def _some(rng: np.random.Generator, dims: Sequence[int | str], low: int, high: int) -> Shape:
    return tuple(dims[i] for i in rng.integers(len(dims), size=rng.integers(low, high + 1)))


def generate(
    rng: np.random.Generator,
    forms: Sequence[Draw],
    shapes: list[Shape],
    count: int,
    draw: Callable[[tuple[int, ...]], Array],
    accepts: Callable[[Array], bool] = lambda x: True,
) -> Program:
    """Return a program that NumPy can compute with either of two sizes."""
    program = Program(shapes, [])
    known = [[draw(sized(shape, sizes)) for shape in shapes] for sizes in SIZES]
    for _ in range(20 * count):
        if len(program.steps) == count:
            break
        last = len(known[0]) - 1
        # Long chains are fused; the newest value is taken more often.
        first = last if rng.random() < 0.4 else int(rng.integers(last + 1))
        try:
            form = Form(*forms[rng.integers(len(forms))](rng, known[0][first].ndim))
            args = (first, *[int(i) for i in rng.integers(last + 1, size=form.arity - 1)])
            with np.errstate(all="ignore"):
                made = [np.asarray(form.call(NUMPY, *[env[i] for i in args])) for env in known]
        except (ValueError, IndexError, TypeError):
            continue
        if all(x.ndim <= 4 and 0 < x.size <= MOST and accepts(x) for x in made):
            program.steps.append(Step(form, args))
            for env, x in zip(known, made, strict=True):
                env.append(x)
    for i in range(len(shapes), len(known[0])):
        if all(env[i].shape == env[0].shape for env in known):
            program.carried = i
    return program


class Way(NamedTuple):
    """How a program is called."""

    shapes: Callable[[list[Shape]], list[Shape]]
    """The shapes of the feeds."""
    graph: Callable[[Program, list[Any]], list[Any]]
    """Called with placeholders."""
    reference: Callable[[Program, Any, list[Any]], list[Any]]
    """Called with the arrays of another library."""


def _stacked(xp: Any, lanes: list[list[Any]]) -> list[Any]:
    return [xp.stack(list(parts)) for parts in zip(*lanes, strict=True)]


def _next(program: Program, xp: Any, carry: Any, others: list[Any]) -> tuple[Any, Any]:
    values = program.values(xp, [carry, *others])
    if program.carried is None:
        return xp.tanh(carry * 0.5 + xp.mean(values[-1])), values[-1]
    return xp.tanh(values[program.carried]), values[-1]


def _scanned(program: Program, feeds: list[Any]) -> list[Any]:
    def step(carry: Any, x: Any) -> tuple[Any, Any]:
        return _next(program, gf, carry, [x, *feeds[2:]])

    last, rows = gf.scan(step, feeds[0], feeds[1])
    return [last, rows]


def _looped(program: Program, xp: Any, inputs: list[Any]) -> list[Any]:
    carry, rows = inputs[0], []
    for i in range(inputs[1].shape[0]):
        carry, y = _next(program, xp, carry, [inputs[1][i], *inputs[2:]])
        rows.append(y)
    return [carry, xp.stack(rows)]


def _by_lanes(program: Program, feeds: list[Any]) -> list[Any]:
    axes = (0, *[None] * (len(feeds) - 1)) if len(feeds) % 2 else (0,) * len(feeds)
    return list(gf.vmap(lambda *xs: tuple(program.results(gf, xs)), axes)(*feeds))


def _lane_by_lane(program: Program, xp: Any, inputs: list[Any]) -> list[Any]:
    shared = len(inputs) % 2
    return _stacked(
        xp,
        [
            program.results(xp, [x if i and shared else x[lane] for i, x in enumerate(inputs)])
            for lane in range(inputs[0].shape[0])
        ],
    )


def _lane_shapes(shapes: list[Shape]) -> list[Shape]:
    shared = len(shapes) % 2
    return [shape if i and shared else ("b", *shape) for i, shape in enumerate(shapes)]


def _picked(program: Program, feeds: list[Any]) -> list[Any]:
    """With the rows of the inputs that the first input's sums pick: how many, a run finds out."""
    rows = gf.nonzero(gf.sum(feeds[0], axis=tuple(range(1, feeds[0].ndim))) > 0)[0]
    short = [
        gf.take(x, rows, axis=0) if shape[:1] == ("n",) else x
        for shape, x in zip(program.shapes, feeds, strict=True)
    ]
    return program.results(gf, short)


def _picked_by_hand(program: Program, xp: Any, inputs: list[Any]) -> list[Any]:
    x = inputs[0]
    chosen = xp.nonzero(xp.sum(x, axis=tuple(range(1, x.ndim))) > 0)[0]
    short = [
        xp.take(x, chosen, axis=0) if shape[:1] == ("n",) else x
        for shape, x in zip(program.shapes, inputs, strict=True)
    ]
    return program.results(xp, short)


WAYS = {
    "plain": Way(
        list,
        lambda program, feeds: program.results(gf, feeds),
        lambda program, xp, inputs: program.results(xp, inputs),
    ),
    "vmap": Way(_lane_shapes, _by_lanes, _lane_by_lane),
    "scan": Way(lambda shapes: [shapes[0], ("t", *shapes[1]), *shapes[2:]], _scanned, _looped),
    "staged": Way(list, _picked, _picked_by_hand),
}
