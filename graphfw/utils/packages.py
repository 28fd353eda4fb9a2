"""Packages that graphfw needs for some of its functions only."""

from importlib import import_module
from types import ModuleType


def package(module: str, who: str, name: str = "") -> ModuleType:
    """Import a module of a package.

    Args:
        module: The module.
        who: The name of the function or class that needs it, for the error.
        name: The package's name for pip; the module's by default.

    Raises:
        ImportError: The package is missing.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        name = name or module
        raise ImportError(f"{who} needs the package {name}: pip install {name}") from error
