"""Formulas as contests of the long tail, and what the libraries call by different names."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.frameworks import Arrays, Formula, Function, jax_function, torch_module
from benchmarks.results import array_of
from benchmarks.workload import Case, Contest, Maker

LIBRARIES = {"graphfw": "graphfw", "numpy": "numpy", "torch": "torch", "jax": "jax.numpy"}
"""Those whose namespaces are alike, with their modules."""

_WIDE = ("float64", "complex128", "int64")
"""The dtypes that JAX has where it is told to."""

ALL = tuple(LIBRARIES)
NETWORKS = ("graphfw", "torch", "jax")
"""The libraries that have gradients."""


def each(function: Function, libraries: tuple[str, ...] = ALL, **fixed: Any) -> dict[str, Any]:
    """Return a function of (namespace, *arrays) as it is for each library, by its name.

    Args:
        function: A function of a module, so that it travels to other processes.
        libraries: Those whose users would write it so.
        fixed: More keyword arguments.
    """
    return {name: functools.partial(_applied, name, function, fixed) for name in libraries}


def _applied(name: str, function: Function, fixed: dict[str, Any], *arrays: Any) -> Any:
    return function(namespace(name), *arrays, **fixed)


def namespace(name: str) -> Any:
    """Return a library's functions of arrays."""
    return importlib.import_module(LIBRARIES[name])


def name_of(xp: Any) -> str:
    """Return the name of the library that a namespace is of."""
    return {module: name for name, module in LIBRARIES.items()}[xp.__name__]


def cast(x: Any, dtype: str) -> Any:
    """Return an array of any library in another dtype."""
    if hasattr(x, "detach"):
        import torch

        return x.to(getattr(torch, dtype))
    return x.astype(dtype)


def permuted(xp: Any, x: Any, axes: tuple[int, ...]) -> Any:
    """Return an array with its axes in another order, copied where the library would not copy."""
    if name_of(xp) == "numpy":
        return np.ascontiguousarray(x.transpose(axes))
    return x.permute(axes).contiguous() if name_of(xp) == "torch" else xp.permute_dims(x, axes)


def largest(xp: Any, x: Any, axis: int, keepdims: bool = False) -> Any:
    """Return the largest numbers along an axis, without their places."""
    if name_of(xp) == "torch":
        return xp.amax(x, axis, keepdim=keepdims)
    return xp.max(x, axis=axis, keepdims=keepdims)


def softmax(xp: Any, x: Any, axis: int = -1) -> Any:
    """Return the softmax; NumPy's users write it out."""
    name = name_of(xp)
    if name == "numpy":
        y = np.exp(x - x.max(axis=axis, keepdims=True))
        return y / y.sum(axis=axis, keepdims=True)
    if name == "jax":
        import jax

        return jax.nn.softmax(x, axis=axis)
    return xp.softmax(x, axis=axis)


def contest(
    title: str,
    formula: Formula,
    *,
    dtype: str = "float32",
    compiled: bool = False,
    lies: bool = False,
    shown: Function | None = None,
    **tolerances: Any,
) -> Contest:
    """Return a formula's contest, which the suite gives its name.

    Args:
        title: What is computed, on what.
        formula: How the libraries write it.
        dtype: Of the numbers; JAX is told where it is one of 64 bits.
        compiled: Whether torch.compile takes part: where it would make code of its own, and not
            call what PyTorch calls.
        lies: Whether the inputs may lie in memory as some libraries cannot take them. Those have
            two rows then: one for their time alone, one with the copy that they need.
        shown: Makes of results, as NumPy arrays, what is compared; None: the results.
        tolerances: Of the contest.
    """
    makers = formula.makers()
    if not compiled:
        makers.pop("torch.compile", None)
    if "jax" in makers:
        makers["jax"] = functools.partial(_jax, formula, dtype in _WIDE, False)
    if lies and "jax" in makers:
        makers["jax+copy"] = functools.partial(_jax, formula, dtype in _WIDE, True)
    if lies:
        for name in ("torch", "torch.compile"):
            if name in makers:
                makers |= _torch_makers(name, makers[name], formula)
    if shown is not None:
        makers = {name: functools.partial(_showing, make, shown) for name, make in makers.items()}
    return Contest("", title, makers, **tolerances)


def _jax(formula: Formula, wide: bool, copies: bool) -> Case:
    """Run what jax.jit makes, of arrays that are where JAX wants them, or of NumPy's."""
    import jax

    jax.config.update("jax_enable_x64", wide)
    compiled, placed = jax_function(formula)
    if copies:
        placed = formula.arguments()[0]
    return Case(lambda: jax.block_until_ready(compiled(*placed)))


def _torch_makers(name: str, maker: Maker, formula: Formula) -> dict[str, Maker]:
    """Return PyTorch's rows: where it can take the arrays as they lie, there is but one."""
    if not any(_is_reversed(a) for a in formula.inputs()):
        return {name: maker}
    straight = dataclasses.replace(formula, inputs=functools.partial(_straight, formula.inputs))
    alone = straight.makers()[name]
    return {name: alone, f"{name}+copy": functools.partial(_torch_copying, name, formula)}


def _is_reversed(array: Any) -> bool:
    """Return whether an array has a negative stride, which PyTorch's tensors have not."""
    return any(stride < 0 for stride in array.strides)


def _straight(inputs: Callable[[], Arrays]) -> Arrays:
    return [np.ascontiguousarray(a) for a in inputs()]


def _torch_copying(name: str, formula: Formula) -> Case:
    torch = torch_module()
    torch.set_grad_enabled(False)
    function = formula.torch
    assert function is not None
    if name == "torch.compile":
        torch.compiler.reset()
        function = torch.compile(function)
    arrays = formula.inputs()
    return Case(lambda: function(*[torch.from_numpy(np.ascontiguousarray(a)) for a in arrays]))


def _showing(maker: Maker, shown: Function) -> Case:
    case = maker()

    def check() -> Any:
        found: Any = (case.check or case.run)()
        results = found if isinstance(found, (list, tuple)) else [found]
        return shown(*map(array_of, results))

    return dataclasses.replace(case, check=check)


def normal(*shapes: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> Arrays:
    """Return arrays of normally distributed numbers; integers are from -100 to 100."""
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        low = -100 if np.dtype(dtype).kind == "i" else 0
        return [rng.integers(low, 100, shape).astype(dtype) for shape in shapes]
    if np.dtype(dtype).kind == "c":
        return [
            (rng.standard_normal(s) + 1j * rng.standard_normal(s)).astype(dtype) for s in shapes
        ]
    real = np.float64 if dtype == "float64" else np.float32
    return [rng.standard_normal(shape, real).astype(dtype) for shape in shapes]


# What networks are made of, where libraries call it by other names


def layers(xp: Any) -> Any:
    """Return the functions of networks of a library, by one name each."""
    return _LAYERS[name_of(xp)]()


def _layers_graphfw() -> Any:
    import graphfw as gf

    return SimpleNamespace(
        layer_norm=lambda x, scale, shift: gf.layer_norm(x, scale, shift, eps=1e-5),
        rms_norm=lambda x, scale: gf.rms_norm(x, scale, eps=1e-6),
        relu=gf.relu,
        silu=gf.silu,
        gelu=functools.partial(gf.gelu, approximate="tanh"),
        attention=lambda q, k, v, causal: gf.scaled_dot_product_attention(q, k, v, causal=causal),
        cross_entropy=gf.nn.cross_entropy,
        conv=lambda x, w, **how: gf.conv(x, w, **how),
        max_pool=lambda x, size: gf.max_pool(x, size),
    )


def _layers_torch() -> Any:
    import torch

    F = torch.nn.functional
    return SimpleNamespace(
        layer_norm=lambda x, scale, shift: F.layer_norm(x, scale.shape, scale, shift, 1e-5),
        rms_norm=lambda x, scale: F.rms_norm(x, scale.shape, scale, 1e-6),
        relu=F.relu,
        silu=F.silu,
        gelu=functools.partial(F.gelu, approximate="tanh"),
        attention=lambda q, k, v, causal: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
        cross_entropy=F.cross_entropy,
        conv=F.conv2d,
        max_pool=F.max_pool2d,
    )


def _layers_jax() -> Any:
    import jax
    from jax import numpy as jnp

    def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + 1e-5) * scale + shift

    def rms_norm(x: Any, scale: Any) -> Any:
        return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + 1e-6) * scale

    def attention(q: Any, k: Any, v: Any, causal: bool) -> Any:
        scores = (q * q.shape[-1] ** -0.5) @ k.swapaxes(-1, -2)
        if causal:
            scores = jnp.where(jnp.tri(q.shape[-2], dtype=bool), scores, -jnp.inf)
        return jax.nn.softmax(scores, axis=-1) @ v

    def cross_entropy(scores: Any, labels: Any) -> Any:
        chosen = jnp.take_along_axis(scores, labels[:, None], axis=1)[:, 0]
        return jnp.mean(jax.nn.logsumexp(scores, axis=1) - chosen)

    def conv(x: Any, w: Any, stride: int = 1, padding: int = 0, groups: int = 1) -> Any:
        pad = ((padding, padding),) * 2
        strides = (stride, stride)
        return jax.lax.conv_general_dilated(x, w, strides, pad, feature_group_count=groups)

    def max_pool(x: Any, size: int) -> Any:
        window = (1, 1, size, size)
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")

    return SimpleNamespace(
        layer_norm=layer_norm,
        rms_norm=rms_norm,
        relu=jax.nn.relu,
        silu=jax.nn.silu,
        gelu=functools.partial(jax.nn.gelu, approximate=True),
        attention=attention,
        cross_entropy=cross_entropy,
        conv=conv,
        max_pool=max_pool,
    )


_LAYERS = {"graphfw": _layers_graphfw, "torch": _layers_torch, "jax": _layers_jax}
