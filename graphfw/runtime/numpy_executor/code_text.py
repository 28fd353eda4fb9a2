"""The code of a step, in a form for people: a loop nest, or the facts that it is made from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from graphfw.ir.dtype import DType
from graphfw.ir.op import Op
from graphfw.runtime.kernels.ir import Kernel
from graphfw.runtime.kernels.printer import show
from graphfw.runtime.kernels.steps import Code, LlvmCode
from graphfw.runtime.numpy_executor.codegen import Processor
from graphfw.runtime.pipeline_text import about


def text_of(code: Code) -> str:
    """Return the text: of a loop nest its lines, of other code its fields, by their names."""
    kernel = getattr(code, "kernel", None)
    if isinstance(kernel, Kernel):
        return show(kernel).rstrip()
    facts = [*_lines(code, "  ")] or [f"  {code.key}"]
    return "\n".join([about(code), *facts])


def _lines(value: Any, indent: str) -> Iterator[str]:
    for name, entry in _fields(value):
        kernel = getattr(entry, "kernel", None)
        if isinstance(kernel, Kernel):
            yield f"{indent}{name}:"
            yield from [f"{indent}  {line}" for line in show(kernel).splitlines() if line]
            rest = [(one, own) for one, own in _fields(entry) if one != "kernel"]
            yield from [f"{indent}  {one}: {_short(own)}" for one, own in rest]
        elif isinstance(entry, LlvmCode):  # which this one calls
            yield f"{indent}{name}: {about(entry)}"
            yield from _lines(entry, indent + "  ")
        else:
            yield f"{indent}{name}: {_short(entry)}"


def _fields(value: Any) -> list[tuple[str, Any]]:
    known = is_dataclass(value)
    names = [one.name for one in fields(value)] if known else getattr(value, "_fields", ())
    return [(name, getattr(value, name)) for name in names]


def _short(value: Any) -> str:
    """Return a fact in one line."""
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return ", ".join(map(_short, value)) or "none"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    is_op = isinstance(value, type) and issubclass(value, Op)
    return str(value.name) if is_op or isinstance(value, Processor | DType) else str(value)
