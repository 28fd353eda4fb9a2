"""The pieces that the attention kernels are put together from."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.dtype import DType
from graphfw.runtime.numpy_executor.attention.layout import operands
from graphfw.runtime.numpy_executor.attention.tile import AttentionTile, exp, folded
from graphfw.runtime.numpy_executor.codegen.llvm_module import LlvmFunction, LlvmModule
from graphfw.runtime.numpy_executor.engine import compile_codes
from graphfw.runtime.numpy_executor.machine import machine
from graphfw.runtime.numpy_executor.runner import Run, StepCall, Tables, Wave

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class _VectorCode:
    """b1 = function of b0, vector by vector; a work item is a vector."""

    function: str
    tile: AttentionTile

    @property
    def key(self) -> str:
        return f"test {self}"

    def llvm(self, symbol: str) -> str:
        module, t = LlvmModule(), self.tile
        f = LlvmFunction(module)
        source, to = operands(f, ("x", "y")).values()
        start = f.mul("%work_item", str(t.lanes))
        x = t.load(f, f.at(t.kind, source, start))
        y = exp(f, t, x) if self.function == "exp" else t.splat(f, folded(f, t, x, self.function))
        t.store(f, y, f.at(t.kind, to, start))
        return f.work_item(symbol)


def computed(function: str, x: Array, dtype: DType, lanes: int) -> Array:
    y = np.empty_like(x)
    (address,) = compile_codes([_VectorCode(function, AttentionTile(dtype, lanes, 4))])
    call = StepCall(address, [(0, 0), (1, 0)], [], x.size // lanes)
    run = Run(Tables([Wave([call])], bases=2, arrays=0), 1)
    run.bases[:2] = [x.ctypes.data, y.ctypes.data]
    assert run.stretch(0, 1, hold=True)(()) == 0
    return y


@pytest.mark.parametrize(("dtype", "lowest"), [(gf.float32, -87), (gf.float64, -708)], ids=str)
def test_exp_is_within_2_ulp(dtype: DType, lowest: int, rng: np.random.Generator) -> None:
    x = rng.uniform(lowest, 0, size=1 << 16).astype(dtype.dtype)
    x[:4096] = -(rng.uniform(size=4096) ** 4)
    x[-8:] = [0, -0.0, lowest, -0.5, -1, -1.5, -1e-20, 1]
    y = computed("exp", x, dtype, 8)
    # What multiplies x is log2(e), rounded to its dtype.
    factor = np.longdouble(dtype.dtype.type(1 / np.log(2))) * np.log(np.longdouble(2))
    exact = np.exp(x.astype(np.longdouble) * factor)
    # Without FMA the product is rounded before its whole part is taken off.
    bound = 2 if machine().has("fma") else 2 + np.abs(x)
    assert np.all(np.abs(y - exact) / np.spacing(exact.astype(dtype.dtype)) < bound)


@pytest.mark.parametrize("dtype", [gf.float32, gf.float64], ids=str)
def test_exp_of_what_is_not_usual(dtype: DType) -> None:
    lowest = np.finfo(dtype.dtype).min
    x = np.array([-np.inf, lowest, -1e6, np.nan, -np.nan, 0, -0.0, -2000], dtype.dtype)
    x.view(np.int32 if x.itemsize == 4 else np.int64)[4] |= 0x1FF  # a NaN with other bits
    y = computed("exp", x, dtype, 8)
    np.testing.assert_array_equal(y, np.array([0, 0, 0, np.nan, np.nan, 1, 1, 0], dtype.dtype))


def test_folding(rng: np.random.Generator) -> None:
    x = rng.normal(size=(6, 8)).astype(np.float32)
    x[1, 3] = np.nan
    x[2] = -np.inf
    top = computed("max", x, gf.float32, 8)
    np.testing.assert_array_equal(top, np.fmax.reduce(x, axis=1, keepdims=True).repeat(8, 1))
    total = computed("add", x, gf.float32, 8)
    np.testing.assert_allclose(total, x.sum(1, keepdims=True).repeat(8, 1), rtol=1e-5, atol=1e-6)
