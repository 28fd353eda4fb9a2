"""`Augment`: an augmentation as a layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphfw.errors import a_type
from graphfw.ir.tensor import Tensor
from graphfw.nn.module import Module
from graphfw.ops.composed import demand


class Augment(Module):
    """A function of `gf.nn.augment` with its options, as a layer: for `Sequential`.

    It acts in training only, as `gf.nn.Dropout` does.

    Args:
        function: The function, such as `gf.nn.augment.random_flip`.
        *args: Its arguments after the images, such as the size of `random_crop`.
        name: See `Module`.
        **options: Its options.

    Raises:
        ArgumentError: function is none.

    >>> import graphfw as gf
    >>> from graphfw.nn import augment
    >>> with gf.Graph():
    ...     crop = augment.Augment(augment.random_crop, 28, padding=4)
    ...     layers = gf.nn.Sequential(crop, gf.nn.Conv2d(1, 8, 3))
    ...     x = gf.placeholder(("batch", 1, 28, 28), name="x")
    ...     layers(x).shape
    (batch, 8, 26, 26)
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *args: Any,
        name: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name=name)
        message = f"Augment: function is {a_type(function)}, not a function"
        fix = "pass it without a call: Augment(gf.nn.augment.random_flip, p=0.5)"
        demand(callable(function), message, fix=fix)
        self.function = function
        self.args = args
        self.options = options

    def forward(self, x: Any, *others: Any) -> Tensor | Any:
        """Call the function.  x: [*B, C, H, W] -> see the function

        Args:
            x: The images.
            *others: The targets, for `mixup` and `cutmix`.
        """
        return self.function(x, *others, *self.args, **self.options)

    def extra_repr(self) -> str:
        """Return the text of the function and its arguments."""
        given = [repr(value) for value in self.args]
        given += [f"{option}={value!r}" for option, value in self.options.items()]
        return ", ".join([self.function.__name__, *given])
