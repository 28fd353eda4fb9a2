"""The command line: `python -m graphfw doctor`, `opt GRAPH`, `compile GRAPH`, `onnx info MODEL`."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from graphfw.errors import GraphfwError, ParseError

_INTERRUPTED = 130
"""The exit status that shells know of programs which Ctrl-C has ended."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says.  -> the exit status: 0, 1 after an error, 130 after Ctrl-C

    Args:
        arguments: What follows the program's name; that of this process when there is none.
    """
    parser = argparse.ArgumentParser(prog="python -m graphfw")
    groups = parser.add_subparsers(required=True, metavar="GROUP")
    onnx = groups.add_parser("onnx", help="models in ONNX's format", add_help=False)
    onnx.set_defaults(module="graphfw.onnx.commands")
    doctor = groups.add_parser("doctor", help="what is there, and what to install", add_help=False)
    doctor.set_defaults(module="graphfw.runtime.doctor")
    opt = groups.add_parser("opt", help="a graph's text through passes", add_help=False)
    opt.set_defaults(module="graphfw.runtime.commands.opt")
    compile_ = groups.add_parser("compile", help="a graph's text compiled", add_help=False)
    compile_.set_defaults(module="graphfw.runtime.commands.compile")
    options, rest = parser.parse_known_args(arguments)
    if sys.stdout is None:  # as Python has it where the descriptor is closed
        sys.stderr.write("there is nowhere to write: standard output is closed\n")
        return 1
    try:
        commands = importlib.import_module(options.module)  # it may want an extra
        commands.main(rest)
        sys.stdout.flush()
    except GraphfwError as error:
        return _failed(_message(error))
    except ImportError as error:
        return _failed(str(error))
    except MemoryError as error:
        return _failed(f"MemoryError: {str(error) or 'there is not enough memory'}")
    except KeyboardInterrupt:
        return _failed("interrupted", _INTERRUPTED)
    except BrokenPipeError:  # who reads has seen enough, as `head` does
        _end_output()
    except OSError as error:  # the disk is full, say
        return _failed(f"{type(error).__name__}: {error}")
    return 0


def _failed(text: str, status: int = 1) -> int:
    _end_output()
    sys.stderr.write(f"{text}\n")
    return status


def _end_output() -> None:
    """Write what is left, or drop it if that can't be: Python would try again, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _message(error: GraphfwError) -> str:
    """Return the text of an error, without lines of Python, of which the user has written none."""
    error.operands = tuple([replace(operand, loc=None) for operand in error.operands])
    lines = str(error).splitlines()
    if not isinstance(error, ParseError):  # which names a line of a graph's text
        lines = [line for line in lines if not line.startswith("  at   ")]
    return "\n".join([f"{type(error).__name__}: {lines[0]}", *lines[1:]])
