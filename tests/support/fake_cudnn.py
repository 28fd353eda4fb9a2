"""NVIDIA's package for cuDNN without a GPU: it takes what the executor says, and computes it.

Its names and arguments are those of `cudnn.pygraph` of nvidia-cudnn-frontend 1.9 and later, of
attention those of 1.15 and later.
"""

from __future__ import annotations

import ctypes
import itertools
import uuid
import zlib
from collections.abc import Callable, Sequence
from math import prod
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

_DTYPES = {
    "HALF": np.dtype(np.float16),
    "BFLOAT16": np.dtype(ml_dtypes.bfloat16),
    "FLOAT": np.dtype(np.float32),
    "DOUBLE": np.dtype(np.float64),
}
_NOTES = (
    *("TENSOR_CORE", "DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION", "FFT"),
    *("NONDETERMINISTIC", "WINOGRAD", "WINOGRAD_TILE_4x4", "WINOGRAD_TILE_6x6"),
    *("WINOGRAD_TILE_13x13", "STRICT_NAN_PROP"),
)


class cudnnGraphNotSupportedError(RuntimeError):
    pass


class FakeCudnn(SimpleNamespace):
    """The module.

    Attributes:
        graphs: All graphs that were planned.
        compiled: The operations of each graph that was compiled, in order.
        kept: Of each plan that was written what was written, and its graph.
        runs: Of each that was run its operations, in order.
        refused: Says of a graph's operations whether there is no way to compute them.
        workspace: How much memory each takes; gradients of attention take more.
        engine: What computes graphs, where it is not the library.
        version: Of the library; where it is 0, there is none.
        perform: What does something on a stream, or records it for later.
    """

    def __init__(self, perform: Callable[[Callable[[], None], int], None]) -> None:
        super().__init__()
        self.__version__ = "1.32.0"
        self.graphs: list[Graph] = []
        self.compiled: list[list[str]] = []
        self.kept: dict[bytes, Graph] = {}
        self.runs: list[list[str]] = []
        self.refused: Callable[[list[str]], bool] = lambda names: False
        self.workspace = 1000
        self.engine: str | None = None
        self.version = 91500
        self.perform = perform
        self.data_type = SimpleNamespace(**{name: name for name in _DTYPES})
        self.diagonal_alignment = SimpleNamespace(TOP_LEFT="TOP_LEFT", BOTTOM_RIGHT="BOTTOM_RIGHT")
        self.heur_mode = SimpleNamespace(A="A", B="B", FALLBACK="FALLBACK")
        self.numerical_note = SimpleNamespace(**{name: name for name in _NOTES})
        self.cudnnGraphNotSupportedError = cudnnGraphNotSupportedError

    def backend_version(self) -> int:
        if not self.version:
            raise RuntimeError("Unable to find libcudnn.so.9\nsearched everywhere")
        return self.version

    def create_handle(self) -> Any:
        return SimpleNamespace(stream=0)

    def set_stream(self, *, handle: Any, stream: int) -> None:
        handle.stream = stream

    def pygraph(self, **given: Any) -> Graph:
        return Graph(self, **given)


class Value:
    """A tensor of a graph."""

    def __init__(self, name: str, dim: Sequence[int] = (), compute: Any = None) -> None:
        self.name = name
        self.dim, self.stride = list(dim), list[int]()
        self.kind = ""
        self.uid = -1
        self.compute = compute
        self.is_output = False

    def set_output(self, value: bool) -> Value:
        self.is_output = value
        return self

    def set_data_type(self, kind: str) -> Value:
        self.kind = kind
        return self

    def set_uid(self, uid: int) -> Value:
        self.uid = uid
        return self

    def set_dim(self, dim: list[int]) -> Value:
        assert not self.dim or self.dim == dim, "not what the operation makes"
        self.dim = dim
        return self

    def set_stride(self, stride: list[int]) -> Value:
        self.stride = stride
        return self


class Graph:
    """A graph of a convolution and of what is done to its elements, or of attention."""

    def __init__(
        self,
        library: FakeCudnn,
        *,
        io_data_type: str = "FLOAT",
        intermediate_data_type: str = "FLOAT",
        compute_data_type: str = "FLOAT",
        handle: Any,
    ) -> None:
        assert intermediate_data_type == compute_data_type
        assert compute_data_type == ("DOUBLE" if io_data_type == "DOUBLE" else "FLOAT")
        self._library = library
        self._handle = handle
        self._sums = _DTYPES[compute_data_type]
        self._values: list[Value] = []
        self.names: list[str] = []
        self.barred: list[str] = []
        self.limit = 0
        self._steps: list[str] = []

    @property
    def lying(self) -> list[tuple[list[int], list[int]]]:
        """The sizes and strides of all that lies in memory."""
        return [(value.dim, value.stride) for value in self._values if value.uid != -1]

    # Describing.

    def tensor(
        self, *, name: str, dim: list[int], stride: list[int], data_type: str, uid: int
    ) -> Value:
        assert len(dim) == len(stride) in (4, 5), "two spatial dims or three; batches and heads"
        assert all(size > 0 for size in dim)
        assert all(type(number) is int for number in (*dim, *stride, uid))
        made = self._noted(Value(name, dim))
        made.set_stride(stride).set_data_type(data_type).set_uid(uid)
        return made

    def conv_fprop(self, *, image: Value, weight: Value, **window: list[int]) -> Value:
        assert image.dim[1] % weight.dim[1] == 0 == weight.dim[0] % (image.dim[1] // weight.dim[1])
        steps = zip(image.dim[2:], weight.dim[2:], *_window(window, image), strict=True)
        sizes = [
            (size + pre + post - (dilation * (taps - 1) + 1)) // stride + 1
            for size, taps, pre, post, stride, dilation in steps
        ]
        return self._made(
            "conv_fprop",
            [image.dim[0], weight.dim[0], *sizes],
            lambda at, out: _tied(at(image), at(weight), out, window, "response"),
        )

    def conv_dgrad(self, *, loss: Value, filter: Value, **window: list[int]) -> Value:
        _window(window, loss)
        return self._made(
            "conv_dgrad", [], lambda at, out: _tied(out, at(filter), at(loss), window, "image")
        )

    def conv_wgrad(self, *, image: Value, loss: Value, **window: list[int]) -> Value:
        _window(window, image)
        return self._made(
            "conv_wgrad", [], lambda at, out: _tied(at(image), out, at(loss), window, "filter")
        )

    def add(self, *, a: Value, b: Value) -> Value:
        assert np.broadcast_shapes(a.dim, b.dim) == tuple(a.dim)
        return self._made("add", a.dim, lambda at, out: np.add(at(a), at(b), out=out))

    def sdpa(
        self, *, q: Value, k: Value, v: Value, generate_stats: bool, **form: Any
    ) -> list[Value]:
        assert generate_stats is True
        form = _attention(q, k, v, **form)
        out = self._made(
            "sdpa", [*q.dim[:3], v.dim[3]], lambda at, out: _attend(at(q), at(k), at(v), form, out)
        )
        stats = self._noted(
            Value(
                "stats",
                [*q.dim[:3], 1],
                lambda at, out: _attend(at(q), at(k), at(v), form, None, out),
            )
        )
        return [out, stats]

    def sdpa_backward(
        self,
        *,
        q: Value,
        k: Value,
        v: Value,
        o: Value,
        dO: Value,
        stats: Value,
        use_deterministic_algorithm: bool,
        **form: Any,
    ) -> list[Value]:
        assert use_deterministic_algorithm is True
        form = _attention(q, k, v, **form)
        assert o.dim == dO.dim == [*q.dim[:3], v.dim[3]]
        assert stats.dim == [*q.dim[:3], 1]
        assert stats.kind == "FLOAT"
        if q.dim[2] == k.dim[2] == 1:
            raise cudnnGraphNotSupportedError("s_q = s_kv = 1 is not supported.")
        packed = [prod(stats.dim[axis:]) for axis in (1, 2, 3, 4)]
        if self._library.version < 92600 and stats.stride != packed:
            raise cudnnGraphNotSupportedError("Stats must be a packed tensor below 9.26.0.")

        def gradient(number: int) -> Any:
            def compute(at: Any, out: Any) -> None:
                given = tuple([at(value) for value in (q, k, v, o, dO, stats)])
                out[...] = _attend_back(given, form)[number]

            return compute

        self.names.append("sdpa_backward")
        return [
            self._noted(Value(name, x.dim, gradient(number)))
            for number, (name, x) in enumerate([("dQ", q), ("dK", k), ("dV", v)])
        ]

    # Planning.

    def validate(self) -> None:
        made = [value for value in self._values if value.compute is not None]
        assert self._outputs == made[-len(self._outputs) :], "the last ones are the outputs"
        if self.names[0].startswith("sdpa"):
            assert all(value.stride[-1] == 1 for value in self._values)
        held = [value for value in self._values if value.uid != -1]
        assert sorted(value.uid for value in held) == [*range(1, len(held) + 1)]
        assert all(len(v.dim) == len(v.stride) for v in held)
        self._library.graphs.append(self)
        self._next("validate")

    def build_operation_graph(self) -> None:
        self._next("build_operation_graph")

    def create_execution_plans(self, modes: list[str]) -> None:
        assert modes == ["A", "FALLBACK"]
        self._next("create_execution_plans")

    def deselect_numeric_notes(self, notes: list[str]) -> None:
        assert self._steps[-1] == "create_execution_plans", "it would filter nothing"
        self.barred = notes

    def deselect_workspace_greater_than(self, limit: int) -> None:
        self.limit = limit

    def check_support(self) -> None:
        if self._library.refused(self.names) or self.workspace > self.limit:
            raise cudnnGraphNotSupportedError("no engine\nand much more")
        self._next("check_support")

    def build_plans(self) -> None:
        self._library.compiled.append(self.names)
        self._next("build_plans")

    def get_workspace_size(self) -> int:
        self._next("get_workspace_size")
        return self.workspace

    def key(self) -> int:
        assert self._steps[-1] == "build_operation_graph"
        return zlib.crc32(repr((self.names, self.lying)).encode())

    def serialize(self) -> list[int]:
        assert self._steps[-1] == "get_workspace_size"
        written = uuid.uuid4().bytes
        self._library.kept[written] = self
        return [*written]

    def deserialize(self, data: list[int]) -> None:
        assert not self._values
        if bytes(data) not in self._library.kept:
            raise RuntimeError("parse error")
        planned = self._library.kept[bytes(data)]
        self.names, self._values, self._sums = planned.names, planned._values, planned._sums
        self._steps = planned._steps[:-1]

    @property
    def workspace(self) -> int:
        """The memory that it takes; gradients of attention keep those of the scores there."""
        if self.names != ["sdpa_backward"]:
            return self._library.workspace
        (batch, heads, queries, _), (_, _, keys, _) = [value.dim for value in self._values[:2]]
        tiles = -(-queries // 64) * -(-keys // 64)
        return self._library.workspace + 2 * batch * heads * tiles * 64 * 64

    @property
    def selected_engine(self) -> str | None:
        return self._library.engine

    # Running.

    def execute(self, at: dict[int, int], workspace: int, handle: Any) -> None:
        assert self._steps[-1] == "get_workspace_size"
        assert handle is self._handle
        held = [value for value in self._values if value.uid != -1]
        assert at.keys() >= {value.uid for value in held}
        assert all(type(address) is int and address % 16 == 0 for address in at.values())
        self._library.perform(lambda: self._run(at, workspace), handle.stream)

    def _run(self, at: dict[int, int], workspace: int) -> None:
        ctypes.memset(workspace, 0xEE, self.workspace)
        known: dict[Value, Any] = {}
        for value in self._values:
            if value.compute is None:
                known[value] = _array(value, at[value.uid]).astype(self._sums)
                continue
            known[value] = np.zeros(value.dim, self._sums)
            value.compute(known.__getitem__, known[value])
        for value in self._outputs:
            _array(value, at[value.uid])[...] = known[value]
        self._library.runs.append(self.names)

    @property
    def _outputs(self) -> list[Value]:
        return [value for value in self._values if value.is_output]

    def _made(self, name: str, dim: Sequence[int], compute: Any) -> Value:
        self.names.append(name)
        return self._noted(Value(name, dim, compute))

    def _noted(self, value: Value) -> Value:
        self._values.append(value)
        return value

    def _next(self, step: str) -> None:
        order = ["validate", "build_operation_graph", "create_execution_plans", "check_support"]
        order += ["build_plans", "get_workspace_size"]
        assert order[len(self._steps)] == step
        self._steps.append(step)


def _window(window: dict[str, list[int]], image: Value) -> list[list[int]]:
    names = ["pre_padding", "post_padding", "stride", "dilation"]
    assert [*window] == names
    found = [window[name] for name in names]
    assert all(len(numbers) == len(image.dim) - 2 for numbers in found)
    assert all(number >= 0 for number in found[0] + found[1])
    assert all(number >= 1 for number in found[2] + found[3])
    return found


def _attention(
    q: Value,
    k: Value,
    v: Value,
    *,
    attn_scale: float,
    diagonal_alignment: str = "TOP_LEFT",
    diagonal_band_right_bound: int | None = None,
) -> dict[str, Any]:
    """Check what attention is told; return the factor of the scores, and whether it is causal."""
    assert type(attn_scale) is float
    assert diagonal_alignment == "TOP_LEFT"
    assert diagonal_band_right_bound in (None, 0)
    (batch, heads, _, width), (_, _, keys, _), (*_, value_width) = q.dim, k.dim, v.dim
    assert (k.dim[0], k.dim[3], v.dim[0], v.dim[2]) == (batch, width, batch, keys)
    assert q.kind == k.kind == v.kind in ("HALF", "BFLOAT16")
    for value in (q, k, v):
        assert heads % value.dim[1] == 0
        assert all(step % 8 == 0 for step in value.stride[:3]), "copied by 16 bytes"
    if width % 8 or value_width % 8:
        raise cudnnGraphNotSupportedError("hidden_dim should be multiple of 8")
    return {"scale": np.float32(attn_scale), "causal": diagonal_band_right_bound == 0}


def _attend(q: Any, k: Any, v: Any, form: dict[str, Any], out: Any, stats: Any = None) -> None:
    """Write the result of attention, or the logs of the sums of exp(score)."""
    scores, v = _scores(q, k, form), _spread(v, q.shape[1])
    top = scores.max(axis=-1, keepdims=True)
    powers = np.exp(scores - top)
    total = powers.sum(axis=-1, keepdims=True)
    if stats is None:
        out[...] = (powers / total) @ v
    else:
        stats[...] = top + np.log(total)


def _attend_back(given: tuple[Any, ...], form: dict[str, Any]) -> tuple[Any, Any, Any]:
    q, k, v, out, d_out, stats = given
    weights = np.exp(_scores(q, k, form) - stats)
    delta = (out * d_out).sum(axis=-1, keepdims=True)
    d_weights = d_out @ _spread(v, q.shape[1]).swapaxes(-1, -2)
    d_scores = weights * (d_weights - delta) * form["scale"]
    return (
        d_scores @ _spread(k, q.shape[1]),
        _gathered(d_scores.swapaxes(-1, -2) @ q, k.shape[1]),
        _gathered(weights.swapaxes(-1, -2) @ d_out, v.shape[1]),
    )


def _scores(q: Any, k: Any, form: dict[str, Any]) -> Any:
    scores = q @ _spread(k, q.shape[1]).swapaxes(-1, -2) * form["scale"]
    if form["causal"]:
        scores[..., ~np.tri(*scores.shape[-2:], dtype=np.bool_)] = -np.inf
    return scores


def _spread(x: Any, heads: int) -> Any:
    """Return keys or values with as many heads as queries have: neighbours share one."""
    return np.repeat(x, heads // x.shape[1], axis=1)


def _gathered(x: Any, heads: int) -> Any:
    """Return the sums of gradients of what neighbouring heads share."""
    return x.reshape(x.shape[0], heads, -1, *x.shape[2:]).sum(axis=2)


def _array(value: Value, address: int) -> Any:
    """Return the elements of a tensor in memory."""
    dtype = _DTYPES[value.kind]
    pairs = zip(value.dim, value.stride, strict=True)
    count = 1 + sum([(size - 1) * stride for size, stride in pairs])
    room = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    strides = [stride * dtype.itemsize for stride in value.stride]
    return np.ndarray(value.dim, dtype, room, strides=strides)


def _tied(image: Any, kernel: Any, response: Any, window: dict[str, list[int]], made: str) -> None:
    """Add up products of two of three arrays to the third one: cuDNN's three forms."""
    groups = image.shape[1] // kernel.shape[1]
    rank = image.ndim - 2
    each, outputs = kernel.shape[1], kernel.shape[0] // groups
    for tap in itertools.product(*map(range, kernel.shape[2:])):
        positions, seen = [], []
        for axis in range(rank):
            at = np.arange(response.shape[2 + axis]) * window["stride"][axis]
            at += tap[axis] * window["dilation"][axis] - window["pre_padding"][axis]
            inside = (at >= 0) & (at < image.shape[2 + axis])
            positions.append(np.flatnonzero(inside))
            seen.append(at[inside])
        for group in range(groups):
            images, channels = np.arange(image.shape[0]), np.arange(each) + group * each
            rows = np.arange(outputs) + group * outputs
            some, back = np.ix_(images, channels, *seen), np.ix_(images, rows, *positions)
            weights = kernel[(slice(rows[0], rows[-1] + 1), slice(None), *tap)]
            if made == "response":
                response[back] += np.einsum("oc,nc...->no...", weights, image[some])
            elif made == "image":
                image[some] += np.einsum("oc,no...->nc...", weights, response[back])
            else:
                x = image[some].reshape(image.shape[0], each, -1)
                y = response[back].reshape(image.shape[0], outputs, -1)
                weights += np.einsum("nop,ncp->oc", y, x)
