"""graphfw: describe a computation first, run it later.

```python
import graphfw as gf

with gf.Graph() as g:  # describe: nothing is computed
    x = gf.placeholder(("batch", 64), gf.float32, name="x")
    y = gf.placeholder(("batch",), gf.int64, name="y")
    model = gf.nn.Sequential(gf.nn.Linear(64, 128), gf.nn.ReLU(), gf.nn.Linear(128, 10))
    loss = gf.nn.cross_entropy(model(x), y)
    train = gf.optim.Adam(1e-3).minimize(loss)

with gf.Session(g) as session:  # run
    value, _ = session.run([loss, train], {x: images, y: labels})
```

The functions follow the Python Array API standard. Layers are in `graphfw.nn`, optimisers in
`graphfw.optim`, random draws in `graphfw.random`.

`graphfw.data`, `graphfw.distributed`, `graphfw.distributions`, `graphfw.models`, `graphfw.testing`,
`graphfw.train`, `graphfw.tree` and `graphfw.onnx` are imported when they are first used: the last
one wants the package `onnx`.
"""

# What modules of `ops` and `transforms` list in their `__all__` is public here.

import importlib
import types
import typing

from graphfw import _modules as _modules
from graphfw import errors, extend, fft, linalg, nn, optim, special
from graphfw.errors import (
    ArgumentError,
    AxisError,
    CallError,
    CheckpointError,
    ConcreteValueError,
    DataError,
    DTypeError,
    ExecutionError,
    ExecutorError,
    FeedError,
    FetchError,
    GradientError,
    GraphError,
    GraphErrors,
    GraphfwError,
    MemoryLimitError,
    ParseError,
    PassError,
    SessionError,
    ShapeError,
    UnknownImportError,
    UnknownNameError,
    VerifyError,
)
from graphfw.hints.names import hints_for_internal as _hints_for_internal
from graphfw.hints.names import hints_for_module as _hints_for_module
from graphfw.ir.ambient import (
    default_dtype,
    default_executor,
    get_default_dtype,
    get_default_executor,
    name_scope,
    no_grad,
    reset_default_executor,
    set_default_dtype,
    set_default_executor,
    training,
)
from graphfw.ir.dim import Dim
from graphfw.ir.dtype import (
    DType,
    bfloat16,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from graphfw.ir.dtype import bool_ as bool
from graphfw.ir.graph import Graph, current_graph
from graphfw.ir.model_graph import set_seed
from graphfw.ir.modes import FunctionMode
from graphfw.ir.op import Op
from graphfw.ir.parser import parse
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import TensorType
from graphfw.ir.updates import group, update
from graphfw.ir.variable import Update, Variable
from graphfw.ir.verify import verify
from graphfw.ops import random
from graphfw.ops.control.associative_scan import *
from graphfw.ops.control.control_flow import *
from graphfw.ops.control.debug import *
from graphfw.ops.control.host_call import *
from graphfw.ops.creation.constructors import *
from graphfw.ops.creation.inputs import *
from graphfw.ops.creation.ranges import *
from graphfw.ops.custom import *
from graphfw.ops.data_dependent.sets import *
from graphfw.ops.elementwise.arithmetic import *
from graphfw.ops.elementwise.cast import *
from graphfw.ops.elementwise.comparisons import *
from graphfw.ops.elementwise.complex_numbers import *
from graphfw.ops.elementwise.isclose import *
from graphfw.ops.elementwise.math_functions import *
from graphfw.ops.elementwise.where_clip import *
from graphfw.ops.linalg.contractions import outer, tensordot, trace, vecdot
from graphfw.ops.linalg.einsum import *
from graphfw.ops.linalg.kronecker import *
from graphfw.ops.linalg.norms import *
from graphfw.ops.linalg.products import *
from graphfw.ops.namespace import __array_namespace_info__
from graphfw.ops.nn.activations import *
from graphfw.ops.nn.attention import *
from graphfw.ops.nn.boxes import *
from graphfw.ops.nn.convolution import *
from graphfw.ops.nn.grid_sampling import *
from graphfw.ops.nn.normalisation import *
from graphfw.ops.nn.pooling import *
from graphfw.ops.nn.resize import *
from graphfw.ops.nn.unfold import *
from graphfw.ops.nn.unpooling import *
from graphfw.ops.reduce.covariance import *
from graphfw.ops.reduce.cumulative import *
from graphfw.ops.reduce.nan_reductions import *
from graphfw.ops.reduce.reductions import *
from graphfw.ops.reduce.segments import *
from graphfw.ops.reduce.statistics import *
from graphfw.ops.shape.axes import *
from graphfw.ops.shape.concat import *
from graphfw.ops.shape.flat_indices import *
from graphfw.ops.shape.flip_roll import *
from graphfw.ops.shape.gather_scatter import *
from graphfw.ops.shape.getitem import *
from graphfw.ops.shape.movement import *
from graphfw.ops.shape.padding import *
from graphfw.ops.shape.scatter import *
from graphfw.ops.shape.stacking import *
from graphfw.ops.signal.polynomials import *
from graphfw.ops.signal.sampled_functions import *
from graphfw.ops.sorting.histograms import *
from graphfw.ops.sorting.quantiles import *
from graphfw.ops.sorting.sort_search import *
from graphfw.runtime.comparing import bisect
from graphfw.runtime.functions import Function, function
from graphfw.runtime.hosting import to_numpy
from graphfw.runtime.plan import Plan
from graphfw.runtime.session import Session
from graphfw.runtime.session_options import model_session_options
from graphfw.runtime.tracing import eval_shape, make_graph
from graphfw.transforms import *

__array_api_version__ = "2024.12"
__version__ = "0.1.0"

e = 2.718281828459045
inf = float("inf")
nan = float("nan")
newaxis = None
pi = 3.141592653589793

__all__ = [
    "ArgumentError",
    "AxisError",
    "CallError",
    "CheckpointError",
    "ConcreteValueError",
    "DType",
    "DTypeError",
    "DataError",
    "Dim",
    "ExecutionError",
    "ExecutorError",
    "FeedError",
    "FetchError",
    "Function",
    "FunctionMode",
    "GradientError",
    "Graph",
    "GraphError",
    "GraphErrors",
    "GraphfwError",
    "MemoryLimitError",
    "Op",
    "ParseError",
    "PassError",
    "Plan",
    "Session",
    "SessionError",
    "ShapeError",
    "Tensor",
    "TensorType",
    "UnknownImportError",
    "UnknownNameError",
    "Update",
    "Variable",
    "VerifyError",
    "__array_api_version__",
    "__array_namespace_info__",
    "__version__",
    "bfloat16",
    "bisect",
    "bool",
    "complex64",
    "complex128",
    "current_graph",
    "data",
    "default_dtype",
    "default_executor",
    "distributed",
    "distributions",
    "e",
    "errors",
    "eval_shape",
    "extend",
    "fft",
    "float16",
    "float32",
    "float64",
    "function",
    "get_default_dtype",
    "get_default_executor",
    "group",
    "inf",
    "int8",
    "int16",
    "int32",
    "int64",
    "linalg",
    "make_graph",
    "model_session_options",
    "models",
    "name_scope",
    "nan",
    "newaxis",
    "nn",
    "no_grad",
    "onnx",
    "optim",
    "outer",
    "parse",
    "pi",
    "random",
    "reset_default_executor",
    "set_default_dtype",
    "set_default_executor",
    "set_seed",
    "special",
    "tensordot",
    "testing",
    "to_numpy",
    "trace",
    "train",
    "training",
    "tree",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "update",
    "vecdot",
    "verify",
]
__all__ += [  # of the modules that are imported as a whole
    name
    for name, value in globals().copy().items()
    if not (name.startswith("_") or name in __all__ or isinstance(value, types.ModuleType))
]

if typing.TYPE_CHECKING:  # which would take a module with `__getattr__` to have every name
    from graphfw import data, distributed, distributions, models, onnx, testing, train, tree
else:
    _LAZY = "data", "distributed", "distributions", "models", "onnx", "testing", "train", "tree"

    def _lazy(name):
        is_module = name in _LAZY
        return importlib.import_module(f"graphfw.{name}") if is_module else None

    __getattr__, __dir__ = _hints_for_module("gf", __name__, __all__, _lazy)
    _hints_for_internal("gf.transforms", "graphfw.transforms")
    _hints_for_internal("gf.utils", "graphfw.utils")
