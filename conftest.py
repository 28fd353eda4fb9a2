"""Import the package before pytest collects doctests file by file, so that each op registers once."""

import os

# What the passes do is checked after each one while the tests run; set before the first import.
os.environ.setdefault("GRAPHFW_VERIFY", "each")

import graphfw  # noqa: E402, F401
