"""`python -m graphfw doctor`: what this machine has of what graphfw uses, and what to install."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module, metadata
from typing import Literal, NamedTuple, TypeAlias

from graphfw.errors import ArgumentError, ExecutorError, first_line
from graphfw.runtime import private_folder
from graphfw.runtime.cache import fix_of, folder

State: TypeAlias = Literal["good", "missing", "broken"]

_NEEDED = ("numpy", "ml_dtypes", "networkx", "safetensors")
_EXTRAS = (("onnx", "models in ONNX's format", 'pip install "onnx>=1.21"'),)


class Finding(NamedTuple):
    """One thing that was looked for.

    Attributes:
        name: What.
        state: Whether it is there; "broken": graphfw can't work as it is.
        detail: Which version, or what is wrong.
        advice: What to do about it.
    """

    name: str
    state: State
    detail: str
    advice: str = ""


def main(arguments: Sequence[str]) -> None:
    """Write what is there, what is missing, and what to install.

    Raises:
        ExecutorError: Something is broken that every program needs.
    """
    argparse.ArgumentParser(prog="python -m graphfw doctor", description=__doc__).parse_args(
        arguments
    )
    found = list(findings())
    sys.stdout.write(report_of(found))
    broken = [one.name for one in found if one.state == "broken"]
    if broken:
        raise ExecutorError(f"{', '.join(broken)}: broken, as said above")


def findings() -> Iterator[Finding]:
    """Yield all that was looked for, in order."""
    yield Finding("Python", "good", f"{platform.python_version()} on {platform.platform()}")
    for name in _NEEDED:
        yield _package(name, "broken", f"pip install {name}")
    yield _compiler()
    yield _cache()
    for name, what, advice in _EXTRAS:
        one = _package(name, "missing", advice)
        yield one if one.state == "good" else one._replace(detail=f"not installed: for {what}")
    # Not at the top: it is about other packages, which may be broken.
    yield from import_module("graphfw.runtime.cupy_executor.doctor").findings()


def report_of(found: Sequence[Finding]) -> str:
    """Return findings as a table, with what to do below those that want something.

    >>> print(report_of([Finding("CuPy", "missing", "not installed", "pip install cupy")]), end="")
    missing  CuPy  not installed
                   pip install cupy
    """
    width = max([len(one.name) for one in found])
    lines = []
    for one in found:
        lines.append(f"{one.state:<7}  {one.name:<{width}}  {one.detail}")
        if one.advice:
            lines.append(f"{'':<7}  {'':<{width}}  {one.advice}")
    return "".join([f"{line}\n" for line in lines])


def _package(name: str, otherwise: State, advice: str) -> Finding:
    try:
        import_module(name)
        version = metadata.version(name)
    except Exception as error:
        return Finding(name, otherwise, first_line(error), advice)
    return Finding(name, "good", version)


def _compiler() -> Finding:
    """Look for what compiles kernels for the CPU."""
    try:
        # Not at the top: it is to be said that it is missing.
        machine = import_module("graphfw.runtime.numpy_executor.machine").machine()
    except Exception as error:
        return Finding("llvmlite", "broken", first_line(error), "pip install llvmlite")
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Finding(
        "llvmlite", "good", f"{machine.version}, for {machine.cpu} with {threads} threads"
    )


def _cache() -> Finding:
    """Look at where compiled code is kept."""
    try:
        path = folder()
    except ArgumentError as error:
        return Finding("cache", "broken", error.summary, error.fix)
    if path is None:
        return Finding("cache", "missing", "compiled code is not kept", "unset GRAPHFW_CACHE")
    try:
        private_folder.make(path)
        why = private_folder.why_unsafe(path.stat())
    except OSError as error:
        return Finding("cache", "missing", str(error), "set GRAPHFW_CACHE to a folder of yours")
    if why:
        return Finding("cache", "missing", f"{path} is not used, since {why}", fix_of(path))
    if not os.access(path, os.W_OK):
        return Finding(
            "cache",
            "missing",
            f"{path} can't be written to",
            "set GRAPHFW_CACHE to a folder of yours",
        )
    return Finding("cache", "good", str(path))
