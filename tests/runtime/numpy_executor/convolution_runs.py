"""Runs of convolutions as native steps, for tests of several strategies."""

import math

import numpy as np

from graphfw.ir.dtype import as_dtype
from graphfw.ops.nn.convolution_ops import Conv
from graphfw.runtime.numpy_executor.convolution import conv_steps
from tests.runtime.numpy_executor.matmul_runs import run, storage_of, view_of

GUARD = 64
ERRORS = {"float32": 1e-6, "float64": 1e-15, "float16": 1e-3, "bfloat16": 8e-3}


def op_for(x, w, stride=1, before=0, dilation=1, groups=1, after=None):
    """Return the op of a convolution; numbers are for all spatial dims, or for each."""
    rank = len(x) - 2
    strides, befores, dilations = [
        (v,) * rank if isinstance(v, int) else tuple(v) for v in (stride, before, dilation)
    ]
    facts = zip(x[2:], befores, after or befores, dilations, w[2:], strides, strict=True)
    output_sizes = tuple(
        [max((s + b + a - d * (k - 1) - 1) // t + 1, 0) for s, b, a, d, k, t in facts]
    )
    return Conv(output_sizes, befores, strides, dilations, (1,) * rank, groups)


def drawn(rng, shape, dtype="float32"):
    return rng.standard_normal(shape).astype(as_dtype(dtype).dtype)


def any_window(rng, rank, channels, outputs):
    """Return a convolution of any shape, what it convolves and the kernels.

    Args:
        rng: Draws it.
        rank: The number of spatial dims.
        channels: The least number of channels in a group, and one more than the most.
        outputs: The same of outputs.
    """
    groups = int(rng.choice([1, 1, 2, 3]))
    channels, outputs = groups * rng.integers(*channels), groups * rng.integers(*outputs)
    kernel, stride, dilation = (tuple(rng.integers(1, 4, rank).tolist()) for _ in range(3))
    most = int(rng.integers(0, 5))
    before, after = (tuple(rng.integers(-most // 3, most + 1, rank).tolist()) for _ in range(2))
    sizes = tuple(rng.integers(1, 40 if rank < 3 else 8, rank).tolist())
    x = drawn(rng, (int(rng.integers(0, 3)), channels, *sizes))
    w = drawn(rng, (outputs, channels // groups, *kernel))
    return op_for(x.shape, w.shape, stride, before, dilation, groups, after), x, w


def error(got, op, x, w):
    """Return how far a result is off, in units of what the sums add up."""
    exact = op.eval(np, x.astype(np.float64), w.astype(np.float64))
    sizes = op.eval(np, np.abs(x).astype(np.float64), np.abs(w).astype(np.float64))
    return np.abs(got.astype(np.float64) - exact) / np.maximum(sizes, 1e-300)


def close(got, op, x, w, what=""):
    """See that a result is as exact as its dtype allows."""
    assert (error(got, op, x, w) <= ERRORS[as_dtype(x.dtype).name]).all(), what


def convolved_by(choose, op, x, w, *, order=1, fixed=False, **how):
    """Return the result of the chosen steps for arrays; nothing is written beside it."""
    memory = {}
    image, kernels = view_of(x, memory), view_of(w, memory)
    shape = (x.shape[0], w.shape[0], *op.output_sizes)
    room = np.full(math.prod(shape) + 2 * GUARD, 7, x.dtype)
    out = room[GUARD : GUARD + math.prod(shape)]
    storage = storage_of(out)
    memory[storage] = out
    how |= {"fixed_weight": fixed, "choose": choose}
    steps = conv_steps((), op, image, kernels, storage, None, **how)
    run(steps, memory, order=order)
    assert (room[:GUARD] == 7).all()
    assert (room[-GUARD:] == 7).all()
    return out.reshape(shape)


def strategies_of(op, x, w, **how):
    """Return the seconds that each strategy of a convolution of arrays is estimated to take."""
    found = {}

    def choose(strategies):
        found.update({one.name: one.seconds for one in strategies})
        return []

    memory = {}
    views = view_of(x, memory), view_of(w, memory)
    conv_steps((), op, *views, storage_of(np.empty(1, x.dtype)), None, choose=choose, **how)
    return found
