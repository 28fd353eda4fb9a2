"""The functions of the Python Array API standard 2024.12, their parameters and their defaults.

Where graphfw takes more than the standard asks for, the standard's calls must still mean the same.
"""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import graphfw as gf

STANDARD = {
    "abs": "(x, /)",
    "acos": "(x, /)",
    "acosh": "(x, /)",
    "add": "(x1, x2, /)",
    "all": "(x, /, *, axis=None, keepdims=False)",
    "any": "(x, /, *, axis=None, keepdims=False)",
    "arange": "(start, /, stop=None, step=1, *, dtype=None, device=None)",
    "argmax": "(x, /, *, axis=None, keepdims=False)",
    "argmin": "(x, /, *, axis=None, keepdims=False)",
    "argsort": "(x, /, *, axis=-1, descending=False, stable=True)",
    "asarray": "(obj, /, *, dtype=None, device=None, copy=None)",
    "asin": "(x, /)",
    "asinh": "(x, /)",
    "astype": "(x, dtype, /, *, copy=True, device=None)",
    "atan": "(x, /)",
    "atan2": "(x1, x2, /)",
    "atanh": "(x, /)",
    "bitwise_and": "(x1, x2, /)",
    "bitwise_invert": "(x, /)",
    "bitwise_left_shift": "(x1, x2, /)",
    "bitwise_or": "(x1, x2, /)",
    "bitwise_right_shift": "(x1, x2, /)",
    "bitwise_xor": "(x1, x2, /)",
    "broadcast_arrays": "(*arrays)",
    "broadcast_to": "(x, /, shape)",
    "can_cast": "(from_, to, /)",
    "ceil": "(x, /)",
    "clip": "(x, /, min=None, max=None)",
    "concat": "(arrays, /, *, axis=0)",
    "conj": "(x, /)",
    "copysign": "(x1, x2, /)",
    "cos": "(x, /)",
    "cosh": "(x, /)",
    "count_nonzero": "(x, /, *, axis=None, keepdims=False)",
    "cumulative_prod": "(x, /, *, axis=None, dtype=None, include_initial=False)",
    "cumulative_sum": "(x, /, *, axis=None, dtype=None, include_initial=False)",
    "diff": "(x, /, *, axis=-1, n=1, prepend=None, append=None)",
    "divide": "(x1, x2, /)",
    "empty": "(shape, *, dtype=None, device=None)",
    "empty_like": "(x, /, *, dtype=None, device=None)",
    "equal": "(x1, x2, /)",
    "exp": "(x, /)",
    "expand_dims": "(x, /, *, axis=0)",
    "expm1": "(x, /)",
    "eye": "(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None)",
    "finfo": "(type, /)",
    "flip": "(x, /, *, axis=None)",
    "floor": "(x, /)",
    "floor_divide": "(x1, x2, /)",
    "from_dlpack": "(x, /, *, device=None, copy=None)",
    "full": "(shape, fill_value, *, dtype=None, device=None)",
    "full_like": "(x, /, fill_value, *, dtype=None, device=None)",
    "greater": "(x1, x2, /)",
    "greater_equal": "(x1, x2, /)",
    "hypot": "(x1, x2, /)",
    "iinfo": "(type, /)",
    "imag": "(x, /)",
    "isdtype": "(dtype, kind)",
    "isfinite": "(x, /)",
    "isinf": "(x, /)",
    "isnan": "(x, /)",
    "less": "(x1, x2, /)",
    "less_equal": "(x1, x2, /)",
    "linspace": "(start, stop, /, num, *, dtype=None, device=None, endpoint=True)",
    "log": "(x, /)",
    "log10": "(x, /)",
    "log1p": "(x, /)",
    "log2": "(x, /)",
    "logaddexp": "(x1, x2, /)",
    "logical_and": "(x1, x2, /)",
    "logical_not": "(x, /)",
    "logical_or": "(x1, x2, /)",
    "logical_xor": "(x1, x2, /)",
    "matmul": "(x1, x2, /)",
    "matrix_transpose": "(x, /)",
    "max": "(x, /, *, axis=None, keepdims=False)",
    "maximum": "(x1, x2, /)",
    "mean": "(x, /, *, axis=None, keepdims=False)",
    "meshgrid": "(*arrays, indexing='xy')",
    "min": "(x, /, *, axis=None, keepdims=False)",
    "minimum": "(x1, x2, /)",
    "moveaxis": "(x, source, destination, /)",
    "multiply": "(x1, x2, /)",
    "negative": "(x, /)",
    "nextafter": "(x1, x2, /)",
    "nonzero": "(x, /)",
    "not_equal": "(x1, x2, /)",
    "ones": "(shape, *, dtype=None, device=None)",
    "ones_like": "(x, /, *, dtype=None, device=None)",
    "permute_dims": "(x, /, axes)",
    "positive": "(x, /)",
    "pow": "(x1, x2, /)",
    "prod": "(x, /, *, axis=None, dtype=None, keepdims=False)",
    "real": "(x, /)",
    "reciprocal": "(x, /)",
    "remainder": "(x1, x2, /)",
    "repeat": "(x, repeats, /, *, axis=None)",
    "reshape": "(x, /, shape, *, copy=None)",
    "result_type": "(*arrays_and_dtypes)",
    "roll": "(x, /, shift, *, axis=None)",
    "round": "(x, /)",
    "searchsorted": "(x1, x2, /, *, side='left', sorter=None)",
    "sign": "(x, /)",
    "signbit": "(x, /)",
    "sin": "(x, /)",
    "sinh": "(x, /)",
    "sort": "(x, /, *, axis=-1, descending=False, stable=True)",
    "sqrt": "(x, /)",
    "square": "(x, /)",
    "squeeze": "(x, /, axis)",
    "stack": "(arrays, /, *, axis=0)",
    "std": "(x, /, *, axis=None, correction=0.0, keepdims=False)",
    "subtract": "(x1, x2, /)",
    "sum": "(x, /, *, axis=None, dtype=None, keepdims=False)",
    "take": "(x, indices, /, *, axis=None)",
    "take_along_axis": "(x, indices, /, *, axis=-1)",
    "tan": "(x, /)",
    "tanh": "(x, /)",
    "tensordot": "(x1, x2, /, *, axes=2)",
    "tile": "(x, repetitions, /)",
    "tril": "(x, /, *, k=0)",
    "triu": "(x, /, *, k=0)",
    "trunc": "(x, /)",
    "unique_all": "(x, /)",
    "unique_counts": "(x, /)",
    "unique_inverse": "(x, /)",
    "unique_values": "(x, /)",
    "unstack": "(x, /, *, axis=0)",
    "var": "(x, /, *, axis=None, correction=0.0, keepdims=False)",
    "vecdot": "(x1, x2, /, *, axis=-1)",
    "where": "(condition, x1, x2, /)",
    "zeros": "(shape, *, dtype=None, device=None)",
    "zeros_like": "(x, /, *, dtype=None, device=None)",
}

LINALG = {
    "cholesky": "(x, /, *, upper=False)",
    "cross": "(x1, x2, /, *, axis=-1)",
    "det": "(x, /)",
    "diagonal": "(x, /, *, offset=0)",
    "eigh": "(x, /)",
    "eigvalsh": "(x, /)",
    "inv": "(x, /)",
    "matmul": "(x1, x2, /)",
    "matrix_norm": "(x, /, *, keepdims=False, ord='fro')",
    "matrix_power": "(x, n, /)",
    "matrix_rank": "(x, /, *, rtol=None)",
    "matrix_transpose": "(x, /)",
    "outer": "(x1, x2, /)",
    "pinv": "(x, /, *, rtol=None)",
    "qr": "(x, /, *, mode='reduced')",
    "slogdet": "(x, /)",
    "solve": "(x1, x2, /)",
    "svd": "(x, /, *, full_matrices=True)",
    "svdvals": "(x, /)",
    "tensordot": "(x1, x2, /, *, axes=2)",
    "trace": "(x, /, *, offset=0, dtype=None)",
    "vecdot": "(x1, x2, /, *, axis=-1)",
    "vector_norm": "(x, /, *, axis=None, keepdims=False, ord=2)",
}

FFT = {
    **dict.fromkeys(
        ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"),
        "(x, /, *, n=None, axis=-1, norm='backward')",
    ),
    **dict.fromkeys(
        ("fftn", "ifftn", "rfftn", "irfftn"),
        "(x, /, *, s=None, axes=None, norm='backward')",
    ),
    "fftfreq": "(n, /, *, d=1.0, dtype=None, device=None)",
    "rfftfreq": "(n, /, *, d=1.0, dtype=None, device=None)",
    "fftshift": "(x, /, *, axes=None)",
    "ifftshift": "(x, /, *, axes=None)",
}

NAMESPACES = [(gf, STANDARD), (gf.linalg, LINALG), (gf.fft, FFT)]

ELEMENTWISE_1 = [
    n
    for n, text in STANDARD.items()
    if text == "(x, /)" and n not in ("matrix_transpose", "nonzero") and "unique" not in n
]
ELEMENTWISE_2 = [n for n, text in STANDARD.items() if text == "(x1, x2, /)" and n != "matmul"]


@pytest.mark.parametrize(
    ("namespace", "name", "text"),
    [
        pytest.param(namespace, name, text, id=f"{namespace.__name__}.{name}")
        for namespace, functions in NAMESPACES
        for name, text in functions.items()
    ],
)
def test_signature(namespace, name, text):
    function = getattr(namespace, name)
    assert name in namespace.__all__
    ours = inspect.signature(function).parameters
    for parameter in signature(text).parameters.values():
        same = ours.get(parameter.name) or positional(ours, parameter, text)
        assert same is not None, f"{name} has no parameter {parameter.name}"
        if parameter.default is not parameter.empty:
            assert same.default == parameter.default
        if parameter.kind is parameter.KEYWORD_ONLY:
            assert same.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        elif parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            assert same.kind is parameter.POSITIONAL_OR_KEYWORD
    required = [
        p
        for p in ours.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    wanted = [p for p in signature(text).parameters.values() if p.default is p.empty]
    assert len(required) <= len(wanted), f"{name} asks for more than the standard"


def signature(text: str) -> inspect.Signature:
    """Return the signature that a text stands for."""
    names: dict[str, object] = {}
    exec(f"def f{text}: pass", names)
    return inspect.signature(names["f"])


def positional(ours, parameter, text):
    """Find a positional-only parameter by its place: its name is nobody's business."""
    if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
        return None
    index = list(signature(text).parameters).index(parameter.name)
    same = list(ours.values())[index]
    return same if same.kind is parameter.kind else None


def test_constants_and_dtypes():
    assert gf.newaxis is None
    np.testing.assert_equal([gf.pi, gf.e, gf.inf, gf.nan], [np.pi, np.e, np.inf, np.nan])
    for name in ("bool", "int8", "uint64", "float32", "float64", "complex64", "complex128"):
        assert getattr(gf, name) == np.dtype(name)


def test_namespace():
    x = gf.asarray([1.0, 2.0])
    assert x.__array_namespace__() is gf
    assert x.__array_namespace__(api_version="2024.12") is gf
    with pytest.raises(gf.ArgumentError, match=r"no version '1999\.12'"):
        x.__array_namespace__(api_version="1999.12")


def test_code_written_for_the_standard_builds_graphs():
    def standardise(x):
        xp = x.__array_namespace__()
        centred = x - xp.mean(x, axis=0, keepdims=True)
        return centred / xp.std(x, axis=0, keepdims=True)

    data = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3), name="x")
        y = standardise(x)
    with gf.Session(g) as session:
        found = session.run(y, {x: data}, host=True)
    np.testing.assert_allclose(found, standardise(data), rtol=1e-5, atol=1e-6)


NUMPY = {
    "acos": "arccos",
    "acosh": "arccosh",
    "asin": "arcsin",
    "asinh": "arcsinh",
    "atan": "arctan",
    "atan2": "arctan2",
    "atanh": "arctanh",
    "bitwise_invert": "invert",
    "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift",
    "pow": "power",
}


@pytest.mark.parametrize("name", ELEMENTWISE_1 + ELEMENTWISE_2)
def test_numpy_calls_make_nodes(name):
    """`np.exp(t)` is `gf.exp(t)`."""
    function = getattr(np, NUMPY.get(name, name))
    kind = gf.bool if name.startswith("logical") else gf.int32 if "bitwise" in name else gf.float32
    with gf.Graph():
        x = gf.placeholder(("n",), kind, name="x")
        count = 1 if name in ELEMENTWISE_1 else 2
        assert isinstance(function(*[x] * count), gf.Tensor)
