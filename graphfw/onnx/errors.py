"""Errors of models in ONNX's format."""

from __future__ import annotations

from typing import Any

from graphfw.errors import GraphfwError

__all__ = ["OnnxError", "Unsupported", "ValueNeeded", "needs_opset"]


class OnnxError(GraphfwError, ValueError):
    """A model in ONNX's format can't be read, or means what no graph can say."""


class ValueNeeded(OnnxError):
    """A value decides about a shape, and is not known when the model is loaded.

    Attributes:
        inputs: The model's inputs that it depends on.
    """

    def __init__(self, summary: str, inputs: tuple[str, ...], **fields: Any) -> None:
        names = ", ".join(inputs)
        example = ", ".join(f"{name!r}: array" for name in inputs)
        super().__init__(
            summary,
            why=f"it depends on the input{'s' if len(inputs) > 1 else ''} {names}"
            if inputs
            else "",
            fix=f"give what is fed there when you load: values={{{example}}}"
            if inputs
            else "if it depends on sizes, give them when you load: shapes={name: (…)}",
            **fields,
        )
        self.inputs = inputs


class Unsupported(Exception):
    """A node can't be said in ONNX, and why.

    Attributes:
        fix: What to do, where there is more to say than for all such nodes.
    """

    def __init__(self, reason: str, fix: str = "") -> None:
        super().__init__(reason)
        self.fix = fix


def needs_opset(what: str, opset: int) -> Unsupported:
    """Return the error of what a newer opset has."""
    return Unsupported(f"{what} needs opset {opset}", "pass that opset: save(…, opset=…)")
