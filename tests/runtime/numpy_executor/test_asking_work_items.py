"""Work items of attention and of convolutions' gradients end soon after their run does."""

import ctypes

import numpy as np
import pytest

import graphfw as gf
from graphfw.runtime.numpy_executor.attention.backward import BackwardCode
from graphfw.runtime.numpy_executor.attention.forward import ForwardCode
from graphfw.runtime.numpy_executor.buffer_pool import aligned
from graphfw.runtime.numpy_executor.convolution import gradient, gradient_sums
from graphfw.runtime.numpy_executor.convolution.gradient import GradientCode
from graphfw.runtime.numpy_executor.convolution.gradient_sums import WeightSumsCode
from graphfw.runtime.numpy_executor.engine import compile_codes
from tests.support.work_items import WORK_ITEM, in_a_run, in_an_ended_run


@pytest.fixture(autouse=True)
def compiling(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")


@pytest.fixture(autouse=True)
def uncut_sums(monkeypatch):
    """Work items have long loops, since no sum is split."""
    for module in (gradient, gradient_sums):
        monkeypatch.setattr(module, "_WORK_ITEMS", 0)


def attention():
    x = gf.placeholder((1, 1024, 64))
    return gf.scaled_dot_product_attention(x, x, x), [x]


def gradient_of(value, *xs):
    return gf.grad(gf.sum(value * value), xs[-1:])


def attention_gradient():
    value, xs = attention()
    return gradient_of(value, *xs), xs


def convolution_gradient(image, kernels):
    x, w = gf.placeholder(image), gf.placeholder(kernels)
    return gradient_of(gf.conv(x, w), x, w), [x, w]


@pytest.mark.parametrize(
    ("code", "job"),
    [
        (ForwardCode, attention),
        (BackwardCode, attention_gradient),
        (GradientCode, lambda: convolution_gradient((4, 3, 128, 128), (8, 3, 7, 7))),
        (WeightSumsCode, lambda: convolution_gradient((16, 64, 66, 66), (64, 64, 3, 3))),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_work_item_leaves_its_loop_where_the_run_has_ended(code, job):
    with gf.Graph() as g:
        value, feeds = job()
    steps = gf.Session(g).compile(value, feeds)._run.build.steps
    step = next(step for step in steps if isinstance(step.code, code))
    arrays = [np.zeros(int(storage.size), storage.dtype.dtype) for storage in step.operands]
    buffers = (ctypes.c_void_p * len(arrays))(*[array.ctypes.data for array in arrays])
    params = (ctypes.c_int64 * (len(step.params) + 1))(*[int(p) for p in step.params])
    scratch = aligned(int(step.scratch) + 64)
    work_item = WORK_ITEM(compile_codes([step.code])[0])
    for run, answer in ((in_an_ended_run(), 1), (in_a_run(), 0)):
        assert work_item(buffers, params, 0, scratch.ctypes.data, *run) == answer
