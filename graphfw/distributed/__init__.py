"""Programs of many processes: a mesh, and operations that all its processes do together.

```python
mesh = gf.distributed.Mesh(data=-1)  # started by mpiexec: its processes
with gf.Graph(mesh=mesh) as g:
    ...
    gradients = [gf.distributed.all_reduce(g, "data") / mesh.size for g in gradients]
    train = optimizer.apply_gradients(gradients, variables)
```

All processes run the same program. Either all of them commit the updates of a run, or none does.
"""

from typing import TYPE_CHECKING

from graphfw.distributed.mesh import Mesh
from graphfw.distributed.simulated import SimulatedMesh
from graphfw.hints.names import hints_for_module
from graphfw.ops.collectives.functions import (
    all_gather,
    all_reduce,
    all_to_all,
    axis_index,
    broadcast,
    reduce_scatter,
)

__all__ = [
    "Mesh",
    "SimulatedMesh",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "axis_index",
    "broadcast",
    "reduce_scatter",
]

if not TYPE_CHECKING:  # which would take a module with `__getattr__` to have every name
    __getattr__, __dir__ = hints_for_module("gf.distributed", __name__, __all__)
