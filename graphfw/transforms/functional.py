"""`vjp`, `jvp`, `linearize`: functions of tensors, differentiated at a point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphfw.errors import a_type
from graphfw.hints.calls import explained
from graphfw.ir.modes import unintercepted
from graphfw.ir.tensor import Tensor
from graphfw.ops.composed import demand
from graphfw.transforms.calls import DifferentiatedCall


@explained
@unintercepted
def vjp(fn: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Call a function, and return its result and what pulls cotangents back through it.

    `fn` is called once. Its arguments, as far as they are floats, are what is differentiated with
    respect to; what it uses besides is constant, even if it is one of the primals.

    Args:
        fn: Takes the primals; returns tensors, or a nested structure of them.
        primals: Tensors, or nested structures of them. Integers are passed on.
        has_aux: `fn` returns a pair: the result, and something that is handed on as it is.

    Returns:
        The result and the pullback, and with `has_aux` what was handed on. The pullback takes the
        cotangents, nested like the result; it returns the cotangents of the primals, a tuple.
        None takes the place of the cotangent of an integer; given, it also stands for zeros.

    Raises:
        ArgumentError: `fn` returns something other than tensors; cotangents are nested differently.
        GradientError: No primal is a float; a cotangent is given for an integer.
        ShapeError, DTypeError: A cotangent is of another type than the result.

    >>> import graphfw as gf
    >>> y, pullback = gf.vjp(lambda a, b: a * b, gf.asarray([1.0, 2.0]), 3.0)
    >>> pullback(gf.asarray([1.0, 1.0]))
    (Tensor([3., 3.], dtype=float32), Tensor(3., dtype=float32))
    """
    call = DifferentiatedCall.of("vjp", fn, primals, has_aux)

    @unintercepted
    def pullback(cts: Any) -> Any:
        return call.arguments.pack(call.pull(call.cotangents(cts)))

    return (call.result, pullback, *call.aux)


@explained
@unintercepted
def jvp(
    fn: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    has_aux: bool = False,
) -> Any:
    """Call a function, and return its result and how that moves as the arguments move.

    The tangents are computed along with the result, in one pass forward.

    Args:
        fn: Takes the primals; returns tensors, or a nested structure of them.
        primals: The arguments, in a tuple: tensors, or nested structures of them.
        tangents: The direction in which they move, nested like them. None stands for zeros, and
            takes the place of the tangent of an integer.
        has_aux: `fn` returns a pair: the result, and something that is handed on.

    Returns:
        The result and its tangents, nested like it, and with `has_aux` what was handed on. An
        integer in the result has None as its tangent.

    Raises:
        ArgumentError: `primals` is no tuple; tangents are nested differently; `fn` returns
            something other than tensors.
        GradientError: No primal is a float; a tangent is given for an integer; a rule of
            `gf.custom_gradient` is not linear in the cotangent.
        ShapeError, DTypeError: A tangent is of another type than its primal.

    >>> import graphfw as gf
    >>> gf.jvp(gf.sin, (0.0,), (2.0,))
    (Tensor(0., dtype=float32), Tensor(2., dtype=float32))
    """
    call, ys, found = pushed("jvp", fn, primals, tangents, has_aux)
    return (call.ys.pack(ys), call.ys.pack(found), *call.aux)


def pushed(
    what: str, fn: Callable[..., Any], primals: Any, tangents: Any, has_aux: bool = False
) -> tuple[DifferentiatedCall, Sequence[Tensor], Sequence[Tensor | None]]:
    """Call a function, and return the call, its results and their tangents: see `jvp`."""
    for label, value in (("primals", primals), ("tangents", tangents)):
        demand(
            isinstance(value, (tuple, list)),
            f"{what}: {label} is {a_type(value)}, not a tuple with an entry for each argument",
            fix="of one argument the tuple is (x,)",
        )
    call = DifferentiatedCall.of(what, fn, tuple(primals), has_aux)
    return call, *call.push(call.tangents(tuple(tangents)))


@explained
@unintercepted
def linearize(fn: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Call a function, and return its result and the linear function that is its derivative there.

    `fn` is called once, however often the linear function is, and runs compute it once: a `scan`
    inside stacks what the linear function reads. Only loops whose trip count is not known,
    branches and checkpoints (and scans with these inside) run again with each call.

    Args:
        fn: Takes the primals; returns tensors, or a nested structure of them.
        primals: Tensors, or nested structures of them.
        has_aux: `fn` returns a pair: the result, and something that is handed on as it is.

    Returns:
        The result and the linear function, and with `has_aux` what was handed on. It takes a
        tangent for each primal, and returns those of the result, as `jvp` does.

    Raises:
        ArgumentError, GradientError, ShapeError, DTypeError: As `jvp`.

    >>> import graphfw as gf
    >>> y, slope = gf.linearize(lambda x: x * x, 3.0)
    >>> float(y), float(slope(1.0)), float(slope(10.0))
    (9.0, 6.0, 60.0)
    """
    call = DifferentiatedCall.of("linearize", fn, primals, has_aux)

    @unintercepted
    def fn_jvp(*tangents: Any) -> Any:
        return call.ys.pack(call.push(call.tangents(tangents), keeps=True)[1])

    return (call.result, fn_jvp, *call.aux)
