"""One formula in every library's best reasonable form.

Each maker here turns a `Formula` into a `Case`: inputs are converted once, before the clock runs.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import itertools
import mmap
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from benchmarks import devices
from benchmarks.machine import cores
from benchmarks.workload import Case, Maker, Steps

Array = np.ndarray[Any, Any]
Arrays = list[Any]
Function = Callable[..., Any]

RECYCLED, FRESH = "recycled", "fresh"


@dataclass(frozen=True)
class Formula:
    """A function of arrays as each library would write it; those that have none don't take part.

    Attributes:
        inputs: Makes the arguments as NumPy arrays; with `wrt`, the last one is the cotangent of
            the result, None for a scalar.
        graphfw, torch, jax, pytensor: The function of that library's tensors.
        numpy: The function of arrays; with `wrt`, it takes the cotangent too and returns a list:
            the result and the gradients.
        numexpr: The same, with the keyword `out`: an array or None.
        wrt: The arguments that are differentiated; the cases return [result, *gradients].
        constants: How many arguments, from the last, are the same in all calls: weights.
        outputs: What results are written to. "recycled": the same memory in every call, which the
            library recycles or is given: graphfw and PyTensor recycle by themselves, JAX is
            given it by donation, torch.compile by `out.copy_`, the others as `out`. "fresh": new
            memory in every call. "": as the library does by itself, from an allocator that keeps
            what is freed.
        numpy_into, torch_into: As `numpy` and `torch`, with `out` as the last argument.
        numba: Makes the function that numba compiles.
        options: Of graphfw's session, by name.
        batch: A name for the first dim of the first argument, whose size graphfw is not told.
    """

    inputs: Callable[[], Arrays]
    graphfw: Function
    numpy: Function | None = None
    torch: Function | None = None
    jax: Function | None = None
    numexpr: Function | None = None
    pytensor: Function | None = None
    wrt: tuple[int, ...] = ()
    constants: int = 0
    outputs: str = ""
    numpy_into: Function | None = None
    torch_into: Function | None = None
    numba: Callable[[], Function] | None = None
    options: tuple[tuple[str, Any], ...] = ()
    batch: str = ""

    def makers(self, *, floor: bool = False) -> dict[str, Maker]:
        """Return the makers of all contenders that the formula is written for.

        Args:
            floor: Whether copying the first argument takes part too.
        """
        found: dict[str, Maker] = {"graphfw": functools.partial(graphfw_case, self)}
        if self.numpy:
            found["numpy"] = functools.partial(numpy_case, self)
        if self.torch:
            found["torch"] = functools.partial(torch_case, self)
            found["torch.compile"] = functools.partial(compiled_case, self)
        if self.jax:
            found["jax"] = functools.partial(jax_case, self)
        if self.numexpr:
            found["numexpr"] = functools.partial(numexpr_case, self)
        if self.pytensor:
            found["pytensor"] = functools.partial(pytensor_case, self)
        if self.numba:
            found["numba"] = functools.partial(numba_case, self)
        if floor:
            found["copy"] = functools.partial(copy_case, self)
        if self.outputs == FRESH:
            return {name: functools.partial(_fresh, maker) for name, maker in found.items()}
        return found

    def arguments(self) -> tuple[Arrays, Any]:
        """Return the arguments and the cotangent."""
        arrays = self.inputs()
        return (arrays[:-1], arrays[-1]) if self.wrt else (arrays, None)


class Described(NamedTuple):
    """A program of graphfw before it is compiled.

    Attributes:
        graph: The graph.
        fetches: What a run returns.
        feeds: The placeholders that it is given.
    """

    graph: Any
    fetches: Any
    feeds: list[Any]


def described(formula: Formula, arrays: Arrays, cotangent: Any) -> Described:
    """Describe a formula to graphfw; what is constant is part of the graph."""
    import graphfw as gf

    fed = arrays[: len(arrays) - formula.constants]
    with gf.Graph() as graph:
        shapes: list[tuple[Any, ...]] = [np.shape(a) for a in fed]
        if formula.batch:
            shapes[0] = (formula.batch, *shapes[0][1:])
        kinds = zip(shapes, fed, strict=True)
        feeds = [gf.placeholder(s, a.dtype, name=f"x{i}") for i, (s, a) in enumerate(kinds)]
        xs: list[Any] = [*feeds, *[gf.constant(a) for a in arrays[len(fed) :]]]
        fetches = formula.graphfw(*xs)
        if formula.wrt:
            ct = None
            if cotangent is not None:
                ct = gf.placeholder(cotangent.shape, cotangent.dtype, name="ct")
                feeds = [*feeds, ct]
            fetches = [fetches, *gf.grad(fetches, [xs[i] for i in formula.wrt], ct)]
    return Described(graph, fetches, feeds)


def graphfw_case(formula: Formula) -> Case:
    """Compile a plan."""
    arrays, cotangent = formula.arguments()
    graph, fetches, feeds = described(formula, arrays, cotangent)
    plan = devices.session(graph, **dict(formula.options)).compile(fetches, feeds=feeds)
    fed = devices.given(arrays[: len(arrays) - formula.constants])
    if cotangent is not None:
        fed += devices.given([cotangent])
    return plan_case(plan, fed)


def plan_case(plan: Any, fed: Sequence[Any]) -> Case:
    """Return a call of graphfw's plan, which can tell where its time goes."""
    return Case(lambda: plan(*fed), steps=lambda: steps_of(plan, fed))


def steps_of(plan: Any, fed: Sequence[Any]) -> Steps:
    """Return the steps of a plan's run with their shares of its time."""
    timings = plan.profile(*fed).timings
    total = sum(timing.seconds for timing in timings) or 1.0
    return [(timing.label, timing.seconds / total) for timing in timings]


def _fresh(maker: Maker) -> Case:
    """Keep results during a round, and then give their memory back to the system.

    So each call's results are in memory that is new to the process.
    """
    case = maker()
    kept: list[Any] = []

    def run() -> object:
        kept.append(case.run())
        return kept[-1]

    def settle() -> None:
        for result in kept:
            _give_back(np.asarray(result))
        kept.clear()

    return Case(run, settle=settle)


def _give_back(array: Array) -> None:
    """Give an array's pages back to the system: who writes to them next gets new ones."""
    first = -(-array.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    size = (array.ctypes.data + array.nbytes - first) // mmap.PAGESIZE * mmap.PAGESIZE
    if size > 0:
        libc = ctypes.CDLL(None)
        libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(size), mmap.MADV_DONTNEED)


def numpy_case(formula: Formula) -> Case:
    """Call the function that was written by hand."""
    arrays = formula.inputs()
    function = formula.numpy_into if formula.outputs == RECYCLED else formula.numpy
    assert function is not None
    if formula.outputs == RECYCLED:
        assert formula.numpy is not None
        arrays.append(np.empty_like(formula.numpy(*arrays)))
    return Case(functools.partial(function, *arrays))


def by_path(path: str, *fixed: Any, **options: Any) -> Function:
    """Return what a library has under a path ("numpy:linalg.inv"), imported when it is called.

    Args:
        path: A module, and names in it.
        fixed, options: More arguments, behind those of a call.
    """
    return functools.partial(_called, path, fixed, tuple(options.items()))


def _called(path: str, fixed: tuple[Any, ...], options: tuple[Any, ...], *xs: Any) -> Any:
    module, names = path.split(":")
    found = functools.reduce(getattr, names.split("."), importlib.import_module(module))
    return found(*xs, *fixed, **dict(options))


def numba_case(formula: Formula) -> Case:
    """Call the loops that numba compiles, on as many threads as this process has cores."""
    import numba

    assert formula.numba is not None
    numba.set_num_threads(len(cores()))
    return Case(functools.partial(formula.numba(), *formula.inputs()))


def torch_module() -> Any:
    """Return PyTorch, set to as many threads as this process has cores."""
    import torch

    torch.set_num_threads(len(cores()))
    return torch


def torch_tensors(arrays: Sequence[Any]) -> list[Any]:
    """Return arrays as tensors, on the CPU in the same memory."""
    return [_torch_tensor(a) for a in arrays]


def _torch_tensor(array: Array) -> Any:
    import torch

    name = array.dtype.name
    if name.startswith(("bfloat", "float8")):  # NumPy and PyTorch have types of their own
        bits = torch.from_numpy(array.view(f"i{array.itemsize}"))
        return devices.placed(bits.view(getattr(torch, name)))
    return devices.placed(torch.from_numpy(array))


def torch_case(formula: Formula) -> Case:
    """Run PyTorch eagerly."""
    assert formula.torch is not None
    if formula.outputs == RECYCLED:
        assert formula.torch_into is not None
        torch = torch_module()
        torch.set_grad_enabled(False)
        tensors = torch_tensors(formula.inputs())
        out = torch.empty_like(formula.torch(*tensors))
        return Case(functools.partial(formula.torch_into, *tensors, out))
    return _torch_case(formula, formula.torch)


def compiled_case(formula: Formula) -> Case:
    """Run what torch.compile makes; weights that don't change are frozen into it."""
    torch = torch_module()
    torch.compiler.reset()
    function = formula.torch
    assert function is not None
    if formula.outputs == RECYCLED:
        torch.set_grad_enabled(False)
        tensors = torch_tensors(formula.inputs())
        out = torch.empty_like(function(*tensors))
        return Case(functools.partial(torch.compile(_copied_into(function)), *tensors, out))
    if not formula.constants:
        return _torch_case(formula, devices.compiled(function))
    torch.set_grad_enabled(False)
    tensors = torch_tensors(formula.inputs())
    fed = tensors[: -formula.constants]
    held = torch.nn.ParameterList(
        torch.nn.Parameter(t, requires_grad=False) for t in tensors[-formula.constants :]
    )
    model = _holding(torch, function, held)
    with torch._inductor.config.patch(freezing=True):
        compiled = devices.compiled(model)
        compiled(*fed)
    return Case(functools.partial(compiled, *fed))


def _copied_into(function: Function) -> Function:
    def into(*arguments: Any) -> Any:
        return arguments[-1].copy_(function(*arguments[:-1]))

    return into


def _holding(torch: Any, function: Function, held: Any) -> Any:
    class Holding(torch.nn.Module):  # type: ignore[misc]  # PyTorch may have no types
        def __init__(self) -> None:
            super().__init__()
            self.held = held

        def forward(self, *fed: Any) -> Any:
            return function(*fed, *self.held)

    return Holding().eval()


def _torch_case(formula: Formula, function: Function) -> Case:
    import torch

    torch_module()
    arrays, cotangent = formula.arguments()
    tensors = torch_tensors(arrays)
    torch.set_grad_enabled(bool(formula.wrt))
    if not formula.wrt:
        return Case(functools.partial(function, *tensors))
    ct = None if cotangent is None else torch_tensors([cotangent])[0]
    leaves = [tensors[i].requires_grad_() for i in formula.wrt]

    def run() -> object:
        y = function(*tensors)
        return [y.detach(), *torch.autograd.grad(y, leaves, ct)]

    return Case(run)


def jax_case(formula: Formula) -> Case:
    """Run what jax.jit makes, and wait for the results."""
    compiled, placed = jax_function(formula)
    if formula.outputs == RECYCLED:
        return _donated(formula.jax, placed)
    return Case(lambda: devices.waited(compiled(*placed)))


def jax_function(formula: Formula) -> tuple[Any, list[Any]]:
    """Return a function that jax.jit compiles when it is first called, and its arguments."""
    import jax

    assert formula.jax is not None
    arrays, cotangent = formula.arguments()
    placed: list[Any] = [jax.device_put(a) for a in arrays]
    if not formula.wrt:
        return jax.jit(formula.jax), placed
    ct = None if cotangent is None else jax.device_put(cotangent)
    return jax.jit(functools.partial(_pulled_back, formula.jax, formula.wrt)), [ct, *placed]


def _donated(function: Any, placed: list[Any]) -> Case:
    """Give each call the memory of the last result."""
    import jax

    def ignoring(_: Any, *arguments: Any) -> Any:
        return function(*arguments)

    compiled = jax.jit(ignoring, donate_argnums=0, keep_unused=True)
    out = [jax.block_until_ready(jax.jit(function)(*placed))]

    def run() -> object:
        out[0] = jax.block_until_ready(compiled(out[0], *placed))
        return out[0]

    return Case(run)


def _pulled_back(function: Function, wrt: tuple[int, ...], ct: Any, *arguments: Any) -> list[Any]:
    import jax

    def of_leaves(*leaves: Any) -> Any:
        given = dict(zip(wrt, leaves, strict=True))
        return function(*[given.get(i, a) for i, a in enumerate(arguments)])

    y, pull = jax.vjp(of_leaves, *[arguments[i] for i in wrt])
    return [y, *pull(jax.numpy.ones_like(y) if ct is None else ct)]


def numexpr_case(formula: Formula) -> Case:
    """Evaluate the formula's text by numexpr."""
    import numexpr

    numexpr.set_num_threads(len(cores()))
    assert formula.numexpr is not None
    arrays = formula.inputs()
    out = np.empty_like(formula.numexpr(*arrays, out=None))
    if formula.outputs == RECYCLED:
        return Case(functools.partial(formula.numexpr, *arrays, out=out))
    return Case(functools.partial(formula.numexpr, *arrays, out=None))


def pytensor_case(formula: Formula) -> Case:
    """Compile a PyTensor function; it may keep the memory of its results unless they are fresh."""
    import pytensor
    from pytensor import tensor as pt

    assert formula.pytensor is not None
    arrays, cotangent = formula.arguments()
    variables = [pt.tensor(dtype=a.dtype.name, shape=np.shape(a)) for a in arrays]
    y = formula.pytensor(*variables)
    fetches, given, fed = y, variables, arrays
    if formula.wrt:
        leaves = [variables[i] for i in formula.wrt]
        if cotangent is None:
            fetches = [y, *pytensor.grad(y, leaves)]
        else:
            ct = pt.tensor(dtype=cotangent.dtype.name, shape=cotangent.shape)
            fetches = [y, *pytensor.grad(None, leaves, known_grads={y: ct})]
            given, fed = [*variables, ct], [*arrays, cotangent]
    if formula.outputs == RECYCLED:
        fetches = pytensor.Out(y, borrow=True)
    compiled = pytensor.function(given, fetches)
    return Case(lambda: compiled(*fed))


def copy_case(formula: Formula) -> Case:
    """Copy the first argument, on a CPU a part on each core: the floor of reading and writing it.

    It writes to the same memory each time, or to new memory where the formula's outputs are fresh.
    """
    source = formula.inputs()[0].reshape(-1)
    if devices.on_gpu():
        (there,) = devices.given([source])
        written = there.copy()
        return Case(lambda: written.__setitem__(slice(None), there))
    count = len(cores())
    bounds = [source.size * i // count for i in range(count + 1)]
    pool = ThreadPoolExecutor(count)
    kept = np.empty_like(source)

    def run() -> object:
        out = np.empty_like(source) if formula.outputs == FRESH else kept
        copies = [
            pool.submit(np.copyto, out[a:b], source[a:b]) for a, b in itertools.pairwise(bounds[1:])
        ]
        np.copyto(out[: bounds[1]], source[: bounds[1]])
        for copied in copies:
            copied.result()
        return out

    return Case(run)
