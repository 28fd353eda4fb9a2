"""Operations at sizes that take tenths of a second to seconds, by family: see `interrupts`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import graphfw as gf


class Operation(NamedTuple):
    """What a run computes.

    Attributes:
        name: What is shown.
        compute: Returns it, of tensors of normal draws.
        shapes: Theirs.
        dtype: Theirs.
    """

    name: str
    compute: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    dtype: str = "float32"


def _gradients(value: Any, *xs: Any) -> Any:
    return gf.grad(gf.sum(value * value), list(xs))


def _indices(x: Any) -> Any:
    """Return indices, most of them small."""
    return gf.astype(x * x, gf.int64)


def _positive(x: Any) -> Any:
    """Return positive definite matrices."""
    n = x.shape[-1]
    return x @ gf.matrix_transpose(x) + n * gf.eye(n)


def _products() -> Iterator[Operation]:
    def product(x: Any, y: Any) -> Any:
        return x @ y

    yield Operation("3072³", product, ((3072, 3072), (3072, 3072)))
    yield Operation("2048³, float64", product, ((2048, 2048), (2048, 2048)), "float64")
    yield Operation("2048³, float16", product, ((2048, 2048), (2048, 2048)), "float16")
    yield Operation("512³, int32", product, ((512, 512), (512, 512)), "int32")
    yield Operation("4096 of 128³", product, ((4096, 128, 128), (4096, 128, 128)))
    yield Operation("one row", product, ((1, 16384), (16384, 16384)))
    yield Operation("long sums", product, ((1, 1 << 26), (1 << 26, 2)))
    yield Operation("short sums", product, ((16384, 8), (8, 16384)))
    yield Operation("1024³, complex", lambda x, y: gf.abs((x * 1j) @ (y * 1j)), ((1024, 1024),) * 2)
    yield Operation(
        "einsum", lambda x, y: gf.einsum("bij,bkj->ik", x, y), ((64, 512, 512), (64, 512, 512))
    )


def _convolutions() -> Iterator[Operation]:
    for name, image, weight, options in (
        ("3x3", (8, 64, 256, 256), (64, 64, 3, 3), {"padding": 1}),
        ("3x3, one image", (1, 32, 1024, 1024), (32, 32, 3, 3), {"padding": 1}),
        ("3x3, 1024 channels", (4, 1024, 32, 32), (1024, 1024, 3, 3), {"padding": 1}),
        ("7x7, 3 channels", (2, 3, 1024, 1024), (64, 3, 7, 7), {"padding": 3}),
        ("7x7, 3 channels, stride 2", (8, 3, 1024, 1024), (64, 3, 7, 7), {"stride": 2}),
        ("1x1", (8, 256, 128, 128), (256, 256, 1, 1), {}),
        ("5x5, 1 channel", (1, 1, 4096, 4096), (4, 1, 5, 5), {"padding": 2}),
        ("31x31, 1 channel", (1, 1, 1024, 1024), (1, 1, 31, 31), {"padding": 15}),
        ("64x64, 1 channel", (1, 1, 1024, 1024), (1, 1, 64, 64), {}),
        ("depthwise 3x3", (8, 64, 512, 512), (64, 1, 3, 3), {"groups": 64, "padding": 1}),
        ("depthwise 7x7", (8, 64, 256, 256), (64, 1, 7, 7), {"groups": 64, "padding": 3}),
        ("3x3, 4 groups", (8, 64, 256, 256), (64, 16, 3, 3), {"groups": 4, "padding": 1}),
        ("9, 1-d", (8, 16, 1 << 17), (32, 16, 9), {"padding": 4}),
        ("3x3x3", (1, 16, 64, 128, 128), (16, 16, 3, 3, 3), {"padding": 1}),
    ):

        def conv(x: Any, weight: Any, options: Any = options) -> Any:
            return gf.conv(x, weight, **options)

        yield Operation(name, conv, (image, weight))
        yield Operation(
            f"{name}, gradients",
            lambda x, weight, conv=conv: _gradients(conv(x, weight), x, weight),
            (image, weight),
        )


def _pooling() -> Iterator[Operation]:
    image = ((8, 64, 512, 512),)
    for name, pool in (("max_pool", gf.max_pool), ("avg_pool", gf.avg_pool)):
        yield Operation(f"{name} 9, stride 1", lambda x, p=pool: p(x, 9, stride=1), image)
        yield Operation(
            f"{name} 3, gradient", lambda x, p=pool: _gradients(p(x, 3, stride=2), x), image
        )


def _attention() -> Iterator[Operation]:
    attention = gf.scaled_dot_product_attention
    for shape in ((4, 4096, 64), (1, 8192, 256), (1, 16384, 64)):
        name = " × ".join(map(str, shape))
        yield Operation(name, lambda x: attention(x, x, x), (shape,))
        yield Operation(f"{name}, gradient", lambda x: _gradients(attention(x, x, x), x), (shape,))
    few = ((1, 2, 64), (1, 1 << 20, 64))
    yield Operation("2 queries", lambda q, k: attention(q, k, k), few)
    yield Operation("2 queries, gradients", lambda q, k: _gradients(attention(q, k, k), q, k), few)


def _along_axes(functions: dict[str, Callable[..., Any]]) -> Iterator[Operation]:
    for where, shape, axis in (
        ("one row", (1 << 25,), 0),
        ("rows", (8192, 4096), 1),
        ("columns", (4096, 8192), 0),
    ):
        for name, function in functions.items():
            yield Operation(f"{name}, {where}", lambda x, f=function, a=axis: f(x, a), (shape,))


def _reductions() -> Iterator[Operation]:
    return _along_axes(
        {
            "sum": lambda x, axis: gf.sum(gf.sin(x), axis=axis),
            "argmax": lambda x, axis: gf.argmax(x, axis=axis),
            "softmax": lambda x, axis: gf.softmax(x, axis=axis),
            "logsumexp": lambda x, axis: gf.logsumexp(x, axis=axis),
            "cumulative_sum": lambda x, axis: gf.cumulative_sum(x, axis=axis),
            "cumulative_prod": lambda x, axis: gf.cumulative_prod(x, axis=axis),
        }
    )


def _sorting() -> Iterator[Operation]:
    yield from _along_axes(
        {
            "sort": lambda x, axis: gf.sort(x, axis=axis),
            "argsort": lambda x, axis: gf.argsort(x, axis=axis),
            "sort, gradient": lambda x, axis: _gradients(gf.sort(x, axis=axis), x),
            "topk": lambda x, axis: gf.topk(x, 50, axis=axis).values,
            "median": lambda x, axis: gf.median(x, axis=axis),
            "quantile": lambda x, axis: gf.quantile(x, 0.3, axis=axis),
        }
    )
    yield Operation("searchsorted", lambda x, y: gf.searchsorted(gf.sort(x), y), ((1 << 22,),) * 2)


def _elements() -> Iterator[Operation]:
    row, rows, table = (1 << 25,), (8192, 4096), (1 << 20, 32)
    yield Operation("elementwise", lambda x: gf.erf(gf.sin(x)) ** 2.5, (row,))
    yield Operation("permute_dims", lambda x: gf.permute_dims(x) + 0 * x, ((8192, 8192),))
    yield Operation("flip", lambda x: gf.flip(x, axis=0) + 1, (row,))
    yield Operation("take", lambda x, y: x[_indices(y)], (table, (1 << 21,)))
    yield Operation(
        "take_along_axis", lambda x: gf.take_along_axis(x, _indices(x), axis=1), (rows,)
    )
    yield Operation(
        "index_add",
        lambda x, y, at: gf.index_add(x, _indices(at), y),
        (table, (1 << 21, 32), (1 << 21,)),
    )
    yield Operation("segment_sum", lambda x: gf.segment_sum(x, _indices(x), 100), ((1 << 24,),))
    yield Operation("bincount", lambda x: gf.bincount(_indices(x), length=1000), (row,))
    yield Operation("one_hot", lambda x: gf.one_hot(_indices(x), 2048), ((1 << 16,),))
    yield Operation("random.normal", lambda x: gf.random.normal((1 << 27,)) + x, ((1,),))
    yield Operation("random.permutation", lambda x: gf.random.permutation(1 << 23) + x, ((1,),))
    yield Operation(
        "distances",
        lambda x, y: gf.sum(gf.abs(x[:, None] - y[None]), axis=-1),
        ((2048, 64), (2048, 64)),
    )


def _linear_algebra() -> Iterator[Operation]:
    square, batch = ((1024, 1024),), ((1024, 64, 64),)
    for name, function in {
        "cholesky": lambda x: gf.linalg.cholesky(_positive(x)),
        "solve": lambda x: gf.linalg.solve(_positive(x), x),
        "inv": lambda x: gf.linalg.inv(_positive(x)),
        "det": gf.linalg.det,
        "qr": lambda x: gf.linalg.qr(x)[0],
        "svd": lambda x: gf.linalg.svd(x)[0],
        "eigh": lambda x: gf.linalg.eigh(_positive(x))[0],
    }.items():
        yield Operation(f"{name}, one matrix", function, square)
        yield Operation(f"{name}, batch", function, batch)
    yield Operation(
        "solve_triangular",
        lambda x: gf.linalg.solve_triangular(gf.tril(x) + 1024 * gf.eye(1024), x),
        square,
    )


def _transforms() -> Iterator[Operation]:
    for name, function, shape in (
        ("fft, one row", gf.fft.fft, (1 << 23,)),
        ("fft, rows", gf.fft.fft, (4096, 4096)),
        ("rfft, rows", gf.fft.rfft, (4096, 4096)),
        ("fft, both axes", gf.fft.fftn, (4096, 4096)),
    ):
        yield Operation(name, lambda x, f=function: gf.abs(f(x)), (shape,))


def _loops() -> Iterator[Operation]:
    yield Operation(
        "scan",
        lambda x: gf.scan(lambda c, row: (gf.sin(c + row), gf.sum(c)), x[0], x)[1],
        ((4096, 1024),),
    )
    yield Operation("lstm", lambda x: gf.nn.LSTM(256, 256, name="lstm")(x)[0], ((64, 512, 256),))
    yield Operation(
        "fori_loop, one kernel",
        lambda x: gf.fori_loop(0, 1 << 26, lambda i, c: gf.sin(c + 1), x),
        ((4,),),
    )
    yield Operation(
        "fori_loop, products",
        lambda x: gf.fori_loop(0, 1000, lambda i, c: gf.tanh(c @ x), x),
        ((512, 512),),
    )


FAMILIES: dict[str, Callable[[], Iterator[Operation]]] = {
    "products": _products,
    "convolutions": _convolutions,
    "pooling": _pooling,
    "attention": _attention,
    "reductions": _reductions,
    "sorting": _sorting,
    "elements": _elements,
    "linear-algebra": _linear_algebra,
    "transforms": _transforms,
    "loops": _loops,
}
