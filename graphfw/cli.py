"""The command line: `python -m graphfw onnx info MODEL`."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from graphfw.errors import GraphfwError


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says.  -> the exit status: 0, or 1 after an error

    Args:
        arguments: What follows the program's name; that of this process when there is none.
    """
    parser = argparse.ArgumentParser(prog="python -m graphfw")
    groups = parser.add_subparsers(required=True, metavar="GROUP")
    onnx = groups.add_parser("onnx", help="models in ONNX's format", add_help=False)
    onnx.set_defaults(module="graphfw.onnx.commands")
    options, rest = parser.parse_known_args(arguments)
    try:
        commands = importlib.import_module(options.module)  # it may want an extra
        commands.main(rest)
    except GraphfwError as error:
        sys.stderr.write(_told(error))
        return 1
    except ImportError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _told(error: GraphfwError) -> str:
    """Return what an error says, without the line of code: the user has written none."""
    lines = [f"{type(error).__name__}: {error.summary}"]
    lines += [
        f"  {name}  {text}" for name, text in (("why", error.why), ("fix", error.fix)) if text
    ]
    return "\n".join(lines) + "\n"
