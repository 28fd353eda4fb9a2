"""Checks for tests of your own code: gradients against differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from graphfw.errors import GradientError, GraphError, a_type
from graphfw.hints.calls import explained
from graphfw.hints.names import hints_for_module
from graphfw.ir.graph import current_graph
from graphfw.ir.modes import unintercepted
from graphfw.ops.args import is_whole
from graphfw.ops.composed import callback, demand
from graphfw.runtime.functions import function
from graphfw.transforms.functional import vjp
from graphfw.utils import nest

__all__ = ["check_gradients"]

Array: TypeAlias = np.ndarray[Any, Any]

Run: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]
"""A function that makes one of arrays from one of tensors."""

_DTYPES = ("float64", "complex128")


@explained
@unintercepted
def check_gradients(
    fn: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    order: int = 1,
    eps: float = 1e-5,
    rtol: float = 1e-6,
    atol: float = 1e-6,
    seed: int = 0,
) -> None:
    """Check the gradients of a function against central differences, in float64.

    With y = fn(x), a random cotangent c and a random direction v, c · (fn(x + eps v) -
    fn(x - eps v)) / (2 eps) is compared with g · v, where g is the gradient of c · y. That takes
    two evaluations for any number of elements. If the numbers differ, more evaluations find
    an element of the result and one of the inputs whose derivative is wrong.

    `fn` is compiled as a `gf.function`, so it may call layers. Random draws are seen as an error:
    call layers with `training=False`. Derivatives of complex inputs are those by their real and
    imaginary components.

    Args:
        fn: Takes the inputs; returns float64 or complex128 tensors, or nested structures of them.
        inputs: The arguments, in a tuple: float64 or complex128 arrays, numbers, or nested
            structures of them.
        order: The highest order of derivatives to check: 2 for the gradient of the gradient, too.
        eps: The length of the steps.
        rtol: The relative error that is accepted, of the norm of all terms of g · v.
        atol: The absolute error that is accepted.
        seed: The seed of cotangents and directions.

    Raises:
        GradientError: A gradient is wrong; an input or a result is neither float64 nor complex128;
            equal inputs have different results.
        ArgumentError: `inputs` is no tuple or list, or an option is out of range.
        GraphError: It is called while a graph is described.

    >>> import numpy as np, graphfw as gf
    >>> @gf.custom_gradient
    ... def square(x):
    ...     return x * x, lambda ct: ct * x
    >>> try:
    ...     gf.testing.check_gradients(square, (np.array([0.0, 3.0]),))
    ... except gf.GradientError as error:
    ...     print(error.summary)
    check_gradients: the derivative of result[1] by inputs[0][1] is 3 by the gradient and 6 by \
differences
    """
    fn = callback("check_gradients", "fn", fn, "fn(*inputs)")
    demand(
        isinstance(inputs, (tuple, list)),
        f"check_gradients: inputs is {a_type(inputs)}, not a tuple with an entry for each argument",
        fix="of one argument the tuple is (x,)",
    )
    message = f"check_gradients: order={order!r} must be an int of at least 1"
    demand(is_whole(order) and order >= 1, message, fix="use order=1")
    message = f"check_gradients: eps={eps!r} must be above 0"
    demand(eps > 0, message, fix="use eps=1e-5")
    if not current_graph().is_ambient:
        raise GraphError(
            "check_gradients: it computes values, and a graph is being described",
            fix="call it outside of with gf.Graph()",
        )
    message = f"check_gradients: seed={seed!r} must be an int from 0 up"
    demand(is_whole(seed) and seed >= 0, message, fix="use seed=0")
    inputs = tuple(inputs)
    structure = nest.TreeStructure(inputs)
    compare(
        lambda *leaves: fn(*structure.pack(leaves)),
        RealVector(nest.paths(inputs, "inputs")),
        Limits(order, eps, rtol, atol),
        np.random.default_rng(seed),
        function,
    )


class Limits(NamedTuple):
    """Options of a comparison: see `check_gradients`."""

    order: int = 1
    eps: float = 1e-5
    rtol: float = 1e-6
    atol: float = 1e-6


class RealVector:
    """Arrays as one vector of real numbers, of which a complex one is two.

    Args:
        named: The arrays with their names; None stands for none.

    Raises:
        GradientError: An array has no gradient, or too few digits for differences.
    """

    def __init__(self, named: Iterable[tuple[str, Any]]) -> None:
        self.named = [
            (name, _checked(name, np.asarray(value))) for name, value in named if value is not None
        ]
        self.arrays = [array for _, array in self.named]
        self.numbers = self.of(self.arrays)

    def of(self, arrays: Iterable[Any]) -> Array:
        """Return the vector of arrays of the same types."""
        flat = [np.zeros(0)]
        present = [np.asarray(array) for array in arrays if array is not None]
        for own, array in zip(self.arrays, present, strict=True):
            assert (array.shape, array.dtype) == (own.shape, own.dtype)
            flat.append(np.ravel(array).view(np.float64))
        return np.concatenate(flat)

    def apart(self, numbers: Array) -> list[Array]:
        """Return the arrays of a vector."""
        made, start = [], 0
        for array in self.arrays:
            end = start + array.size * array.itemsize // 8
            made.append(np.array(numbers[start:end]).view(array.dtype).reshape(array.shape))
            start = end
        return made

    def element(self, number: int) -> str:
        """Return the expression of a number: `inputs[0][2, 1]`."""
        for name, array in self.named:
            width = array.itemsize // 8
            if number < array.size * width:
                index = np.unravel_index(number // width, array.shape)
                at = f"[{', '.join([str(int(i)) for i in index])}]" if index else ""
                return name + at + (("", ".real", ".imag")[width - 1 + number % width])
            number -= array.size * width
        raise AssertionError("no such number")


def _checked(name: str, value: Array) -> Array:
    """Return an array that has a gradient, and digits enough for differences.

    Raises:
        GradientError: It has not.
    """
    kind = value.dtype.name
    if kind in ("float64", "complex128"):
        return value
    is_input = name.startswith("inputs")
    if not kind.startswith(("float", "bfloat", "complex")):
        fix = "leave it out: fn may take it from around it" if is_input else "return floats only"
    elif is_input:
        wide = "complex128" if kind.startswith("complex") else "float64"
        fix = f"convert it: x.astype(np.{wide})"
    else:
        fix = 'make its layers in with gf.default_dtype("float64"), and cast to no other dtype'
    raise GradientError(
        f"check_gradients: {name} is {kind}, and differences need float64 or complex128",
        fix=fix,
    )


class _Derivative(NamedTuple):
    """The derivative of a function at a point, by its gradient and by differences.

    Attributes:
        xs: The inputs.
        ys: The results.
        value: Returns the results at inputs: from vector to vector.
        gradient: Returns the gradient for a cotangent: from vector to vector.
        eps: The length of the steps.
    """

    xs: RealVector
    ys: RealVector
    value: Callable[[Array], Array]
    gradient: Callable[[Array], Array]
    eps: float

    def differences(self, direction: Array) -> Array:
        """Return the derivative of the results along a direction, by central differences."""
        x, step = self.xs.numbers, self.eps * direction
        return (self.value(x + step) - self.value(x - step)) / (2 * self.eps)

    def error(self, cotangent: Array, direction: Array) -> float:
        """Return the error of the gradient for a cotangent along a direction."""
        found = self.gradient(cotangent) @ direction - cotangent @ self.differences(direction)
        return abs(found) if math.isfinite(found) else math.inf

    def wrong(self, cotangent: Array, direction: Array) -> GradientError:
        """Return the error that names an element of the results and one of the inputs."""
        y = _worst(cotangent, lambda some: self.error(some, direction))
        unit = np.where(np.arange(len(cotangent)) == y, 1.0, 0.0)
        x = _worst(direction, lambda some: self.error(unit, some))
        along = np.where(np.arange(len(direction)) == x, 1.0, 0.0)
        by_gradient, by_differences = self.gradient(unit)[x], self.differences(along)[y]
        return GradientError(
            f"check_gradients: the derivative of {self.ys.element(y)} by {self.xs.element(x)} is "
            f"{by_gradient:.9g} by the gradient and {by_differences:.9g} by differences",
            fix="correct the gradient; or choose other inputs, if fn has a kink or a jump there",
        )


def _worst(numbers: Array, error: Callable[[Array], float]) -> int:
    """Return the index of a number that makes an error, by halves of the vector."""
    start, end = 0, len(numbers)
    where = np.arange(end)
    while end - start > 1:
        middle = (start + end) // 2
        first, second = [
            error(np.where((where >= low) & (where < high), numbers, 0.0))
            for low, high in ((start, middle), (middle, end))
        ]
        start, end = (start, middle) if first >= second else (middle, end)
    return start


def compare(
    fn: Callable[..., Any],
    xs: RealVector,
    limits: Limits,
    rng: np.random.Generator,
    run: Run,
    label: str = "result",
) -> None:
    """Compare the gradients of a function with differences: see `check_gradients`.

    Args:
        fn: Takes tensors.
        xs: The inputs.
        limits: The order of derivatives, the length of steps, and the errors that are accepted.
        rng: The generator of cotangents and directions.
        run: Makes a function of arrays from one of tensors.
        label: What the result is called.
    """
    called = run(fn)
    points = xs.arrays
    result = called(*points)
    ys, structure = RealVector(nest.paths(result, label)), nest.TreeStructure(result)

    def pulled(*args: Any) -> list[Any]:
        primals, cts = args[: len(points)], args[len(points) :]
        return [*vjp(fn, *primals)[1](structure.pack(cts))]

    gradient = run(pulled)
    found = _Derivative(
        xs,
        ys,
        lambda numbers: ys.of(nest.leaves(called(*xs.apart(numbers)))),
        lambda numbers: xs.of(gradient(*points, *ys.apart(numbers))),
        limits.eps,
    )
    if not np.array_equal(found.value(xs.numbers), ys.numbers, equal_nan=True):
        raise GradientError(
            "check_gradients: fn has different results for equal inputs",
            fix="draw no random numbers in it: call layers with training=False",
        )
    ct, v = rng.normal(size=len(ys.numbers)), rng.normal(size=len(xs.numbers))
    size = float(np.linalg.norm(found.gradient(ct) * v))
    if not found.error(ct, v) <= limits.atol + limits.rtol * size:
        raise found.wrong(ct, v)
    if limits.order > 1:
        names = [f"the cotangent of {name}" for name, _ in ys.named]
        both = RealVector([*xs.named, *zip(names, ys.apart(ct), strict=True)])
        compare(pulled, both, limits._replace(order=limits.order - 1), rng, run, "gradient")


if not TYPE_CHECKING:  # which would take a module with `__getattr__` to have every name
    __getattr__, __dir__ = hints_for_module("gf.testing", __name__, __all__)
