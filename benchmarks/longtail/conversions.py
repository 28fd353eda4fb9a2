"""Images and integers: to floats and back, crops and sizes, chains of mixed integers, counts."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks.frameworks import Array, Arrays, Formula
from benchmarks.longtail.draw import Draw
from benchmarks.longtail.formulas import cast, contest, each, largest, name_of, normal, permuted
from benchmarks.workload import Contest

_MEANS, _DEVIATIONS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet's channels."""


def _images(*shape: int) -> Arrays:
    return [np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)]


def _vector(xp: Any, values: tuple[float, ...]) -> Any:
    name = name_of(xp)
    array = np.array(values, np.float32)
    return xp.constant(array) if name == "graphfw" else xp.asarray(array)


def _normalised(xp: Any, x: Any) -> Any:
    x = (cast(x, "float32") / 255 - _vector(xp, _MEANS)) / _vector(xp, _DEVIATIONS)
    return permuted(xp, x, (2, 0, 1) if x.ndim == 3 else (0, 3, 1, 2))


def image_to_floats(draw: Draw) -> Contest:
    height, width = draw.size(240, 2160), draw.size(320, 3840)
    formula = Formula(functools.partial(_images, height, width, 3), **each(_normalised))
    title = f"a {height}×{width} image of uint8 as normalised floats, channels first"
    return contest(title, formula, compiled=True, lies=True)


# A crop of images, to another size, bilinear, and normalised.  x: uint8 [N, H, W, 3]


def _resized(xp: Any, x: Any, size: int) -> Any:
    """Return images [N, 3, H, W] at a size."""
    name = name_of(xp)
    if name == "torch":
        resize = xp.nn.functional.interpolate
        return resize(x, (size, size), mode="bilinear", align_corners=False)
    if name == "jax":
        import jax

        shape = (*x.shape[:2], size, size)
        return jax.image.resize(x, shape, "linear", antialias=False)
    return xp.resize(x, (size, size), axes=(2, 3))


def _cropped(xp: Any, x: Any, *, margin: int, size: int) -> Any:
    x = x[:, margin : x.shape[1] - margin, margin : x.shape[2] - margin]
    return _resized(xp, _normalised(xp, x), size)


def crop_and_resize(draw: Draw) -> Contest:
    batch, height, width = draw.size(1, 16), draw.size(120, 1080), draw.size(160, 1920)
    margin, size = min(height, width) // draw.choice(4, 6, 10), draw.size(64, 384)
    formula = Formula(
        functools.partial(_images, batch, height, width, 3),
        **each(_cropped, ("graphfw", "torch", "jax"), margin=margin, size=size),
    )
    title = f"crops of {batch} {height}×{width} images at {size}×{size}, normalised"
    return contest(title, formula, compiled=True, lies=True, rtol=1e-3, atol=1e-3)


# uint8 RGB to grey.  x: uint8 [H, W, 3]


def _grey(xp: Any, x: Any) -> Any:
    wide = cast(x, "int32")
    return cast((77 * wide[..., 0] + 150 * wide[..., 1] + 29 * wide[..., 2]) >> 8, "uint8")


def grey(draw: Draw) -> Contest:
    height, width = draw.size(240, 2160), draw.size(320, 3840)
    formula = Formula(functools.partial(_images, height, width, 3), **each(_grey))
    return contest(f"a {height}×{width} image in grey, uint8", formula, compiled=True, lies=True)


# Two images blended in integers.  a, b: uint8 [H, W]


def _two_images(*shape: int) -> Arrays:
    (both,) = _images(2, *shape)
    return [both[0], both[1]]


def _blended(xp: Any, a: Any, b: Any) -> Any:
    mixed = (cast(a, "int16") * 5 + cast(b, "int16") * 3 - 40) >> 3
    return cast(xp.clip(mixed, 0, 255), "uint8")


def blend(draw: Draw) -> Contest:
    shape = (draw.size(240, 2160), draw.size(320, 3840))
    formula = Formula(functools.partial(_two_images, *shape), **each(_blended))
    return contest(f"two {shape[0]}×{shape[1]} images of uint8 blended", formula, compiled=True)


# A hash of keys: a chain of 32 bits' operations with a mask.  x: int32 [n], y: int16 [n]


def _keys(n: int) -> Arrays:
    rng = np.random.default_rng(0)
    return [
        rng.integers(-(2**31), 2**31, n, dtype=np.int32),
        rng.integers(-(2**15), 2**15, n, dtype=np.int16),
    ]


def _hashed(xp: Any, x: Any, y: Any) -> Any:
    x = (x ^ (x >> 15)) * 73244475
    x = (x ^ (x >> 13)) + cast(y, "int32")
    return xp.where((x & 7) == 3, x >> 2, x & 65535)


def hash_keys(draw: Draw) -> Contest:
    n = draw.size(100_000, 10_000_000)
    formula = Formula(functools.partial(_keys, n), **each(_hashed))
    return contest(f"a hash of {n:,} int32 and int16", formula, compiled=True)


# Numbers in 8 bits, by row.  x: float32 [r, c]


def _quantised(xp: Any, x: Any) -> Any:
    scale = largest(xp, xp.abs(x), 1, keepdims=True) / 127
    return [cast(xp.round(x / scale), "int8"), scale]


def quantise(draw: Draw) -> Contest:
    shape = (draw.size(256, 4096), draw.size(256, 4096))
    formula = Formula(functools.partial(normal, shape), **each(_quantised))
    title = f"rows of {shape[0]}×{shape[1]} floats in 8 bits with scales"
    return contest(title, formula, compiled=True, atol=1e-2)  # a rounding may fall otherwise


# Sound: int16 of two channels to the mean as float with a gain.  x: int16 [n, 2]


def _sound(n: int) -> Arrays:
    return [np.random.default_rng(0).integers(-(2**15), 2**15, (n, 2), dtype=np.int16)]


def _mono(xp: Any, x: Any) -> Any:
    x = cast(x, "float32") * (1 / 32768)
    return xp.tanh(1.5 * (x[:, 0] + x[:, 1]))


def sound_to_floats(draw: Draw) -> Contest:
    n = draw.size(100_000, 10_000_000)
    formula = Formula(functools.partial(_sound, n), **each(_mono))
    return contest(f"{n:,} samples of int16, two channels to one", formula, compiled=True)


# Counts


def _counted(xp: Any, x: Any, *, length: int) -> Any:
    x = xp.reshape(x, (-1,))
    if name_of(xp) in ("numpy", "torch"):
        return xp.bincount(x, minlength=length)
    return xp.bincount(x, length=length)


def image_histogram(draw: Draw) -> Contest:
    height, width = draw.size(240, 2160), draw.size(320, 3840)
    formula = Formula(functools.partial(_images, height, width), **each(_counted, length=256))
    return contest(f"how often each of 256 greys occurs in {height}×{width}", formula)


def _whole(n: int, length: int, dtype: str) -> Arrays:
    return [np.random.default_rng(0).integers(0, length, n).astype(dtype)]


def bincount(draw: Draw) -> Contest:
    n, length = draw.size(100_000, 10_000_000), draw.size(10, 100_000)
    dtype = draw.choice("int64", "int32")
    inputs = functools.partial(_whole, n, length, dtype)
    formula = Formula(inputs, **each(_counted, length=length))
    return contest(f"how often each of {length:,} numbers occurs in {n:,} {dtype}", formula)


def _histogram(xp: Any, x: Any, *, bins: int) -> Any:
    if name_of(xp) == "torch":
        return xp.histc(x, bins, -4.0, 4.0)
    return xp.histogram(x, bins, range=(-4.0, 4.0))[0]


def _numbers(n: int) -> Arrays:
    """Return numbers within the bins, none of them close to an edge."""
    (x,) = normal((n,))
    return [np.clip(x, -3.999, 3.999)]


def _few_apart(found: Array) -> Array:
    """Return counts added up from the left: numbers at an edge change one of them by little."""
    return np.cumsum(found)


def histogram(draw: Draw) -> Contest:
    n, bins = draw.size(100_000, 10_000_000), draw.size(10, 1000)
    formula = Formula(functools.partial(_numbers, n), **each(_histogram, bins=bins))
    title = f"a histogram of {n:,} floats in {bins} bins"
    return contest(title, formula, shown=_few_apart, atol=1e-3)


FAMILIES = {
    image_to_floats: 1,
    crop_and_resize: 1,
    grey: 1,
    blend: 1,
    hash_keys: 1,
    quantise: 1,
    sound_to_floats: 1,
    image_histogram: 1,
    bincount: 1,
    histogram: 1,
}
"""Each with how many workloads a run draws from it."""
