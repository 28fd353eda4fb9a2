"""The package's modules, imported with the garbage collector kept still.

It would walk again and again what they define, all of which stays. `graphfw/__init__.py` imports
this first.
"""

from importlib import import_module

from graphfw.utils.collecting import without_collection

with without_collection():
    # First, and from here: deep down in imports of imports Python's stack of frames may end just
    # where NumPy calls most, and then each call asks the system for the next piece of it.
    import_module("numpy")
    for _name in (
        "ir.parser",
        "extend",
        "fft",
        "linalg",
        "nn",
        "optim",
        "special",
        "runtime.model_sessions",
    ):
        import_module(f"graphfw.{_name}")
