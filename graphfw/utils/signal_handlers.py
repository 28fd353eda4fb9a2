"""Errors that handlers of signals raise, apart from those of the code that they interrupt."""

from __future__ import annotations

import inspect
from types import FrameType


def is_of_handler(error: BaseException) -> bool:
    """Return whether a signal's handler raised an error: it is no failure of what was running.

    Python calls a handler with the frame that it interrupts, which no other function gets from its
    caller.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        if _takes(trace.tb_next.tb_frame, trace.tb_frame):
            return True
        trace = trace.tb_next
    return False


def _takes(called: FrameType, caller: FrameType) -> bool:
    """Return whether a function was called with a frame."""
    code = called.f_code
    count = code.co_argcount
    names = code.co_varnames[:count]
    found = [called.f_locals.get(name) for name in names]
    if code.co_flags & inspect.CO_VARARGS:
        found += called.f_locals.get(code.co_varnames[count + code.co_kwonlyargcount], ())
    return any([value is caller for value in found])
