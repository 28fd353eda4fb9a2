"""The GPU ladder: what the CuPy executor needs of a GPU, one small thing after the other.

    python -m tests.gpu_ladder                   # names the rungs, the lowest first
    python -m tests.gpu_ladder products          # climbs one of them, in this process
    python -m tests.gpu_ladder --look products   # says what to look at where it fails

Each rung needs the ones below it. An error from which CUDA does not recover poisons its process
only, so `.ci/gpu` gives each rung one of its own, and stops at the first that fails.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

import graphfw as gf


class Rung(NamedTuple):
    """One thing that has to work.

    Attributes:
        climb: Raises an error where it does not work.
        what: What is tried.
        look: What to look at where it fails.
        environment: What it is tried with.
    """

    climb: Callable[[], None]
    what: str
    look: str
    environment: Mapping[str, str] = {}


def context() -> None:
    """Copy arrays to the GPU and home."""
    from graphfw.runtime.executor import find_executor

    executor = find_executor("cupy")
    for count in (0, 1, 7, 1 << 20):
        for dtype in (np.uint8, np.float32, np.int64):
            sent = (np.arange(count) % 251).astype(dtype)
            np.testing.assert_array_equal(executor.to_host(executor.from_host(sent)), sent)


def elementwise() -> None:
    """Launch a kernel in which each thread has elements of its own."""
    with gf.Graph() as g:
        x = gf.placeholder(("n", 7), name="x")
        y = gf.maximum(x * 2.0 + 1.0, 0.25)
    with gf.Session(g, executor="cupy") as session:
        for n in (1, 5, 1001, 0):
            array = _normal(n, 7)
            wanted = np.maximum(array * np.float32(2) + np.float32(1), np.float32(0.25))
            np.testing.assert_array_equal(session.run(y, {x: array}, host=True), wanted)


def reduction() -> None:
    """Add up rows: by a warp, by a block, and by several blocks for a row."""
    with gf.Graph() as g:
        x = gf.placeholder(("rows", "columns"), name="x")
        fetches = [gf.sum(x, axis=1), gf.max(x, axis=1), gf.sum(x, axis=0)]
    for shape in ((5, 3), (300, 33), (3, 1025), (1, 70_001)):
        _agree(g, fetches, {x: _normal(*shape)})


def products() -> None:
    """Multiply by cuBLASLt, alone and with all that it may do besides."""
    for dtype, rtol in ((gf.float32, 1e-3), (gf.bfloat16, 6e-2)):
        with gf.Graph() as g:
            x = gf.placeholder(("n", 24), dtype, name="x")
            w = gf.placeholder((24, 16), dtype, name="w")
            b = gf.placeholder((16,), dtype, name="b")
            r = gf.placeholder(("n", 16), dtype, name="r")
        made = {
            "the product": lambda x, w, b, r: x @ w,
            "a bias": lambda x, w, b, r: x @ w + b,
            "a residual": lambda x, w, b, r: x @ w + r,
            "GELU": lambda x, w, b, r: gf.gelu(x @ w, approximate="tanh"),
            "a bias and GELU": lambda x, w, b, r: gf.gelu(x @ w + b, approximate="tanh"),
        }
        with g:
            fetches = {name: make(x, w, b, r) for name, make in made.items()}
        arrays = {t: _normal(*[9 if d == x.shape[0] else int(d) for d in t.shape]) for t in (x, r)}
        arrays |= {w: _normal(24, 16), b: _normal(16)}
        feeds = {t: a.astype(dtype.dtype) for t, a in arrays.items()}
        for name, fetch in fetches.items():
            with _named(f"{name}, in {dtype.name}"):
                _agree(g, [fetch], feeds, rtol, matmul_precision="high")
    with _named("what GELU keeps, its gradient, and the bias' sum"):
        g, train, feeds = _perceptron(layers=2)
        _train(g, train, feeds, 2, 2e-2, precision="mixed-bf16")


def check() -> None:
    """See that an index out of range is an error, and that nothing has changed then."""
    from graphfw.errors import ExecutionError

    with gf.Graph() as g:
        words = gf.placeholder(("n",), gf.int64, name="words")
        table = gf.Variable(_normal(11, 8), name="table")
        loss = gf.mean(gf.square(gf.take(table, words, axis=0)))
        train = gf.optim.SGD(0.1).minimize(loss)
    good = np.array([0, 10, 3, 3])
    with gf.Session(g, executor="cupy") as session, gf.Session(g) as other:
        for _ in range(4):
            wanted, _ = other.run([loss, train], {words: good})
            found, _ = session.run([loss, train], {words: good}, host=True)
            np.testing.assert_allclose(found, wanted, rtol=1e-5)
            before = session["table"]
            with pytest.raises(ExecutionError, match="index 11 is out of range"):
                session.run([loss, train], {words: np.array([0, 11])}, host=True)
            np.testing.assert_array_equal(session["table"], before)


def mlp() -> None:
    """Train a perceptron, each kernel launched by itself."""
    g, train, feeds = _perceptron(layers=3)
    text = _train(g, train, feeds, 5, 1e-3)
    assert "no CUDA graphs" in text, text


def recorded() -> None:
    """Train it again, by CUDA graphs."""
    g, train, feeds = _perceptron(layers=3)
    text = _train(g, train, feeds, 6, 1e-3)
    assert "CUDA graphs: 1" in text, text
    assert "one that writes variables over" in text, text


def streams() -> None:
    """Train on one stream and read on another, with launches side by side in each."""
    import cupy

    g, (loss, train), feeds = _perceptron(layers=3)
    first, second = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    with gf.Session(g, executor="cupy", seed=3) as session, gf.Session(g, seed=3) as other:
        for turn in range(8):
            with (first, second)[turn // 3 % 2]:
                session.run(train, feeds)
            with (second, first)[turn % 2]:
                found = session.run(loss, feeds, host=True)
            other.run(train, feeds)
            np.testing.assert_allclose(found, other.run(loss, feeds), rtol=1e-3)


def attention() -> None:
    """Compute attention and its gradients by graphfw's own kernels."""
    for dtype, rtol in ((gf.float32, 1e-4), (gf.float16, 1e-2), (gf.bfloat16, 5e-2)):
        with _named(dtype.name):
            text = _agree(*_attention(dtype, 21), rtol)
            assert "attention: by CuPy" not in text, text


def by_cudnn() -> None:
    """Compute a convolution and attention by cuDNN, with their gradients."""
    from graphfw.runtime.cupy_executor import cudnn

    reason = cudnn.why_not()
    if reason:
        _tell(f"cuDNN is not tried: {reason}")
        return
    with gf.Graph() as g:
        x = gf.placeholder((2, 8, 9, 9), name="x")
        w = gf.placeholder((16, 8, 3, 3), name="w")
        y = gf.conv(x, w, padding=1)
        fetches = [y, *gf.grad(gf.sum(y * y), [x, w])]
    feeds = {x: _normal(2, 8, 9, 9), w: _normal(16, 8, 3, 3)}
    with _named("a convolution"):
        text = _agree(g, fetches, feeds, 1e-3)
        assert "by cuDNN" in text, text
    for dtype, rtol in ((gf.float16, 1e-2), (gf.bfloat16, 5e-2)):
        with _named(f"attention, in {dtype.name}"):
            _tell(_agree(*_attention(dtype, 64), rtol))


def gpt() -> None:
    """Compare a GPT of two layers with the CPU, tensor by tensor."""
    with gf.Graph() as g:
        tokens = gf.placeholder(("batch", 12), gf.int64, name="tokens")
        after = gf.placeholder(("batch", 12), gf.int64, name="after")
        h = gf.nn.Embedding(50, 32)(tokens) + gf.nn.Embedding(12, 32)(gf.arange(12))
        for _ in range(2):
            normed = gf.nn.LayerNorm(32)(h)
            # A bias of the keys has a gradient of zeros, whose rounding errors would be compared.
            attend = gf.nn.MultiHeadAttention(32, 4, bias=False, causal=True)
            h = h + attend(normed, normed, normed)
            inner = gf.nn.Linear(32, 128)(gf.nn.LayerNorm(32)(h))
            h = h + gf.nn.Linear(128, 32)(gf.gelu(inner, approximate="tanh"))
        loss = gf.nn.cross_entropy(gf.nn.Linear(32, 50)(gf.nn.LayerNorm(32)(h)), after)
        slopes = gf.grad(loss, g.variables)
        train = gf.optim.AdamW(1e-3).minimize(loss)
    rng = np.random.default_rng(0)
    feeds = {t: rng.integers(0, 50, (3, 12)) for t in (tokens, after)}
    with gf.Session(g, seed=3) as cpu, gf.Session(g, executor="cupy", seed=3) as gpu:
        found = gf.bisect(cpu, gpu, feeds, [loss, *slopes])
        _tell(str(found))
        assert found.first is None, found.first
        for _ in range(4):
            wanted, _ = cpu.run([loss, train], feeds)
            value, _ = gpu.run([loss, train], feeds, host=True)
            np.testing.assert_allclose(value, wanted, rtol=1e-3)


_HERE = "graphfw/runtime/cupy_executor"
_BLOCKING = "CUDA_LAUNCH_BLOCKING=1 names the launch, compute-sanitizer the thread"

RUNGS: Mapping[str, Rung] = {
    "context": Rung(
        context,
        "a context on the GPU, and copies there and home",
        f"python -m graphfw doctor, nvidia-smi; {_HERE}/staging.py, which copies by pinned memory",
    ),
    "elementwise": Rung(
        elementwise,
        "one elementwise kernel",
        f"how kernels are compiled ({_HERE}/device.py), given arguments (runs.py, launch) and "
        f"written (codegen/nest.py, plan.source()); {_BLOCKING}",
        {"GRAPHFW_CUDA_GRAPHS": "0"},
    ),
    "reduction": Rung(
        reduction,
        "one reduction of rows",
        f"shuffles, shared memory and counters in {_HERE}/codegen/prelude.cuh (gf_warp, gf_block, "
        "gf_is_last), and who launches what in codegen/launch.py",
        {"GRAPHFW_CUDA_GRAPHS": "0"},
    ),
    "products": Rung(
        products,
        "matrix products by cuBLASLt, with each epilogue",
        f"the numbers and structures of cublasLt.h in {_HERE}/cublaslt.py; which operand is which "
        "in products.py; CUBLASLT_LOG_LEVEL=5 says what the library is asked for",
        {"GRAPHFW_CUDA_GRAPHS": "0"},
    ),
    "check": Rung(
        check,
        "a gather whose check fails",
        f"the flag that kernels raise ({_HERE}/codegen/values.py, checked), who reads it when "
        "(deferred_check.py), and the guard of what writes variables (codegen/code.py)",
    ),
    "mlp": Rung(
        mlp,
        "training steps of a perceptron without CUDA graphs",
        f"memory that is planned ahead ({_HERE}/layouts.py), and the order of launches; "
        "gf.bisect on the graph names the first tensor",
        {"GRAPHFW_CUDA_GRAPHS": "0"},
    ),
    "recorded": Rung(
        recorded,
        "the same steps by CUDA graphs",
        f"{_HERE}/capture.py: what is recorded, and in which lanes; plan.explain(…) says why "
        "nothing is",
    ),
    "streams": Rung(
        streams,
        "several streams",
        f"{_HERE}/streams.py: which stream waits for which event",
    ),
    "attention": Rung(
        attention,
        "attention and its gradients by graphfw's own kernels",
        f"{_HERE}/attention/*.cuh: registers and shared memory (cuobjdump --dump-resource-usage), "
        "tensor_cores.cuh; compute-sanitizer --tool racecheck",
        {"GRAPHFW_CUDNN": "0"},
    ),
    "cudnn": Rung(
        by_cudnn,
        "convolutions and attention by cuDNN",
        f"{_HERE}/cudnn.py and convolution/cudnn.py, attention/cudnn.py: what cuDNN is told; "
        "CUDNN_LOGLEVEL_DBG=3 says what it makes of that",
    ),
    "gpt": Rung(
        gpt,
        "a GPT of two layers, compared with the CPU by gf.bisect",
        "the tensor that is named first, and its line; then the tests: .ci/gpu FOLDER 0 tests",
    ),
}


def main(arguments: Sequence[str]) -> int:
    """Climb the rung that is named, say what to look at, or name all of them."""
    if not arguments:
        for name, rung in RUNGS.items():
            _tell(f"{name}\t{rung.what}")
        return 0
    *only_say, name = arguments
    rung = RUNGS.get(name)
    if rung is None:
        _tell(f"there is no rung {name!r}: the rungs are {', '.join(RUNGS)}")
        return 2
    if only_say:
        _tell(f"look at: {rung.look}")
        return 0
    os.environ.update(rung.environment)
    try:
        rung.climb()
    except Exception:
        traceback.print_exc()
        _tell(f"the rung {name!r} fails: {rung.what}\nlook at: {rung.look}")
        return 1
    _tell(f"the rung {name!r} holds: {rung.what}")
    return 0


class _named:
    """Say of an error what was tried."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            error.add_note(f"with {self._what}")


def _tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _normal(*shape: int) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = np.random.default_rng(7).normal(size=shape)
    return found.astype(np.float32)


def _agree(
    g: gf.Graph,
    fetches: Sequence[gf.Tensor],
    feeds: Mapping[gf.Tensor, Any],
    rtol: float = 1e-5,
    **options: Any,
) -> str:
    """Compare with the CPU; return what the GPU's plan says of itself."""
    with gf.Session(g) as session:
        wanted = session.run(fetches, feeds)
    with gf.Session(g, executor="cupy", **options) as session:
        plan = session.compile(fetches, [*feeds])
        found = plan(*feeds.values(), host=True)
        text = plan.explain(*[array.shape for array in feeds.values()])
    for one, other in zip(found, wanted, strict=True):
        _close(one, other, rtol)
    return text


def _close(found: Any, wanted: Any, rtol: float) -> None:
    one, other = [np.asarray(a).astype(np.float64) for a in (found, wanted)]
    np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol * np.abs(other).max(initial=1))


def _perceptron(layers: int) -> tuple[gf.Graph, list[Any], dict[gf.Tensor, Any]]:
    """Return a graph, its loss and its training step, and what it is fed."""
    with gf.Graph() as g:
        x = gf.placeholder(("batch", 16), name="x")
        target = gf.placeholder(("batch", 16), name="target")
        h = x
        for _ in range(layers):
            h = gf.gelu(gf.nn.Linear(16, 32)(h), approximate="tanh")
            h = gf.nn.Linear(32, 16)(h)
        loss = gf.mean(gf.square(h - target))
        train = gf.optim.AdamW(1e-2).minimize(loss)
    return g, [loss, train], {x: _normal(24, 16), target: _normal(24, 16)[::-1].copy()}


def _train(
    g: gf.Graph,
    fetches: Sequence[Any],
    feeds: Mapping[gf.Tensor, Any],
    steps: int,
    rtol: float,
    **options: Any,
) -> str:
    """Train there and on the CPU; return what the GPU's plan says of itself."""
    with gf.Session(g, executor="cupy", seed=3, **options) as session:
        with gf.Session(g, seed=3, **options) as other:
            plan = session.compile(fetches, [*feeds])
            for _ in range(steps):
                wanted, _ = other.run(fetches, feeds)
                found, _ = plan(*feeds.values(), host=True)
                _close(found, wanted, rtol)
            for name, array in other.state_dict().items():
                with _named(name):
                    _close(session.state_dict()[name], array, 10 * rtol)
        return plan.explain(*[array.shape for array in feeds.values()])


def _attention(
    dtype: gf.DType, time: int
) -> tuple[gf.Graph, list[gf.Tensor], dict[gf.Tensor, Any]]:
    """Return a graph, attention with its gradients, and what it is fed."""
    with gf.Graph() as g:
        given = [gf.placeholder((2, 4, time, 16), dtype, name=name) for name in "qkv"]
        y = gf.scaled_dot_product_attention(*given, causal=True)
        fetches = [y, *gf.grad(gf.sum(gf.astype(y * y, gf.float32)), given)]
    arrays = np.split(_normal(6, 4, time, 16), 3)
    return g, fetches, {t: a.astype(dtype.dtype) for t, a in zip(given, arrays, strict=True)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
