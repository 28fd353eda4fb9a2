"""What pytest needs before it collects: options, and the package imported as a whole.

Doctests are collected file by file; a file of ops that is imported first and again with the package
would register its ops twice.
"""

import gc
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

# What the passes do is checked after each one while the tests run; set before the first import.
os.environ.setdefault("GRAPHFW_VERIFY", "each")
# Kernels that are compiled in tests stay out of the user's own cache.
os.environ.setdefault("GRAPHFW_CACHE", str(Path(__file__).parent / ".pytest_cache" / "kernels"))
# NumPy's products are the tests' references. OpenBLAS waits for its threads by turning in a loop,
# which takes the cores from the tests beside. Set before NumPy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# The processes that tests start would each compile the package's source anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Now, with these settings: they are imported lazily, and doctests would load them once more.
import graphfw.data
import graphfw.distributions
import graphfw.models
import graphfw.train  # noqa: F401  for what importing does


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-api", action="store_true", help="accept the public API as it is")
    parser.addoption(
        "--update-graphs", action="store_true", help="accept what commands make of tests/graphs"
    )


@pytest.hookimpl(tryfirst=True)  # before the plugin of doctests looks
def pytest_configure(config: pytest.Config) -> None:
    if config.option.markexpr == "smoke":  # to look for examples takes a fifth of its time
        config.option.doctestmodules = False


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    # All that is made while tests are collected stays, so that to look for garbage is in vain; it
    # takes a third of the time.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        _settle()


def pytest_collection_finish() -> None:
    # Tests make much that lives shortly, and hypothesis looks at the clock at each collection.
    gc.set_threshold(10_000, 10, 10)


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem is not None and nextitem.path != item.path:
        _settle()


def _settle() -> None:
    """Take what is alive for what stays: all modules and tests, and what earlier tests have cached.

    The collector would walk over it hundreds of times, and the more of it the later.
    """
    gc.collect()
    gc.freeze()


# A busy machine is no failure. In CI the same examples are drawn each time, elsewhere fresh ones.
settings.register_profile("graphfw", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("graphfw")
