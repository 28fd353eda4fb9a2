"""Computing ops natively from arrays that lie in different ways, for tests."""

import numpy as np

import graphfw as gf
from graphfw.ir.build import emit
from graphfw.ir.dtype import as_dtype

LAYOUTS = ("plain", "transposed", "sliced", "flipped")
DTYPES = ("bool", "int8", "uint16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
NUMBERS = DTYPES[1:]


def drawn(rng, shape, dtype="float32"):
    """Return an array of small numbers, among them -0.0."""
    values = rng.integers(0 if dtype in ("bool", "uint16") else -4, 5, shape)
    scaled = values * 0.3 if as_dtype(dtype).is_inexact else values
    return np.asarray(scaled).astype(as_dtype(dtype).dtype)


def same(got, wanted):
    """Say that two arrays have the same bits, NaNs taken as equal."""
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    assert np.ascontiguousarray(got).tobytes() == np.ascontiguousarray(wanted).tobytes()


def node_of(op, arrays, layouts=(), *, symbolic=False):
    """Return an op's result for inputs in some layouts, and the feeds and their arrays."""
    layouts = (*layouts, *["plain"] * (len(arrays) - len(layouts)))
    names = {}
    with gf.Graph():
        fed, feeds, inputs = [], [], []
        for array, layout in zip(arrays, layouts, strict=True):
            lying, read = laid(array, layout)
            dims = lying.shape
            if symbolic:  # equal sizes are one symbol; 1 is known, to be broadcast
                dims = tuple(d if d == 1 else names.setdefault(d, f"d{len(names)}") for d in dims)
            tensor = gf.placeholder(dims, as_dtype(lying.dtype))
            fed.append(lying)
            feeds.append(tensor)
            inputs.append(read(tensor))
        y = emit(op, *inputs)
    return y, feeds, fed


def plan_of(op, arrays, layouts=(), *, symbolic=False, seed=0):
    """Return a compiled plan of an op with inputs that lie in some ways, and what to feed it."""
    y, feeds, fed = node_of(op, arrays, layouts, symbolic=symbolic)
    plan = gf.Session(y.graph, seed=seed).compile(y, feeds)
    assert_native(plan)
    return plan, fed


def assert_native(plan):
    """See that NumPy computes nothing."""
    outside = [node.op.name for level in plan._run.build.levels for node in level.nodes]
    assert outside == []


def computed(op, arrays, layouts=(), *, symbolic=False):
    """Return the result of native code for arrays, which it reads as they lie."""
    plan, fed = plan_of(op, arrays, layouts, symbolic=symbolic)
    return plan(*fed)


def laid(array, layout):
    """Return an array that has others' elements, and how a tensor of those is made from it."""
    if layout == "transposed" and array.ndim:
        axes = tuple(reversed(range(array.ndim)))
        return np.ascontiguousarray(array.T), lambda t: gf.permute_dims(t, axes)
    if layout == "flipped" and array.ndim:
        axes = tuple(range(array.ndim))
        return np.ascontiguousarray(np.flip(array)), lambda t: gf.flip(t, axis=axes)
    if layout == "sliced" and array.ndim:
        room = np.zeros([2 * d + 1 for d in array.shape], array.dtype)
        window = (slice(1, None, 2),) * array.ndim
        room[window] = array
        return room, lambda t: t[window]
    return array, lambda t: t
