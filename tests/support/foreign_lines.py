"""Lines of other libraries, and what graphfw's errors make of them.

`tests/hints/foreign_lines.txt` has lines as users of PyTorch, NumPy, JAX and SciPy write them. Each
is an error in graphfw; its corrected line is put in its place, until the line is computed.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import linecache
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import graphfw as gf

FILE = Path(__file__).parent.parent / "hints" / "foreign_lines.txt"

MOST = 5
"""A line has at most so many mistakes."""

TARGETS = {
    r"\b(?:torch\.nn\.functional|F|jax\.nn)\.": "gf.nn.",
    r"\bjax\.lax\.": "gf.",
    r"\b(?:torch|scipy|jax\.scipy)\.special\.": "gf.special.",
    r"\b(?:torch|np|jnp|scipy|jax\.scipy)\.linalg\.": "gf.linalg.",
    r"\b(?:np|jnp|torch)\.fft\.": "gf.fft.",
    r"\bscipy\.signal\.": "gf.",
    r"\b(?:torch|np|jnp|jax)\.": "gf.",
}
"""Modules of other libraries, with those where their users look for the same in graphfw."""


def lines() -> Iterator[tuple[str, str]]:
    """Yield each line of the file with its library."""
    library = ""
    for line in FILE.read_text("utf-8").splitlines():
        if line.startswith("["):
            library = line[1:-1]
        elif line and not line.startswith("#"):
            yield library, line


@cache
def samples() -> dict[str, Any]:
    """Return the arrays that the lines compute with."""
    rng = np.random.default_rng(0)
    square = rng.normal(size=(4, 4))
    holes = np.array([[1.0, np.nan, 3.0, -2.0], [np.nan, np.nan, np.nan, 1.0], [0.5, 2, -1, 7]])
    return {
        **{name: rng.normal(size=(3, 4)) for name in ("x", "y")},
        "z": rng.uniform(0.1, 0.9, size=(3, 4)),
        **{name: rng.normal(size=5) for name in ("v", "w")},
        **{name: rng.normal(size=(4, 4)) for name in ("m", "n")},
        "t": rng.normal(size=(2, 3, 4)),
        "u": rng.normal(size=(2, 4, 5)),
        "im": rng.normal(size=(2, 3, 8, 8)),
        "seq": rng.normal(size=(2, 3, 10)),
        "i": np.array([2, 0, 1]),
        "idx": np.array([[0, 1, 2, 1], [2, 2, 0, 1], [1, 0, 0, 0]]),
        "lab": np.array([1, 0, 3]),
        "b": rng.normal(size=(3, 4)) > 0,
        "spd": square @ square.T + 4 * np.eye(4),
        "k": rng.integers(-9, 9, size=(3, 4)),
        "j": rng.integers(1, 9, size=(3, 4)),
        "c": rng.normal(size=(3, 4)) + 1j * rng.normal(size=(3, 4)),
        "nn_": holes,
        "ker": rng.normal(size=(6, 3, 3, 3)),
        "ker1": rng.normal(size=(6, 3, 3)),
        "bias": rng.normal(size=6),
        "wt": rng.normal(size=(6, 4)),
        "cnt": np.array([0, 1, 1, 3, 5]),
        "s": np.sort(rng.normal(size=6)),
    }


def known(library: str, line: str) -> Any:
    """Return the value of a line in its library."""
    names: dict[str, Any] = {"np": np}
    make: Any = np.asarray
    if library == "torch":
        torch = importlib.import_module("torch")
        names |= {"torch": torch, "F": torch.nn.functional}
        make = torch.tensor
    elif library == "jax" and "jax." not in line:  # NumPy's functions, which JAX compiles first
        names["jnp"] = np
    elif library == "jax":
        jax = importlib.import_module("jax")
        with jax.enable_x64(True):
            names |= {"jax": jax, "jnp": jax.numpy}
            return eval(line, _named(jax.numpy.asarray, line, names))
    elif library == "scipy":
        names["scipy"] = importlib.import_module("scipy")
        for name in ("linalg", "signal", "special"):
            importlib.import_module(f"scipy.{name}")
    return eval(line, _named(make, line, names))


def _named(make: Any, line: str, names: dict[str, Any]) -> dict[str, Any]:
    """Return the names that a line uses: PyTorch changes some of its tensors in place."""
    used = set(re.findall(r"\w+", line))
    return {name: make(array) for name, array in samples().items() if name in used} | names


def corrected(line: str) -> tuple[list[str], Any]:
    """Return the line with each of its corrections, and the value of the last."""
    for pattern, target in TARGETS.items():
        line = re.sub(pattern, target, line)
    names = _named(gf.asarray, line, {"gf": gf})
    steps = [line]
    while len(steps) <= MOST:
        file = f"<line {len(steps)} {line}>"
        linecache.cache[file] = (len(steps[-1]), None, [steps[-1] + "\n"], file)
        try:
            return steps, eval(compile(steps[-1], file, "eval"), names)
        except gf.GraphfwError as error:
            steps.append(_mended(steps[-1], file, error))
    raise AssertionError(f"no end of {steps}")


def _mended(line: str, file: str, error: gf.GraphfwError) -> str:
    """Put the error's corrected expression in the place of what failed."""
    fix = error.fix.partition("; ")[0]
    ast.parse(fix, mode="eval")
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename != file:
        traceback = traceback.tb_next
    assert traceback is not None
    positions = itertools.islice(
        traceback.tb_frame.f_code.co_positions(), traceback.tb_lasti // 2, None
    )
    _, _, start, end = next(positions)
    for node in ast.walk(ast.parse(line, mode="eval")):
        if isinstance(node, ast.Call):
            is_called = (node.func.col_offset, node.func.end_col_offset) == (start, end)
            if is_called and isinstance(error, gf.UnknownNameError):
                start, end = node.col_offset, node.end_col_offset
    assert start is not None
    assert end is not None
    return fix if end - start == len(line) else f"{line[:start]}({fix}){line[end:]}"


def flat(value: Any) -> list[np.ndarray[Any, Any]]:
    """Return the arrays that a result consists of."""
    if isinstance(value, (tuple, list)):
        return [array for item in value for array in flat(item)]
    if hasattr(value, "resolve_conj"):
        value = value.detach().resolve_conj().resolve_neg()
    return [np.asarray(value.numpy() if hasattr(value, "numpy") else value)]
