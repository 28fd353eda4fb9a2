"""Run the test suite of the Array API standard against graphfw: see docs/array-api.md.

    python tests/run_array_api.py SUITE [pytest's arguments]

SUITE is a checkout of github.com/data-apis/array-api-tests with its submodule.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import graphfw as gf

HERE = Path(__file__).parent


def main(suite: str, *arguments: str) -> int:
    os.environ["ARRAY_API_TESTS_MODULE"] = "graphfw"
    os.environ["ARRAY_API_TESTS_VERSION"] = gf.__array_api_version__
    os.chdir(suite)
    sys.path.insert(0, ".")  # the suite is no package to install
    # The suite draws Python floats as large as float64 allows; graphfw refuses those that its
    # default dtype can't hold.
    gf.set_default_dtype(gf.float64)
    skips = HERE / "array_api_skips.txt"
    return pytest.main(
        ["array_api_tests", "--skips-file", str(skips.resolve()), "--disable-deadline", *arguments]
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
