"""Random programs of forms, and the ways in which one is called: at once, by lanes, in a loop."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

import graphfw as gf
from tests.fuzz.forms import Draw, Form
from tests.fuzz.libraries import GRAPHFW, NUMPY, Array
from tests.fuzz.noise import Noise

SIZES = ({"n": 5, "m": 4}, {"n": 7, "m": 6})
"""Sizes with which programs are made: what works with both is taken to work with all."""

MOST = 4096
"""The most elements of a value with these sizes."""

Shape = tuple[int | str, ...]


class Step(NamedTuple):
    form: Form
    args: tuple[int, ...]


@dataclass
class Program:
    """Steps, each of earlier values; the first of these are the inputs."""

    shapes: list[Shape]
    steps: list[Step]
    carried: dict[int, int] = field(default_factory=dict)
    """By input, the last value of the same shape, where there is one."""
    carries: int = 1
    """The number of inputs that a loop carries."""
    options: dict[str, Any] = field(default_factory=dict)
    """The options of the scan."""
    by_rows: tuple[bool, ...] = ()
    """The inputs that have as many rows as the first."""
    noise: Noise | None = None
    """Moves each value, to see how far rounding moves the others."""

    def values(self, xp: Any, inputs: Sequence[Any]) -> list[Any]:
        """Return the inputs and what each step gives."""
        found = [self.noise.moved(x) for x in inputs] if self.noise else list(inputs)
        for step in self.steps:
            operands = [found[i] for i in step.args]
            call = functools.partial(step.form.call, xp)
            found.append(self.noise.called(call, operands) if self.noise else call(*operands))
        return found

    def results(self, xp: Any, inputs: Sequence[Any]) -> list[Any]:
        """Return the values that no step reads."""
        found = self.values(xp, inputs)
        read = {i for step in self.steps for i in step.args}
        return [x for i, x in enumerate(found) if i not in read and i >= len(inputs)]

    def grows_by_rows(self, draw: Callable[[tuple[int, ...]], Array]) -> bool:
        """Whether its memory grows with `n` no faster than `n` does."""
        totals = []
        for n in (50, 100):
            arrays = [draw(sized(shape, {"n": n, "m": 4})) for shape in self.shapes]
            with np.errstate(all="ignore"):
                try:
                    totals.append(sum(x.size for x in self.values(NUMPY, arrays)))
                except (ValueError, IndexError, OverflowError):
                    return False
        return totals[1] <= 2 * totals[0]

    def fixed(self, sizes: Mapping[str, int]) -> Program:
        """Return the program of inputs of known sizes."""
        return replace(self, shapes=[sized(shape, sizes) for shape in self.shapes])

    def __str__(self) -> str:
        lines = [f"x{i}: {shape}" for i, shape in enumerate(self.shapes)]
        lines.append(f"carries {self.carries}, {self.options}")
        for i, step in enumerate(self.steps, len(self.shapes)):
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
    """Return a program that graphfw can build, and NumPy compute with either of two sizes."""
    with gf.Graph():
        return _generated(rng, forms, shapes, count, draw, accepts)


def _generated(
    rng: np.random.Generator,
    forms: Sequence[Draw],
    shapes: list[Shape],
    count: int,
    draw: Callable[[tuple[int, ...]], Array],
    accepts: Callable[[Array], bool],
) -> Program:
    program = Program(shapes, [], by_rows=tuple([shape[:1] == ("n",) for shape in shapes]))
    known = [[draw(sized(shape, sizes)) for shape in shapes] for sizes in SIZES]
    built = [gf.placeholder(shape, known[0][0].dtype) for shape in shapes]
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
            if not all(x.ndim <= 4 and 0 < x.size <= MOST and accepts(x) for x in made):
                continue
            built.append(form.call(GRAPHFW, *[built[i] for i in args]))
        except (ValueError, IndexError, TypeError, OverflowError, gf.GraphfwError):
            continue
        else:
            program.steps.append(Step(form, args))
            for env, x in zip(known, made, strict=True):
                env.append(x)
    for given in range(len(shapes)):
        for i in range(len(shapes), len(known[0])):
            if all(env[i].shape == env[given].shape for env in known):
                program.carried[given] = i
    program.carries = int(rng.integers(1, len(shapes)))
    program.options = {"reverse": True} if rng.random() < 0.3 else {}
    if rng.random() < 0.2:
        program.options["checkpoint_every"] = 3
    return program


class Way(NamedTuple):
    """The ways to call a program."""

    shapes: Callable[[list[Shape]], list[Shape]]
    """The shapes of the feeds."""
    graph: Callable[[Program, list[Any]], list[Any]]
    """Called with placeholders."""
    reference: Callable[[Program, Any, list[Any]], list[Any]]
    """Called with the arrays of another library."""


def _stacked(xp: Any, lanes: list[list[Any]]) -> list[Any]:
    return [xp.stack(list(arrays)) for arrays in zip(*lanes, strict=True)]


def _iteration(
    program: Program, xp: Any, carries: Sequence[Any], row: Any, others: Sequence[Any]
) -> tuple[list[Any], tuple[Any, ...]]:
    """Make a trip: the second input is a row, those around it are carried first."""
    inputs = [carries[0], row, *carries[1:], *others]
    values = program.values(xp, inputs)
    numbers = [0, *range(2, len(carries) + 1)]
    after = [
        xp.tanh(values[program.carried[i]])
        if i in program.carried
        else xp.tanh(inputs[i] * 0.5 + xp.mean(values[-1]))
        for i in numbers
    ]
    return after, tuple(program.results(xp, inputs))


def _loop_inputs(program: Program, inputs: Sequence[Any]) -> tuple[list[Any], Any, list[Any]]:
    end = program.carries + 1
    return [inputs[0], *inputs[2:end]], inputs[1], list(inputs[end:])


def _scanned(program: Program, xp: Any, inputs: Sequence[Any]) -> list[Any]:
    first, rows, others = _loop_inputs(program, inputs)

    def step(carries: Any, row: Any) -> tuple[Any, Any]:
        return _iteration(program, xp, carries, row, others)

    last, stacked = xp.scan(step, first, rows, **program.options)
    return [*last, *stacked]


ITERATIONS = 5


def _counted(program: Program, xp: Any, inputs: Sequence[Any]) -> list[Any]:
    """Make some trips whose number is known only when it runs."""
    first, row, others = _loop_inputs(program, inputs)

    def step(value: Any) -> Any:
        carries, total, number = value
        after, found = _iteration(program, xp, carries, row, others)
        return after, total + sum([xp.sum(xp.sin(x)) for x in found]), number + 1

    zero = xp.sum(xp.sin(row)) * 0
    last, total, _ = xp.while_loop(lambda value: value[2] < ITERATIONS, step, (first, zero, zero))
    return [*last, total]


def _decided(program: Program, xp: Any, inputs: Sequence[Any]) -> list[Any]:
    """Compute all that the program does in one of two branches, and again for the gradient."""

    def some(*given: Any) -> Any:
        return sum([xp.sum(xp.sin(x)) for x in program.results(xp, given)])

    again = xp.checkpoint(some)
    first = xp.sum(xp.sin(inputs[0]))
    return [xp.cond(first > 0.01, again, lambda *given: some(*given) * first, *inputs)]


def _by_lanes(program: Program, feeds: list[Any]) -> list[Any]:
    axes = (0, *[None] * (len(feeds) - 1)) if len(feeds) % 2 else (0,) * len(feeds)
    return list(GRAPHFW.vmap(lambda *xs: tuple(program.results(GRAPHFW, xs)), axes)(*feeds))


def _stacked(xp: Any, lanes: list[list[Any]]) -> list[Any]:
    return [xp.stack(list(arrays)) for arrays in zip(*lanes, strict=True)]


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


def _sequences(shapes: list[Shape]) -> list[Shape]:
    return [shapes[0], ("t", *shapes[1]), *shapes[2:]]


def _picked(program: Program, xp: Any, inputs: Sequence[Any]) -> list[Any]:
    """With the rows of the inputs that the first input's sums pick: how many, a run finds out."""
    x = inputs[0]
    chosen = xp.nonzero(xp.sum(x, axis=tuple(range(1, x.ndim))) > 0)[0]
    short = [
        xp.take(x, chosen, axis=0) if leads else x
        for leads, x in zip(program.by_rows, inputs, strict=True)
    ]
    return program.results(xp, short)


def _alike(function: Callable[[Program, Any, Sequence[Any]], list[Any]]) -> tuple[Any, Any]:
    """Return how graphfw and another library compute what is written for both."""
    return lambda program, feeds: function(program, GRAPHFW, feeds), function


WAYS = {
    "plain": Way(list, *_alike(lambda program, xp, inputs: program.results(xp, inputs))),
    "vmap": Way(_lane_shapes, _by_lanes, _lane_by_lane),
    "scan": Way(_sequences, *_alike(_scanned)),
    "while": Way(list, *_alike(_counted)),
    "cond": Way(list, *_alike(_decided)),
    "staged": Way(list, *_alike(_picked)),
}
