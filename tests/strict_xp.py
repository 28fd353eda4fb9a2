"""NumPy with CuPy's eyes: an array module that has what CuPy has, and refuses the rest.

`strict` stands in for `xp` in an op's `eval`. It offers CuPy's names with CuPy's keywords, and its
arrays refuse what CuPy's refuse: NumPy functions called behind the module's back, and mixing with
plain NumPy arrays. So an `eval` that would fail on a GPU fails in tests on any machine. Written
from CuPy 14.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

CREATION = set(
    "arange array asanyarray asarray ascontiguousarray asfortranarray copy diag diagflat empty "
    "empty_like eye from_dlpack frombuffer full full_like identity indices linspace logspace "
    "meshgrid ones ones_like tri tril triu vander zeros zeros_like tril_indices triu_indices "
    "diag_indices".split()
)
UFUNCS = set(
    "abs absolute acos acosh add arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh "
    "atan atan2 atanh bitwise_and bitwise_count bitwise_invert bitwise_left_shift bitwise_not "
    "bitwise_or bitwise_right_shift bitwise_xor cbrt ceil conj conjugate copysign cos cosh deg2rad "
    "degrees divide divmod equal exp exp2 expm1 fabs float_power floor floor_divide fmax fmin fmod "
    "frexp gcd greater greater_equal heaviside hypot invert isfinite isinf isnan lcm ldexp "
    "left_shift less less_equal log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not "
    "logical_or logical_xor matmul maximum minimum mod modf multiply negative nextafter not_equal "
    "positive pow power rad2deg radians reciprocal remainder right_shift rint sign signbit sin "
    "sinh sqrt square subtract tan tanh true_divide trunc".split()
)
FUNCTIONS = set(
    "all allclose amax amin angle any append apply_along_axis argmax argmin argpartition argsort "
    "argwhere around array_equal array_split astype atleast_1d atleast_2d atleast_3d average "
    "bincount broadcast_arrays broadcast_shapes broadcast_to can_cast choose clip column_stack "
    "compress concat concatenate convolve copyto correlate count_nonzero cov cross cumprod cumsum "
    "delete diagonal diff digitize dot dsplit dstack ediff1d einsum "
    "expand_dims extract fill_diagonal fix flatnonzero flip fliplr flipud gradient hsplit hstack "
    "i0 imag inner interp isclose iscomplexobj isdtype isin isneginf isposinf isrealobj isscalar "
    "issubdtype ix_ kron lexsort matrix_transpose max may_share_memory mean median min moveaxis "
    "nan_to_num nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmedian nanmin nanprod "
    "nanstd nansum nanvar ndim nonzero outer packbits pad partition percentile permute_dims place "
    "prod promote_types ptp put put_along_axis putmask quantile ravel ravel_multi_index real "
    "repeat require reshape resize result_type roll rollaxis rot90 round searchsorted select "
    "setdiff1d shape shares_memory sinc size sort split squeeze stack std sum swapaxes take "
    "take_along_axis tensordot tile trace transpose trapezoid trim_zeros union1d unique unique_all "
    "unique_counts unique_inverse unique_values unpackbits unravel_index unwrap var vdot "
    "vsplit vstack where".split()
)
LINALG = set(
    "cholesky cond cross det eig eigh eigvals eigvalsh inv lstsq matmul matrix_power matrix_rank "
    "matrix_transpose norm pinv qr slogdet solve svd tensorinv tensorsolve".split()
)
FFT = set(
    "fft fft2 fftfreq fftn fftshift hfft ifft ifft2 ifftn ifftshift ihfft irfft irfft2 irfftn rfft "
    "rfft2 rfftfreq rfftn".split()
)
PLAIN = set(
    "bool bool_ complex128 complex64 complexfloating dtype e euler_gamma finfo float16 float32 "
    "float64 floating generic iinfo inexact inf int16 int32 int64 int8 int_ integer intp nan "
    "newaxis number pi signedinteger uint16 uint32 uint64 uint8 unsignedinteger".split()
)
"""Names that are no functions of arrays."""

AT = {"add", "subtract", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor"}
REDUCE = {"add", "multiply"}

# Where CuPy takes fewer keywords than NumPy: those it takes.
KEYWORDS = {
    **dict.fromkeys(("sum", "prod", "mean"), "axis dtype out keepdims"),
    **dict.fromkeys(("max", "min", "amax", "amin", "any", "all"), "axis out keepdims"),
    **dict.fromkeys(("argmax", "argmin"), "axis dtype out keepdims"),
    **dict.fromkeys(("std", "var"), "axis dtype out ddof keepdims"),
    **dict.fromkeys(("cumsum", "cumprod"), "axis dtype out"),
    **dict.fromkeys(("sort", "argsort"), "axis kind"),
    "median": "axis out overwrite_input keepdims",
    "take": "axis out",
    "clip": "a_min a_max out",
    "count_nonzero": "axis",
    "isin": "assume_unique invert",
    "broadcast_to": "",
    "tri": "M k dtype",
    "full": "dtype order",
    "zeros": "dtype order",
    "ones": "dtype order",
    "empty": "dtype order",
    "eye": "M k dtype order",
    "arange": "stop step dtype",
    "asarray": "dtype order copy",
    "linalg.svd": "full_matrices compute_uv",
    "linalg.eigh": "UPLO",
    "linalg.cholesky": "",
    "linalg.qr": "mode",
}
UFUNC_KEYWORDS = "out dtype casting order"


class StrictArray(np.ndarray):
    """An array that takes part only in what goes through `strict`, or in its own operators."""

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        raise AssertionError(f"np.{func.__name__} is called on a GPU array: use xp.{func.__name__}")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__":
            raise AssertionError(f"np.{ufunc.__name__}.{method} is called on a GPU array")
        return _called(ufunc, inputs, kwargs)

    def __getitem__(self, key: Any) -> Any:
        return _strict(_plain(self)[_unwrapped(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        _plain(self)[_unwrapped(key)] = _unwrapped(value)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return dict(_plain(self).__array_interface__)

    def get(self) -> np.ndarray[Any, Any]:
        """Return a copy at home."""
        return np.array(_plain(self))


class _Memory(NamedTuple):
    """The memory of an array."""

    ptr: int


class _Device(NamedTuple):
    """On which GPU an array lies."""

    id: int


LENT: weakref.WeakValueDictionary[int, np.ndarray[Any, Any]] = weakref.WeakValueDictionary()
"""By address, the arrays that have parts whose address was asked for."""


def _memory(self: StrictArray) -> _Memory:
    whole: np.ndarray[Any, Any] = self
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    LENT[whole.__array_interface__["data"][0]] = whole
    return _Memory(self.__array_interface__["data"][0])


StrictArray.data = property(_memory)
StrictArray.device = property(lambda self: _Device(0))


def _method(name: str) -> Callable[..., Any]:
    def method(self: StrictArray, *args: Any, **kwargs: Any) -> Any:
        _check_keywords(name, kwargs)
        return _called(getattr(np, name), (self, *args), kwargs)

    return method


for _name in ("sum", "prod", "mean", "max", "min", "any", "all", "argmax", "argmin", "std", "var"):
    setattr(StrictArray, _name, _method(_name))


def _refused(name: str) -> property:
    def get(self: StrictArray) -> Any:
        raise AttributeError(f"a CuPy array has no {name}")

    return property(get)


for _name in ("ctypes", "getfield", "resize", "setfield", "setflags", "to_device"):
    setattr(StrictArray, _name, _refused(_name))


def strict_array(array: Any) -> StrictArray:
    """Return an array as if it lay on the GPU; it shares memory with the given one."""
    return np.asarray(array).view(StrictArray)


def plain_array(array: StrictArray) -> np.ndarray[Any, Any]:
    """Return a strict array as a NumPy array."""
    assert isinstance(array, StrictArray), f"{type(array).__name__} is no GPU array"
    return _plain(array)


def _plain(array: StrictArray) -> np.ndarray[Any, Any]:
    return array.view(np.ndarray)


def _strict(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return strict_array(value)
    if isinstance(value, tuple | list):
        made = [_strict(item) for item in value]
        if hasattr(value, "_fields"):
            return type(value)(*made)
        return type(value)(made)
    return value


def _unwrapped(value: Any) -> Any:
    if isinstance(value, StrictArray):
        return _plain(value)
    if isinstance(value, np.ndarray):
        raise AssertionError("a NumPy array meets a GPU array: make it with xp")
    if isinstance(value, tuple | list):
        return type(value)(_unwrapped(item) for item in value)
    return value


def _called(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    plain = {name: _unwrapped(value) for name, value in kwargs.items()}
    return _strict(function(*[_unwrapped(arg) for arg in args], **plain))


def _check_keywords(name: str, kwargs: dict[str, Any]) -> None:
    allowed = UFUNC_KEYWORDS if name in UFUNCS else KEYWORDS.get(name)
    if allowed is not None:
        unknown = kwargs.keys() - allowed.split()
        assert not unknown, f"cupy.{name} has no keyword {', '.join(sorted(unknown))}"


class _Function:
    """A function of the module, with the parts of a ufunc that CuPy has."""

    def __init__(self, name: str, function: Any) -> None:
        self._name, self._function = name, function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        _check_keywords(self._name, kwargs)
        if self._name in ("array", "asarray"):  # how NumPy arrays come to the GPU
            args = tuple(a.view(StrictArray) if type(a) is np.ndarray else a for a in args)
        if self._name == "linalg.solve":
            one, other = [arg.shape[:-1] for arg in args]
            assert one == other, "cupy.linalg.solve does not broadcast"
        return _called(self._function, args, kwargs)

    def __getattr__(self, attribute: str) -> Callable[..., Any]:
        known = {"at": AT, "reduce": REDUCE, "accumulate": REDUCE, "outer": UFUNCS}
        if self._name not in known.get(attribute, ()):
            raise AttributeError(f"cupy.{self._name} has no {attribute}")
        method = getattr(self._function, attribute)
        return lambda *args, **kwargs: _called(method, args, kwargs)


class _Missing(types.SimpleNamespace):
    """A namespace that says whose names it has."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"cupy has no {name}, or tests/strict_xp.py does not know it")


def _namespace(prefix: str, source: Any, functions: set[str], **others: Any) -> _Missing:
    made = {name: _Function(prefix + name, getattr(source, name)) for name in functions}
    return _Missing(**made, **others)


strict = _namespace(
    "",
    np,
    CREATION | UFUNCS | FUNCTIONS,
    linalg=_namespace("linalg.", np.linalg, LINALG),
    fft=_namespace("fft.", np.fft, FFT),
    lib=types.SimpleNamespace(
        stride_tricks=_namespace(
            "lib.stride_tricks.", np.lib.stride_tricks, {"sliding_window_view"}
        )
    ),
    ndarray=StrictArray,
    **{name: getattr(np, name) for name in PLAIN},
)
"""The array module."""
