"""The corrected line of an error computes what the line computes in its own library."""

from __future__ import annotations

import warnings
from itertools import groupby

import numpy as np
import pytest

from tests.support import foreign_lines

LINES = list(foreign_lines.lines())
GROUPS = {
    f"{library}-{number}": [line for _, (_, line) in lines]
    for (library, number), lines in groupby(
        enumerate(LINES), lambda numbered: (numbered[1][0], numbered[0] // 50)
    )
}
"""The lines in groups of fifty: a test for each takes longer than they do."""


@pytest.mark.parametrize("name", GROUPS)
def test_corrected_lines_compute_what_was_meant(name):
    library = name.partition("-")[0]
    if library == "torch":
        pytest.importorskip("torch")
    if library == "jax":
        pytest.importorskip("jax")
    wrong = [found for line in GROUPS[name] if (found := _difference(library, line))]
    assert not wrong, "\n".join(wrong)


def _difference(library, line):
    """Say what is wrong with what the errors make of a line, or return ""."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of the libraries
        wanted = foreign_lines.known(library, line)
        try:
            steps, found = foreign_lines.corrected(line)
        except Exception as error:
            return f"{line}: {error!r}"
    if len(steps) == 1:
        return f"{line} is no mistake"
    ours, theirs = foreign_lines.flat(found), foreign_lines.flat(wanted)
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=False) if b.dtype != object]  # no shapes
    is_same = len(ours) == len(theirs) and all(
        own.shape == known.shape and np.allclose(own, known, rtol=1e-4, atol=1e-6, equal_nan=True)
        for own, known in pairs
    )
    return "" if is_same else f"{' -> '.join(steps)} gives {found}, and not {wanted}"


def test_there_are_lines_of_each_library():
    assert {library for library, _ in LINES} == {"torch", "numpy", "jax", "scipy"}
    assert len(LINES) > 900
