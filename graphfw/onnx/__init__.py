"""Models in ONNX's format: read them as graphs, and run them.

```python
import graphfw as gf

graph = gf.onnx.load("model.onnx")
with gf.Session(graph) as session:
    (scores,) = session.run(graph.outputs, {"image": image})
```

It needs the package onnx: `pip install "onnx>=1.21"`.
"""

from typing import TYPE_CHECKING

try:
    import onnx
except ModuleNotFoundError as error:
    raise ImportError('gf.onnx needs the package onnx: pip install "onnx>=1.21"') from error

from graphfw.hints.names import hints_for_module
from graphfw.onnx.errors import OnnxError, ValueNeeded
from graphfw.onnx.importer import load
from graphfw.onnx.running import run
from graphfw.onnx.saving import save

__all__ = ["OnnxError", "ValueNeeded", "load", "run", "save"]

del onnx

if not TYPE_CHECKING:  # which would take a module with `__getattr__` to have every name
    __getattr__, __dir__ = hints_for_module("gf.onnx", __name__, __all__)
