"""The page that says what other libraries' functions are called here: `docs/names.md`.

`pytest --update-api` writes it anew, from their names (`tests/hints/foreign_names.txt`) and from
the tables that answer them in errors (`graphfw/hints/`).
"""

from __future__ import annotations

import itertools
import textwrap
from pathlib import Path
from typing import NamedTuple

from graphfw.hints import public
from graphfw.hints.expressions import plain
from graphfw.hints.lookup import Answer, look_up
from tests.support import foreign_names

PAGE = Path(__file__).parent.parent.parent / "docs" / "names.md"
WIDTH = 120

MODULES = {
    "numpy": "gf",
    "numpy.linalg": "gf.linalg",
    "jax.numpy": "gf",
    "torch.nn.functional": "gf.nn",
    "scipy.special": "gf.special",
    "scipy.signal": "gf",
}
"""Modules that the page goes through, with graphfw's modules to look for their names in."""

OTHERWISE: dict[str, dict[str, str]] = {
    "numpy": {
        "byte": "gf.int8",
        "char": "",
        "diagonal": "gf.diagonal(gf.moveaxis(x, (0, 1), (-2, -1)))",
        "identity": "gf.eye(n)",
        "resize": "gf.reshape(gf.take(gf.flatten(x), gf.arange(size) % x.size), shape)",
        "trace": "gf.trace(gf.moveaxis(x, (0, 1), (-2, -1)))",
    },
    "numpy.linalg": {
        "LinAlgError": "gf.ExecutionError",
        "multi_dot": "a @ b @ c",
        "test": "",
    },
    "scipy.special": {"bernoulli": "", "jvp": ""},
    "scipy.signal": {
        "convolve": "gf.convolve",
        "convolve2d": "gf.conv",
        "correlate": "gf.convolve(x, gf.conj(gf.flip(y)))",
        "correlate2d": "gf.conv",
        "fftconvolve": "gf.convolve",
        "istft": "gf.fft.istft",
        "normalize": "",
        "oaconvolve": "gf.convolve",
        "square": "",
        "stft": "gf.fft.stft",
    },
}
"""Names that mean something else in one library, and what to write; "" for nothing."""

MISSING = {
    "numpy": "tensors hold numbers, and no strings",
    "numpy.linalg": "a session reports what fails",
    "scipy.special": "SciPy's is gf.host_call(scipy.special.…, x.type, x, pure=True)",
    "scipy.signal": "SciPy's is gf.host_call(scipy.signal.…, x.type, x, pure=True)",
}
"""The nearest way to what no table has an answer for, by the module."""

INTRODUCTION = """\
# Functions of other libraries

This page lists the public names of NumPy, JAX, PyTorch and SciPy and what to write in graphfw. An
unknown name is an error with the same answer: `gf.fliplr(x)` raises `gf.UnknownNameError`, whose
message has `gf.flip(x, axis=1)`. NumPy's functions also accept tensors: see
[the Array API](array-api.md#numpy-scipy-and-dlpack).

Names, arguments and defaults are those of the Array API standard, or else NumPy's. Options such as
`axis` are keyword arguments. Each function has one name.

- Functions that change arrays in place, and functions for files, printing, strings, dates and
  memory, are left out on purpose.
- Write `x.at[key].set(values)` instead of `x[key] = values`, and `.add`, `.multiply`, `.max`,
  `.min` instead of NumPy's `ufunc.at`.
- If an expression replaces a function, the page shows the expression.
- To call any other function of arrays from a graph, use
  [`gf.host_call`](functions.md#python-inside-of-a-graph).

`pytest --update-api` writes this page from the libraries' names and the tables of the errors.
"""


class Found(NamedTuple):
    """The names of a module, by what there is instead.

    Attributes:
        same: Those that are here, by the module that has them.
        renamed: Those that are called otherwise, by what they are called.
        calls: Their calls, with the expression to write.
        texts: Those for which there is something else to do, by that.
        missing: Those that are not here, by the nearest way.
    """

    same: dict[str, list[str]]
    renamed: dict[str, list[str]]
    calls: list[tuple[str, str]]
    texts: dict[str, list[str]]
    missing: dict[str, list[str]]


def text() -> str:
    """Return the page as it ought to be."""
    names = foreign_names.read()
    sections = [INTRODUCTION]
    known: set[str] = set()
    for path, module in MODULES.items():
        listed = [name for name in names[path] if path != "jax.numpy" or name not in known]
        known.update(names[path] if path == "numpy" else ())
        sections.append(_section(path, _sorted(path, listed, module)))
    return "\n".join(sections).rstrip() + "\n"


def _sorted(path: str, names: list[str], module: str) -> Found:
    found = Found({}, {}, [], {}, {})
    for name in names:
        answer = _answer(path, name, module)
        target, bare = answer.target.rpartition(".")[0], answer.target.rpartition(".")[2]
        if answer.target and bare == name:
            found.same.setdefault(target, []).append(name)
        elif answer.target:
            found.renamed.setdefault(answer.target, []).append(name)
        elif answer.calls:
            rows = [(plain(call) if "(" in call else call, to) for call, to in answer.calls]
            found.calls.extend(row for row in rows if row not in found.calls)
        elif answer.text and not answer.text.startswith("not in graphfw"):
            found.texts.setdefault(_of_any(answer.text, name), []).append(name)
        else:
            reason = answer.text.removeprefix("not in graphfw").removeprefix(": ")
            reason = _of_any(reason, name) or MISSING.get(path, "")
            found.missing.setdefault(reason, []).append(name)
    return found


def _of_any(text: str, name: str) -> str:
    """Return the text of an answer without the name, as of all names that have it."""
    return text.replace(f".{name},", ".…,").replace(f".{name}(", ".…(")


def _answer(path: str, name: str, module: str) -> Answer:
    if name in OTHERWISE.get(path, {}):
        write = OTHERWISE[path][name]
        return Answer(calls=((name, write),)) if write else Answer()
    if name in public.PUBLIC[module][1]:
        return Answer(target=f"{module}.{name}")
    found = look_up(name, module)
    if path == "scipy.signal" and "scipy.signal" not in found.text:  # test, windows, normalize
        return found if found.target and "norm" not in name else Answer()
    # What to do is said to users of other libraries.
    return Answer() if path == "scipy.special" and found.text else found


def _section(path: str, found: Found) -> str:
    lines = [f"## {path}", ""]
    if path == "jax.numpy":
        lines += ["What NumPy has is above. Besides:", ""]
    for module, names in sorted(found.same.items()):
        lines += _wrapped(f"**By the same name** in `{module}`: ", names)
    if found.renamed or found.calls:
        lines += [f"| {path} | write |", "|---|---|"]
        renamed = [(", ".join(names), target) for target, names in found.renamed.items()]
        rows = sorted([*renamed, *found.calls], key=lambda row: row[0].lower())
        lines += [f"| `{_work_item(name)}` | `{_work_item(write)}` |" for name, write in rows]
        lines.append("")
    for what, names in sorted(found.texts.items()):
        lines += _wrapped(f"- {_upper(what)}: ", names, end=False)
    lines += [""] * bool(found.texts)
    if found.missing:
        lines += ["**Not in graphfw:**", ""]
        for why, names in sorted(found.missing.items()):
            lines += _wrapped((f"- {_upper(why)}: " if why else "- "), names, end=False)
        lines.append("")
    return "\n".join(lines)


def _upper(text: str) -> str:
    """Begin with a capital, and set the code apart."""
    return text[:1].upper() + text[1:]


def _work_item(code: str) -> str:
    return code.replace("|", "\\|").replace("\\\n", "")


def _wrapped(start: str, names: list[str], *, end: bool = True) -> list[str]:
    """Return a list of names, those with one initial on lines of their own.

    So a name more changes few lines, and changes of several names can be merged.
    """
    indent = "  " if start.startswith("-") else ""
    words = [f"`{name}`," for name in names]
    words[-1] = words[-1].rstrip(",")
    lines = [start.rstrip()]
    for _, same in itertools.groupby(words, key=lambda word: word[1].lower()):
        text = " ".join(same)
        lines += textwrap.wrap(
            text,
            WIDTH,
            initial_indent=indent,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return [*lines, *[""] * end]
