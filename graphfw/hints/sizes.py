"""`x.size(0)`, as PyTorch asks for a dim: an error says what to write."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from graphfw.errors import CallError
from graphfw.hints.written import call_at
from graphfw.loc import user_frame


def raise_called(size: object, /, *args: object, **kwargs: object) -> NoReturn:
    """Raise the error of a size that is called as a function."""
    frame = user_frame()
    written = call_at(frame) if frame else None
    tensor, _, attribute = written.callee.rpartition(".") if written else ("", "", "")
    if written is None or attribute != "size":
        raise CallError("a size is a number, not a function", fix="write x.shape[0]")
    dim = "".join([f"[{text}]" for text in written.positional])
    dim = dim or "".join([f"[{text}]" for name, text in written.keywords if name == "dim"])
    raise CallError(f"{tensor}.size is a number, not a function", fix=f"{tensor}.shape{dim}")


class Size(int):
    """The number of a tensor's elements: an int whose call raises an error that says `x.shape`."""

    __slots__ = ()

    if not TYPE_CHECKING:  # which reports calls of an int
        __call__ = raise_called

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)
