"""`TypedFunction`: what type checkers know of a function of `gf.function`, and of its methods."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Self, overload

from graphfw.ir.literal import Array
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Update
from graphfw.runtime.fetch_types import KeyT, ResultT_co

if TYPE_CHECKING:  # defaults are in `typing` from Python 3.13 on
    from typing_extensions import ParamSpec

    from graphfw.runtime.plan import Plan

    P = ParamSpec("P", default=...)
else:
    from typing import ParamSpec

    P = ParamSpec("P")

Q = ParamSpec("Q")


class TypedFunction(Generic[P, ResultT_co]):
    """The base of `Function`: a Python function of tensors, which is called with arrays.

    No type can say that parameters for tensors take arrays. So all calls may have any arguments; a
    call whose first argument is a tensor has those of the Python function, and its result. For
    arrays, tensors in the result are arrays.

    Attributes:
        fn: The Python function.
    """

    fn: Callable[P, ResultT_co]

    if TYPE_CHECKING:

        @overload
        def __call__(
            self: TypedFunction[Concatenate[Tensor, Q], ResultT_co],
            x: Tensor,
            /,
            *args: Q.args,
            **kwargs: Q.kwargs,
        ) -> ResultT_co: ...
        @overload
        def __call__(self: TypedFunction[..., Tensor], *args: Any, **kwargs: Any) -> Array: ...
        @overload
        def __call__(
            self: TypedFunction[..., tuple[Tensor, ...]], *args: Any, **kwargs: Any
        ) -> tuple[Array, ...]: ...
        @overload
        def __call__(
            self: TypedFunction[..., list[Tensor]], *args: Any, **kwargs: Any
        ) -> list[Array]: ...
        @overload
        def __call__(
            self: TypedFunction[..., dict[KeyT, Tensor]], *args: Any, **kwargs: Any
        ) -> dict[KeyT, Array]: ...
        @overload
        def __call__(
            self: TypedFunction[..., Update | None], *args: Any, **kwargs: Any
        ) -> None: ...
        @overload
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...  # type: ignore[misc]  # they fit

        @overload
        def plan(self: TypedFunction[..., Tensor], *args: Any, **kwargs: Any) -> Plan[Array]: ...
        @overload
        def plan(
            self: TypedFunction[..., tuple[Tensor, ...]], *args: Any, **kwargs: Any
        ) -> Plan[tuple[Array, ...]]: ...
        @overload
        def plan(
            self: TypedFunction[..., list[Tensor]], *args: Any, **kwargs: Any
        ) -> Plan[list[Array]]: ...
        @overload
        def plan(
            self: TypedFunction[..., dict[KeyT, Tensor]], *args: Any, **kwargs: Any
        ) -> Plan[dict[KeyT, Array]]: ...
        @overload
        def plan(
            self: TypedFunction[..., Update | None], *args: Any, **kwargs: Any
        ) -> Plan[None]: ...
        @overload
        def plan(self, *args: Any, **kwargs: Any) -> Plan[Any]: ...
        def plan(self, *args: Any, **kwargs: Any) -> Plan[Any]: ...

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(
        self: TypedFunction[Concatenate[Any, Q], ResultT_co],
        instance: object,
        owner: type | None = None,
    ) -> TypedFunction[Q, ResultT_co]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Return the method of an instance, where the function stands in a class."""
        return self if instance is None else MethodType(self, instance)
