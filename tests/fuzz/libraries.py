"""Array libraries with the names and the arguments that graphfw has, where these differ."""

from __future__ import annotations

import itertools
import math
import string
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

import graphfw as gf

Array = np.ndarray[Any, np.dtype[Any]]


class Space(SimpleNamespace):
    """An array library, with some functions in place of its own."""

    def __init__(self, library: Any, **functions: Any) -> None:
        super().__init__(**functions)
        self.library = library

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["library"], name)


def _softmax(x: Array, axis: int) -> Array:
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def _einsum(equation: str, *operands: Array) -> Array:
    if all([x.size for x in operands]):
        return np.einsum(equation, *operands)
    # NumPy reads and writes the first elements even of empty arrays, which here lie beyond them.
    sizes: dict[str, int] = {}
    left, _, right = equation.partition("->")
    for labels, x in zip(left.split(","), operands, strict=True):
        for label, size in zip(_spelled(labels, x.ndim), x.shape, strict=True):
            if sizes.get(label, 1) == 1:
                sizes[label] = size
    count = len([label for label in sizes if label.isupper()])
    spelled = _spelled(right, len(right.replace("...", "")) + count)
    return np.zeros([sizes[label] for label in spelled], operands[0].dtype)


def _spelled(labels: str, ndim: int) -> str:
    """Return labels with capitals in place of an ellipsis, the same for the same last dims."""
    count = ndim - len(labels.replace("...", ""))
    return labels.replace("...", string.ascii_uppercase[:count][::-1])


def _logsumexp(x: Array, axis: int) -> Array:
    m = x.max(axis=axis, keepdims=True)
    return (m + np.log(np.exp(x - m).sum(axis=axis, keepdims=True))).squeeze(axis)


def _cumulative(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, axis: function(x, axis=axis)


# Windows: all sizes are given as tuples, one number for each spatial dim.


def _windows(
    x: Array,
    sizes: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    fill: float = 0.0,
) -> Array:
    """Return each window's elements.  x: [N, C, *S] -> [N, C, *T, *K]"""
    x = np.pad(x, [(0, 0), (0, 0), *padding], constant_values=fill)
    reach = [d * (size - 1) + 1 for size, d in zip(sizes, dilation, strict=True)]
    axes = tuple(range(2, x.ndim))
    seen = np.lib.stride_tricks.sliding_window_view(x, reach, axes)
    where = [slice(None, None, s) for s in stride]
    within = [slice(None, None, d) for d in dilation]
    return np.asarray(seen[(slice(None), slice(None), *where, *within)])


def _conv(
    x: Array,
    weight: Array,
    *,
    stride: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    groups: int,
) -> Array:
    seen = _windows(x, weight.shape[2:], stride, padding, dilation)
    spatial = weight.ndim - 2
    window = list(range(2 + spatial, 2 + 2 * spatial))
    where = list(range(2, 2 + spatial))
    products = [
        np.einsum(section, [0, 1, *where, *window], kernels, [99, 1, *window], [0, 99, *where])
        for section, kernels in zip(
            np.split(seen, groups, axis=1), np.split(weight, groups), strict=True
        )
    ]
    return np.concatenate(products, axis=1)


def _conv_transpose(
    x: Array,
    weight: Array,
    *,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Array:
    sizes = weight.shape[2:]
    full = [
        (length - 1) * s + d * (size - 1) + 1
        for length, s, d, size in zip(x.shape[2:], stride, dilation, sizes, strict=True)
    ]
    channels = weight.shape[1] * groups
    y = np.zeros((x.shape[0], channels, *full), x.dtype)
    grouped = zip(np.split(x, groups, axis=1), np.split(weight, groups), strict=True)
    # Each is [N, *S, O / groups, *K].
    products = [np.tensordot(section, kernels, ([1], [0])) for section, kernels in grouped]
    spatial = len(sizes)
    joined = np.moveaxis(np.concatenate(products, axis=1 + spatial), 1 + spatial, 1)
    for offsets in itertools.product(*map(range, sizes)):
        where = [
            slice(d * k, d * k + (length - 1) * s + 1, s)
            for d, k, length, s in zip(dilation, offsets, x.shape[2:], stride, strict=True)
        ]
        y[(slice(None), slice(None), *where)] += joined[(..., *offsets)]
    kept = [slice(p, size - p) for p, size in zip(padding, full, strict=True)]
    if not all([0 < size - 2 * p for p, size in zip(padding, full, strict=True)]):
        raise ValueError("nothing is left")
    return np.asarray(y[(slice(None), slice(None), *kept)])


def _pool(
    reduce: Callable[..., Array], fill: float
) -> Callable[[Array, Sequence[int], Sequence[int], Sequence[int]], Array]:
    def pooled(
        x: Array, kernel_size: Sequence[int], stride: Sequence[int], padding: Sequence[int]
    ) -> Array:
        ends = [(p, p) for p in padding]
        seen = _windows(x, kernel_size, stride, ends, [1] * len(kernel_size), fill)
        return np.asarray(reduce(seen, axis=tuple(range(x.ndim, seen.ndim))))

    return pooled


# Loops and branches as Python has them; see `gf.scan` and the others.


def _fori_loop(lower: int, upper: int, body: Any, value: Any) -> Any:
    for number in range(lower, upper):
        value = body(number, value)
    return value


def _while_loop(condition: Any, body: Any, value: Any) -> Any:
    while bool(condition(value)):
        value = body(value)
    return value


def _cond(pred: Any, true_fn: Any, false_fn: Any, *operands: Any) -> Any:
    return (true_fn if bool(pred) else false_fn)(*operands)


def _scan(stack: Any) -> Any:
    def scan(f: Any, carry: Any, xs: Any, *, reverse: bool = False, **options: Any) -> Any:
        """Scan one sequence; what trips yield is a tuple of arrays."""
        numbers = range(xs.shape[0])
        rows: list[Any] = []
        for i in reversed(numbers) if reverse else numbers:
            carry, row = f(carry, xs[i])
            rows.append(row)
        if reverse:
            rows.reverse()
        return carry, tuple([stack(list(arrays)) for arrays in zip(*rows, strict=True)])

    return scan


def _attention(xp: Any) -> Any:
    def attention(q: Any, k: Any, v: Any, mask: Any = None, *, causal: bool = False) -> Any:
        if not q.shape[-1]:
            raise ValueError("there is no scale for keys of no numbers")
        scores = xp.matmul(q, xp.matrix_transpose(k)) * q.shape[-1] ** -0.5
        if mask is not None:
            scores = (
                xp.where(mask, scores, -math.inf) if "bool" in str(mask.dtype) else scores + mask
            )
        if causal:
            seen = xp.tril(xp.ones_like(scores)) > 0
            scores = xp.where(seen, scores, -math.inf)
        return xp.matmul(xp.softmax(scores, axis=-1), v)

    return attention


def _portable(xp: Space) -> Space:
    """Add what is written with the functions that all libraries have."""
    xp.fori_loop, xp.while_loop, xp.cond = _fori_loop, _while_loop, _cond
    xp.scan = _scan(xp.stack)
    xp.checkpoint = lambda f: f
    xp.scaled_dot_product_attention = _attention(xp)
    return xp


_ERF = np.vectorize(math.erf, otypes=[np.float64])


def _put(x: Array, key: Any, values: Any, how: str) -> Array:
    y = np.array(x)
    if how == "set":
        y[key] = values
    else:
        # NumPy 2.4 crashes where the values have more dims than what they are put into.
        values = np.broadcast_to(values, y[key].shape)
        {"add": np.add, "multiply": np.multiply, "max": np.maximum, "min": np.minimum}[how].at(
            y, key, values
        )
    return y


def _segments(function: Any, fill: int | None) -> Callable[[Array, Array, int], Array]:
    """Reduce segments; where there is no number for those without rows, that is refused."""

    def reduced(x: Array, ids: Array, count: int) -> Array:
        if fill is None:
            return np.stack([function.reduce(x[ids == i], axis=0) for i in range(count)])
        y = np.full((count, *x.shape[1:]), fill, np.int64 if x.dtype == bool else x.dtype)
        function.at(y, ids, x)
        return y

    return reduced


def _median(x: Array, *, axis: int, keepdims: bool = False) -> Array:
    if not x.shape[axis]:
        raise ValueError("of no elements none is in the middle")
    return np.asarray(np.median(x, axis=axis, keepdims=keepdims))


def _take(x: Array, indices: Array, *, axis: int) -> Array:
    if not x.shape[axis] and indices.size:  # where nothing else is left NumPy lets it pass
        raise IndexError("there is nothing to take")
    return np.take(x, indices, axis=axis)


def _scatter_add(x: Array, indices: Array, updates: Array, axis: int) -> Array:
    y = np.array(x)
    where = list(np.indices(indices.shape))
    where[axis] = indices
    np.add.at(y, tuple(where), updates)
    return y


NUMPY = _portable(
    Space(
        np,
        softmax=_softmax,
        log_softmax=lambda x, axis: x - np.expand_dims(_logsumexp(x, axis), axis),
        logsumexp=_logsumexp,
        sigmoid=lambda x: 1 / (1 + np.exp(-x)),
        softplus=lambda x: np.logaddexp(x, np.zeros_like(x)),
        silu=lambda x: x / (1 + np.exp(-x)),
        gelu=lambda x: x * (1 + _ERF(x / math.sqrt(2))).astype(x.dtype) / 2,
        erf=lambda x: _ERF(x).astype(x.dtype),
        einsum=_einsum,
        cumulative_max=_cumulative(np.maximum.accumulate),
        cumulative_min=_cumulative(np.minimum.accumulate),
        relu=lambda x: np.maximum(x, np.zeros_like(x)),
        # As in the Array API's `linalg`, matrices are the last two dims.
        diagonal=lambda x: np.diagonal(x, axis1=-2, axis2=-1),
        trace=lambda x: np.trace(x, axis1=-2, axis2=-1),
        conv=_conv,
        conv_transpose=_conv_transpose,
        max_pool=_pool(np.max, -math.inf),
        avg_pool=_pool(np.mean, 0.0),
        median=_median,
        take=_take,
        put=_put,
        segment_sum=_segments(np.add, 0),
        segment_max=_segments(np.maximum, None),
        segment_min=_segments(np.minimum, None),
        segment_prod=_segments(np.multiply, 1),
        scatter_add=_scatter_add,
    )
)


class Recording(Space):
    """NumPy's functions, and the largest finite number that they have returned: `largest`."""

    def __init__(self) -> None:
        super().__init__(NUMPY, largest=0.0)
        _portable(self)

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if not callable(found) or isinstance(found, type):
            return found

        def noting(*args: Any, **kwargs: Any) -> Any:
            result = found(*args, **kwargs)
            if isinstance(result, np.ndarray | np.generic) and result.dtype.kind == "f":
                finite = abs(result[np.isfinite(result)])
                self.largest = max(self.largest, float(finite.max(initial=0.0)))
            return result

        return noting


GRAPHFW = Space(gf, put=lambda x, key, values, how: getattr(x.at[key], how)(values))


def torch_space() -> Space:
    """Return PyTorch; there must be one."""
    import array_api_compat.torch as compat
    import torch

    torch.set_num_threads(1)  # arrays are small, and the threads would wait by turning in a loop
    f = torch.nn.functional

    def conv(x: Any, weight: Any, *, padding: Any, **options: Any) -> Any:
        ends = [end for pair in reversed(padding) for end in pair]
        return getattr(f, f"conv{weight.ndim - 2}d")(f.pad(x, ends), weight, **options)

    def conv_transpose(x: Any, weight: Any, **options: Any) -> Any:
        return getattr(f, f"conv_transpose{weight.ndim - 2}d")(x, weight, **options)

    def pool(name: str) -> Any:
        def pooled(x: Any, kernel_size: Any, stride: Any, padding: Any) -> Any:
            return getattr(f, f"{name}_pool{x.ndim - 2}d")(x, kernel_size, stride, padding)

        return pooled

    def put(x: Any, key: Any, values: Any, how: str) -> Any:
        if how == "set":
            y = x.clone()
            y[key] = values
            return y
        # Where each element of the result comes from: an element may be named twice.
        numbers = np.arange(x.numel()).reshape(tuple(x.shape))[key]
        changed = torch.broadcast_to(torch.as_tensor(values, dtype=x.dtype), numbers.shape)
        at = torch.as_tensor(numbers.reshape(-1).copy())
        return x.reshape(-1).index_add(0, at, changed.reshape(-1)).reshape(x.shape)

    return _portable(
        Space(
            compat,
            softmax=lambda x, axis: torch.softmax(x, axis),
            log_softmax=lambda x, axis: torch.log_softmax(x, axis),
            logsumexp=lambda x, axis: torch.logsumexp(x, axis),
            sigmoid=torch.sigmoid,
            softplus=f.softplus,
            silu=f.silu,
            gelu=f.gelu,
            erf=torch.erf,
            relu=torch.relu,
            einsum=torch.einsum,
            diagonal=lambda x: torch.diagonal(x, dim1=-2, dim2=-1),
            trace=lambda x: torch.diagonal(x, dim1=-2, dim2=-1).sum(-1),
            conv=conv,
            conv_transpose=conv_transpose,
            max_pool=pool("max"),
            avg_pool=pool("avg"),
            put=put,
            segment_sum=lambda x, ids, count: x.new_zeros((count, *x.shape[1:])).index_add(
                0, ids, x
            ),
            scatter_add=lambda x, indices, updates, axis: x.scatter_add(axis, indices, updates),
        )
    )
