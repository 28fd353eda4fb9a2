"""Packages that graphfw does not need by itself."""

from importlib import import_module
from types import ModuleType


def package(module: str, name: str = "") -> ModuleType:
    """Import a module of a package.

    Args:
        module: The module.
        name: The package that has it, by the name by which pip installs it; as the module's by
            default.

    Raises:
        ImportError: The package is missing.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        name = name or module
        raise ImportError(f"gf.data needs the package {name} for it: pip install {name}") from error
