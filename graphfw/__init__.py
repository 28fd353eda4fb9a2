"""graphfw: describe a computation first, run it later."""

import importlib as _il
from graphfw import errors
from graphfw.errors import *
from graphfw.ir.ambient import default_dtype, default_executor, get_default_dtype, get_default_executor, name_scope, no_grad, reset_default_executor, set_default_dtype, set_default_executor, training
from graphfw.ir.dtype import DType, bool_ as bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64, complex64, complex128
from graphfw.ir.graph import Graph, current_graph
from graphfw.ir.variable import Update, Variable, group, update
from graphfw.ir.tensor import Tensor
from graphfw.ir.verify import verify
from graphfw.transforms import *
# TEMPORARY while op families land: the lead replaces this by an explicit list
import os as _os
for _f in sorted(_os.listdir(_os.path.join(_os.path.dirname(__file__), "ops"))):
    if _f.endswith(".py") and not _f.startswith("_"):
        try:
            _m = _il.import_module("graphfw.ops." + _f[:-3])
        except Exception as _e:
            print("WARNING: graphfw.ops." + _f[:-3], "does not import:", type(_e).__name__, _e)
            continue
        if _f == "random.py": continue
        for _n in getattr(_m, "__all__", ()):
            if hasattr(_m, _n): globals()[_n] = getattr(_m, _n)
for _name in ("ops.random:random", "runtime.session:Session", "runtime.plan:Plan", "ir.parser:parse", "nn:nn", "optim:optim"):
    _mod, _, _as = _name.partition(":")
    try:
        _m = _il.import_module("graphfw." + _mod)
        globals()[_as] = getattr(_m, _as) if hasattr(_m, _as) and _as in ("Session", "Plan", "parse") else _m
    except Exception as _e:
        print("WARNING:", _name, "does not import:", type(_e).__name__, _e)
pi, e, inf, nan, newaxis = 3.141592653589793, 2.718281828459045, float("inf"), float("nan"), None
