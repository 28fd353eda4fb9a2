"""Each workload of the spike: its arrays, its kernels, its result by NumPy, and graphfw's plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import graphfw as gf
from spikes.tile_ir.ir import Engine
from spikes.tile_ir.run import Call, Program, empty
from spikes.tile_ir.schedules import attention, convolution, matmul, rows, winograd
from spikes.tile_ir.schedules.convolution import Window
from spikes.tile_ir.target import Target

Array: TypeAlias = "NDArray[Any]"
Random: TypeAlias = np.random.Generator


@dataclass
class Case:
    """A workload.

    Attributes:
        arrays: What the kernels work on; the result is the last.
        program: Makes the kernels.
        expected: Computes the result by NumPy, in float64.
        graph: Makes graphfw's plan for so many threads, and returns what runs it.
        tolerance: The largest error, as a part of the largest element.
    """

    arrays: list[Array]
    program: Callable[[], Program]
    expected: Callable[[], Array]
    graph: Callable[[int], Callable[[], Any]]
    tolerance: float = 3e-6


def cases(target: Target) -> dict[str, Callable[[Random], Case]]:
    """Return how each workload is made, by its name."""
    found: dict[str, Callable[[Random], Case]] = {}

    def add(name: str, make: Callable[..., Case], *args: Any, **options: Any) -> None:
        found[name] = lambda random: make(target, random, *args, **options)

    add("matmul 128x784x512", matmul_case, 128, 784, 512)
    add("matmul 512x512x512", matmul_case, 512, 512, 512)
    add("matmul 2048x2048x2048", matmul_case, 2048, 2048, 2048, packed=True)
    add("matmul 512x512x512 symbolic", matmul_case, 512, 512, 512, symbolic=True)
    add("matmul 127x783x500 symbolic", matmul_case, 127, 783, 500, symbolic=True)
    add("matmul 512x512x512 bias, relu", matmul_case, 512, 512, 512, epilogue=True)
    add("matmul 512x512x512 int32", matmul_case, 512, 512, 512, dtype="int32")
    if target.lanes == 16:  # AVX-512's instruction
        add("matmul 512x512x512 uint8, int8", _bytes, 512, 512, 512)
    for weights in ("float32", "bfloat16", "int8"):
        add(f"row x 4096x4096 {weights}", _row, weights)
    square, stem = Window(256, 256, 56, 56, 3, 1, 1), Window(3, 64, 224, 224, 7, 2, 3)
    add("conv 3x3, direct", _convolution, square, 14, winograd=False)
    add("conv 3x3, bias, relu", _convolution, square, 14, winograd=False, epilogue=True)
    add("conv 3x3, Winograd", _winograd, square)
    add("conv 7x7 stem", _convolution, stem, 8)
    add("conv 3x3 depthwise", _depthwise, square)
    add("softmax 4096x1024", softmax_case, 1024)
    add("softmax 4096x1000", softmax_case, 1000)
    add("attention causal 12x1024x64", _attention)
    add("transposed copy 2048x2048", _transposed, streaming=False)
    add("transposed copy past the caches", _transposed, streaming=True)
    add("column sum 1000000x3", _column_sum)
    return found


def _plan(
    function: Callable[..., Any],
    feeds: Sequence[Array],
    fixed: Sequence[Array] = (),
    **options: Any,
) -> Callable[[int], Callable[[], Any]]:
    """Return what compiles a function of feeds and of variables, and then runs it."""
    shapes = options.pop("shapes", [a.shape for a in feeds])

    def made(threads: int) -> Callable[[], Any]:
        with gf.Graph() as graph:
            inputs = [gf.placeholder(s, str(a.dtype)) for s, a in zip(shapes, feeds, strict=True)]
            variables = [gf.Variable(a) for a in fixed]
            result = function(*inputs, *variables)
        session = gf.Session(graph, threads=threads, **options)
        plan = session.compile(result, feeds=inputs)
        return lambda: plan(*feeds)

    return made


def _floats(random: Random, *shape: int) -> Array:
    array: Array = random.standard_normal(shape, np.float32)
    return array


def matmul_case(
    target: Target,
    random: Random,
    m: int,
    k: int,
    n: int,
    dtype: str = "float32",
    symbolic: bool = False,
    epilogue: bool = False,
    packed: bool = False,
) -> Case:
    """Return a product."""
    if dtype == "int32":
        a, b = (random.integers(-1000, 1000, s, np.int32) for s in ((m, k), (k, n)))
    else:
        a, b = _floats(random, m, k), _floats(random, k, n)
    bias, c = _floats(random, n), empty((m, n), dtype)
    fixed = [None if symbolic else size for size in (m, n, k)]

    def program() -> Program:
        engine: Engine = "muladd" if dtype == "int32" else "fma"
        given = fixed[0], fixed[1], fixed[2], dtype, epilogue, packed, engine
        kernel = matmul.matmul(target, *given)
        places = [0, 3 if packed else 1, *[2] * epilogue, 4]
        main = Call(kernel, places, {"m": m, "n": n, "k": k} if symbolic else {})
        ahead = [Call(matmul.packed_columns(target, n, k), (1, 3))] if packed else []
        return Program([*ahead, main])

    def expected() -> Array:
        product: Array = (a if dtype == "int32" else a.astype(np.float64)) @ b
        return np.maximum(product + bias, 0) if epilogue else product

    shapes = [("m", "k"), ("k", "n")] if symbolic else [a.shape, b.shape]
    graph = _plan(lambda a, b: a @ b, [a, b], shapes=shapes)
    if epilogue:
        graph = _plan(lambda a, b, bias: gf.relu(a @ b + bias), [a, b, bias])
    panels = empty((k, -(-n // 32) * 32) if packed else (0,))
    return Case([a, b, bias, panels, c], program, expected, graph)


def _bytes(target: Target, random: Random, m: int, k: int, n: int) -> Case:
    a = random.integers(0, 256, (m, k), np.uint8)
    b = random.integers(-128, 128, (n, k), np.int8)
    panels, c = empty((n, k), np.int8), empty((m, n), np.int32)

    def program() -> Program:
        packed = rows.panels(target, 1, n, k // 4, "int32")
        main = matmul.matmul(target, m, n, k // 4, "int32", packed=True, engine="dot4")
        return Program([Call(packed, (1, 2)), Call(main, (0, 2, 3))])

    def multiplied(a: Any, b: Any) -> Any:
        return gf.astype(a, "int32") @ gf.permute_dims(gf.astype(b, "int32"))

    graph = _plan(multiplied, [a, b])
    return Case(
        [a, b, panels, c], program, lambda: a.astype(np.int32) @ b.T.astype(np.int32), graph
    )


def _row(target: Target, random: Random, weights: str) -> Case:
    k, n = 4096, 4096
    x, w = _floats(random, 1, k), _floats(random, k, n)
    if weights == "bfloat16":
        w = w.astype(ml_dtypes.bfloat16)
    elif weights == "int8":
        w = random.integers(-128, 128, (k, n), np.int8)
    graph = _plan(lambda x, w: x @ gf.astype(w, "float32"), [x, w])
    return Case(
        [x, w, empty((1, n))],
        lambda: Program([Call(matmul.row(target, n, k, weights), (0, 1, 2))]),
        lambda: x.astype(np.float64) @ w.astype(np.float64),
        graph,
        1e-5,  # sums of 4096 products, one after the other
    )


def _convolved(x: Array, w: Array, window: Window) -> Array:
    """Return a convolution by NumPy; kernels of one channel see one each."""
    before, taps, stride = window.padding, window.taps, window.stride
    padded = np.pad(x[0].astype(np.float64), ((0, 0), (before, before), (before, before)))
    height, width = window.result
    total = np.zeros((window.outputs, height, width))
    for dy in range(taps):
        for dx in range(taps):
            seen = padded[:, dy : dy + height * stride : stride, dx : dx + width * stride : stride]
            seen = seen[:, :height, :width]
            one = w[:, :, dy, dx].astype(np.float64)
            alone = w.shape[1] == 1 < x.shape[1]
            total += one[:, :, None] * seen if alone else np.tensordot(one, seen, 1)
    return total[None]


def _convolution(
    target: Target,
    random: Random,
    window: Window,
    together: int,
    epilogue: bool = False,
    **options: Any,
) -> Case:
    x = _floats(random, 1, window.channels, window.height, window.width)
    w = _floats(random, window.outputs, window.channels, window.taps, window.taps)
    bias, y = _floats(random, window.outputs), empty((1, window.outputs, *window.result))
    padded, panels = empty((window.channels, *window.padded)), empty((w.size,))

    def program() -> Program:
        main = convolution.convolution(target, window, together, epilogue)
        return Program(
            [
                Call(convolution.pad(target, window), (0, 1)),
                Call(main, (1, 3, 4, 5) if epilogue else (1, 3, 5)),
            ],
            [Call(rows.panels(target, 1, window.outputs, w[0].size), (2, 3))],
        )

    def expected() -> Array:
        result = _convolved(x, w, window)
        return np.maximum(result + bias[:, None, None], 0) if epilogue else result

    def convolved(x: Any, w: Any, bias: Any) -> Any:
        y = gf.conv(x, w, padding=window.padding, stride=window.stride)
        return gf.relu(y + bias[:, None, None]) if epilogue else y

    graph = _plan(convolved, [x], [w, bias], **options)
    return Case([x, padded, w, panels, bias, y], program, expected, graph)


def _winograd(target: Target, random: Random, window: Window) -> Case:
    x = _floats(random, 1, window.channels, window.height, window.width)
    w = _floats(random, window.outputs, window.channels, 3, 3)
    y, panels = empty((1, window.outputs, *window.result)), empty((w.size,))
    pixels, weights = empty((*window.padded, window.channels)), empty((4 * w.size,))
    tiles = 36 * (y[0, 0].size // 16)
    image, sums = empty((tiles, window.channels)), empty((tiles, window.outputs))

    def program() -> Program:
        return Program(
            [
                Call(winograd.pixels_first(target, window), (0, 1)),
                Call(winograd.transformed_image(target, window), (1, 5)),
                Call(winograd.products(target, window), (5, 4, 6)),
                Call(winograd.result(target, window), (6, 7)),
            ],
            [
                Call(rows.panels(target, 1, window.outputs, w[0].size), (2, 3)),
                Call(winograd.transformed_weights(target, window), (3, 4)),
            ],
        )

    graph = _plan(lambda x, w: gf.conv(x, w, padding=window.padding), [x], [w])
    arrays = [x, pixels, w, panels, weights, image, sums, y]
    return Case(arrays, program, lambda: _convolved(x, w, window), graph, 1e-5)


def _depthwise(target: Target, random: Random, window: Window) -> Case:
    x = _floats(random, 1, window.channels, window.height, window.width)
    w, y = _floats(random, window.channels, 1, window.taps, window.taps), empty(x.shape)
    tile = (4, 2) if target.lanes == 16 else (7, 1)
    groups = window.channels
    graph = _plan(lambda x, w: gf.conv(x, w, padding=window.padding, groups=groups), [x], [w])
    return Case(
        [x, w, y],
        lambda: Program([Call(convolution.depthwise(target, window, *tile), (0, 1, 2))]),
        lambda: _convolved(x, w, window),
        graph,
    )


def softmax_case(target: Target, random: Random, columns: int) -> Case:
    """Return the softmax of 4096 rows."""
    x = _floats(random, 4096, columns)

    def expected() -> Array:
        powers = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
        result: Array = powers / powers.sum(-1, keepdims=True)
        return result

    return Case(
        [x, empty(x.shape)],
        lambda: Program([Call(rows.softmax(target, *x.shape), (0, 1))]),
        expected,
        _plan(gf.softmax, [x]),
    )


def _attention(target: Target, random: Random) -> Case:
    heads, length, depth = 12, 1024, 64
    q, k, v = (_floats(random, 1, heads, length, depth) for _ in range(3))
    together = 8 if target.lanes == 16 else 16

    def program() -> Program:
        keys = rows.panels(target, heads, length, depth)
        main = attention.attention(target, heads, length, depth, together)
        return Program([Call(keys, (1, 3)), Call(main, (0, 2, 3, 4))])

    def expected() -> Array:
        scores = q.astype(np.float64) @ k.swapaxes(-1, -2) / np.sqrt(depth)
        scores[..., ~np.tri(length, dtype=bool)] = -np.inf
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        result: Array = powers / powers.sum(-1, keepdims=True) @ v
        return result

    graph = _plan(lambda *qkv: gf.scaled_dot_product_attention(*qkv, causal=True), [q, k, v])
    return Case([q, k, v, empty(k.shape), empty(q.shape)], program, expected, graph)


def _transposed(target: Target, random: Random, streaming: bool) -> Case:
    x = _floats(random, 2048, 2048)

    def program() -> Program:
        kernel = rows.transposed_copy(target, *x.shape, streaming=streaming)
        return Program([Call(kernel, (0, 1))])

    return Case(
        [x, empty(x.shape)],
        program,
        lambda: x.T,
        _plan(gf.permute_dims, [x]),
    )


def _column_sum(target: Target, random: Random) -> Case:
    x, parts = _floats(random, 1_000_000, 3), empty((100, 48))
    sizes = {"rows": len(x)}

    def program() -> Program:
        partial, added = rows.column_sums(target, 3)
        return Program([Call(partial, (0, 1), sizes), Call(added, (1, 2), sizes)])

    graph = _plan(lambda x: gf.sum(x, axis=0), [x])
    tolerance = 1e-3  # of sums near 0, of a million elements
    return Case([x, parts, empty((3,))], program, lambda: x.sum(0, np.float64), graph, tolerance)
