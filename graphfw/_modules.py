"""The package's modules, imported with the garbage collector kept still.

It would walk again and again what they define, all of which stays. `graphfw/__init__.py` imports
this first.
"""

from importlib import import_module

from graphfw.ir.collecting import without_collection

with without_collection():
    for _name in ("ir.parser", "extend", "fft", "linalg", "nn", "optim", "runtime.functions"):
        import_module(f"graphfw.{_name}")
