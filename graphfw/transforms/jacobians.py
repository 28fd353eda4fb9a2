"""`jacobian`, `hessian`, `hvp`: whole derivatives of functions, and the second times a vector."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from graphfw.errors import GradientError
from graphfw.hints.calls import explained
from graphfw.ir.concrete import describe
from graphfw.ir.dim import always_le
from graphfw.ir.functions import F
from graphfw.ir.modes import unintercepted
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import is_whole
from graphfw.ops.composed import callback, demand, demand_one_of
from graphfw.transforms.calls import DifferentiatedCall
from graphfw.transforms.functional import pushed
from graphfw.transforms.vmap import vmap

MODES = ("auto", "forward", "reverse")

Argnums: TypeAlias = int | Sequence[int]


@explained
def jacobian(
    fn: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    mode: str = "auto",
    holomorphic: bool = False,
) -> Callable[..., Any]:
    """Return the function that gives the Jacobian of `fn`: each result by each element of an x.

    `fn` is called once, and its derivative is applied to all unit vectors at once.

    Args:
        fn: Takes and returns tensors, or nested structures of them. Those that it is differentiated
            by are real; then a complex result has a complex derivative.
        argnums: By which arguments: a number, or several.
        mode: "forward" goes through it once for each element of the arguments, "reverse" once for
            each of the results; "auto" takes the one that is known to be fewer, else "reverse".
        holomorphic: The arguments and the results are complex, and `fn` has a complex derivative
            dy/dx, which is what is returned (not its conjugate, which `gf.grad` gives). That it has
            one is not checked.

    Returns:
        A function of the same arguments. Its result is nested like the result of `fn`; in place of
        each tensor [*Y] it has the arguments' structure, with [*Y, *X] in place of each [*X]. Of
        several `argnums` it has a tuple there.

    Raises:
        ArgumentError: `mode` is another word. When called: there is no such argument.
        GradientError: When called: an argument is complex, or with `holomorphic` an argument or a
            result is not; one is neither complex nor a float.

    >>> import graphfw as gf
    >>> gf.jacobian(lambda x: x[:2] * x[2])(gf.asarray([1.0, 2.0, 3.0]))
    Tensor([[3., 0., 1.],
            [0., 3., 2.]], dtype=float32)
    """
    called = callback("jacobian", "fn", fn, "fn(*args)")
    demand_one_of("jacobian", "mode", mode, MODES)
    is_one = is_whole(argnums)
    several: Any = [argnums] if is_one else argnums
    demand(
        isinstance(several, Sequence) and all(map(is_whole, several)),
        f"jacobian: argnums={argnums!r} is neither a number nor several",
        fix="count the positional arguments from 0",
    )

    @unintercepted
    def differentiated(*args: Any) -> Any:
        numbers = _numbers(several, len(args))
        chosen = tuple([args[i] for i in numbers])

        def partial(*some: Any) -> Any:
            full = list(args)
            for i, value in zip(numbers, some, strict=True):
                full[i] = value
            return called(*full)

        call = DifferentiatedCall.of("jacobian", partial, chosen)
        _check(call, holomorphic)
        if mode == "forward" or (mode == "auto" and _is_forward_less(call)):
            columns = [_columns(call, index) for index in range(len(call.xs))]
            rows = [[column[i] for column in columns] for i in range(len(call.ys.tensors))]
        else:
            rows = [_rows(call, index, holomorphic) for index in range(len(call.ys.tensors))]
        blocks = [call.arguments.pack(row) for row in rows]
        return call.ys.pack([b[0] if is_one else b for b in blocks])

    return differentiated


@explained
def jacfwd(
    fn: Callable[..., Any], argnums: Argnums = 0, *, holomorphic: bool = False
) -> Callable[..., Any]:
    """Return the function that gives the Jacobian of `fn` in forward mode: see `jacobian`.

    >>> import graphfw as gf
    >>> gf.jacfwd(gf.exp)(gf.asarray(0.0))
    Tensor(1., dtype=float32)
    """
    called = callback("jacfwd", "fn", fn, "fn(*args)")
    return jacobian(called, argnums, mode="forward", holomorphic=holomorphic)


@explained
def jacrev(
    fn: Callable[..., Any], argnums: Argnums = 0, *, holomorphic: bool = False
) -> Callable[..., Any]:
    """Return the function that gives the Jacobian of `fn` in reverse mode: see `jacobian`.

    >>> import graphfw as gf
    >>> gf.jacrev(gf.exp)(gf.asarray(0.0))
    Tensor(1., dtype=float32)
    """
    called = callback("jacrev", "fn", fn, "fn(*args)")
    return jacobian(called, argnums, mode="reverse", holomorphic=holomorphic)


@explained
def hessian(
    fn: Callable[..., Any], argnums: Argnums = 0, *, holomorphic: bool = False
) -> Callable[..., Any]:
    """Return the function that gives the second derivatives of `fn`: forward over reverse mode.

    Args:
        fn: Takes and returns tensors, or nested structures of them; mostly one scalar.
        argnums: By which arguments: a number, or several.
        holomorphic: They are complex, and so is the derivative: as for `jacobian`.

    Returns:
        A function of the same arguments: the Jacobian of the Jacobian, [*Y, *X, *X]; for nested or
        several arguments, nested twice.

    Raises:
        ArgumentError, GradientError: As `jacobian`.

    >>> import graphfw as gf
    >>> gf.hessian(lambda x: x[0] ** 2 * x[1])(gf.asarray([1.0, 2.0]))
    Tensor([[4., 2.],
            [2., 0.]], dtype=float32)
    """
    called = callback("hessian", "fn", fn, "fn(*args)")
    first = jacobian(called, argnums, mode="reverse", holomorphic=holomorphic)
    return jacobian(first, argnums, mode="forward", holomorphic=holomorphic)


@explained
@unintercepted
def hvp(
    fn: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Tensor, Any]:
    """Return the value of a scalar function, and its Hessian times a vector.

    The Hessian is never made: it is the tangent of the gradient, for about the cost of two
    gradients. As in `torch.autograd.functional.hvp`, the value comes first.

    Args:
        fn: Takes the primals and returns a scalar.
        primals: The arguments, in a tuple: tensors, or nested structures of them.
        tangents: The vector, nested like them; None stands for zeros.

    Returns:
        The value, and the product: a tuple nested like the primals.

    Raises:
        ArgumentError, GradientError, ShapeError, DTypeError: As `jvp`.
        GradientError: `fn` returns no scalar.

    >>> import graphfw as gf
    >>> x = gf.asarray([1.0, 2.0])
    >>> value, (product,) = gf.hvp(lambda x: gf.sum(x**3), (x,), (gf.asarray([1.0, 10.0]),))
    >>> product
    Tensor([  6., 120.], dtype=float32)
    """

    @unintercepted
    def gradient(*args: Any) -> Any:
        call = DifferentiatedCall.of("hvp", fn, args)
        y, *others = call.ys.tensors
        if others or y.shape != () or not y.dtype.is_inexact:
            raise GradientError(
                f"hvp: fn returns {', '.join(str(t.type) for t in call.ys.tensors)}, "
                "and only a scalar has a Hessian",
                operands=[describe("y", y)],
                fix="reduce it, with gf.sum or gf.mean; gf.hessian takes any results",
            )
        return y, call.arguments.pack(call.pull([F.ones((), dtype=y.dtype)]))

    call, ys, found = pushed("hvp", gradient, primals, tangents)
    return ys[0], call.ys.pack(found)[1]


def _numbers(argnums: Sequence[int], count: int) -> list[int]:
    """Return which arguments are meant, counted from the front."""
    numbers = [operator.index(number) for number in argnums]
    for number in numbers:
        demand(
            -count <= number < count,
            f"jacobian: argnums={number}, and the function is called with {count} "
            f"argument{'s' if count != 1 else ''}",
            fix="count the positional arguments from 0",
        )
    return [number % count for number in numbers]


def _check(call: DifferentiatedCall, holomorphic: bool) -> None:
    """See that what is differentiated, and by what, has the dtypes for it."""
    for role, tensors in (("an argument", call.xs), ("a result", call.ys.tensors)):
        for t in tensors:
            if not t.dtype.is_inexact:
                wanted, fix = "floating-point", "use floats"
            elif holomorphic and not t.dtype.is_complex:
                wanted, fix = "complex: holomorphic=True", "leave holomorphic=True out"
            elif t.dtype.is_complex and not holomorphic and role == "an argument":
                wanted = "floating-point"
                fix = (
                    "say holomorphic=True if there is a complex derivative; if not, make gf.real "
                    "and gf.imag of it the arguments"
                )
            else:
                continue
            raise GradientError(
                f"jacobian: {role} is {t.dtype.name}, not {wanted}",
                operands=[describe("x", t)],
                fix=fix,
            )


def _is_forward_less(call: DifferentiatedCall) -> bool:
    """Return whether it is known that there are fewer elements to start from than results."""
    elements, results = [
        sum([t.size for t in tensors], start=0) for tensors in (call.xs, call.ys.tensors)
    ]
    return elements != results and always_le(elements, results)


def _columns(call: DifferentiatedCall, index: int) -> Sequence[Tensor | None]:
    """Return the derivatives of all results by an argument: [*Y, *X] each."""
    x = call.xs[index]

    def column(unit: Tensor) -> list[Tensor | None]:
        return call.push(_only(unit, index, len(call.xs)))[1]

    if x.shape == ():
        return column(F.ones((), dtype=x.dtype))
    found = vmap(column, out_axes=-1, randomness="same")(_units(x))
    return [F.reshape(t, (*y.shape, *x.shape)) for t, y in zip(found, call.ys.tensors, strict=True)]


def _rows(call: DifferentiatedCall, index: int, holomorphic: bool) -> list[Tensor | None]:
    """Return the derivatives of a result by all arguments: [*Y, *X] each."""
    y = call.ys.tensors[index]

    def pulled(unit: Tensor) -> list[Any]:
        return call.pull(_only(unit, index, len(call.ys.tensors)))

    def row(unit: Tensor) -> list[Tensor | None]:
        found = pulled(unit)
        if holomorphic:  # a cotangent meets the conjugate of the derivative
            return [F.conj(t) for t in found]
        if y.dtype.is_complex:  # of a real argument: 1 finds the real part, i the imaginary one
            return [a + 1j * b for a, b in zip(found, pulled(unit * 1j), strict=True)]
        return found

    if y.shape == ():
        return row(F.ones((), dtype=y.dtype))
    found = vmap(row, randomness="same")(_units(y))
    return [F.reshape(t, (*y.shape, *x.shape)) for t, x in zip(found, call.xs, strict=True)]


def _only(value: Tensor, index: int, count: int) -> list[Tensor | None]:
    return [value if i == index else None for i in range(count)]


def _units(x: Tensor) -> Tensor:
    """Return all tensors of a type that have one 1 and else zeros.  [*X] -> [size, *X]"""
    return F.reshape(F.eye(x.size, dtype=x.dtype), (x.size, *x.shape))
