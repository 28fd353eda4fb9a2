"""Matrix products through a stand-in for cuBLASLt: layouts, sizes, settings."""

import ctypes
import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ExecutorError
from graphfw.ops.linalg.fused_matmul import FusedProduct
from graphfw.runtime.cupy_executor import cublaslt as binding
from graphfw.runtime.cupy_executor.products import ProductCode, ProductSizes
from tests.strict_xp import plain_array

OPERANDS = {
    "as they are": lambda a, b: (a, b),
    "across": lambda a, b: (gf.matrix_transpose(a), gf.matrix_transpose(b)),
    "one across": lambda a, b: (gf.matrix_transpose(a), b),
    "cut": lambda a, b: (a[..., 1:, 2:], b[..., :, 3:]),
    "cut and across": lambda a, b: (gf.matrix_transpose(a[..., 2:, 1:]), b[..., 1:]),
    "backwards": lambda a, b: (gf.flip(a, axis=-1), b),
    "every other": lambda a, b: (a[..., ::2], b),
    "the same in all rows": lambda a, b: (gf.broadcast_to(a[..., :1, :], a.shape), b),
}


def fit(g, a, b):
    """Return the product of what fits of two tensors, whatever has been cut off."""
    k = min(a.shape[-1], b.shape[-2])
    return a[..., :k] @ b[..., :k, :]


def compared(g, y, feeds, rtol=1e-5):
    with gf.Session(g, executor="cupy") as session:
        plan = session.compile(y, list(feeds))
        found = plain_array(plan(*feeds.values()))
        text = plan.explain(*[array.shape for array in feeds.values()])
    assert "0 operations by CuPy" in text
    with gf.Session(g) as session:
        wanted = session.run(y, feeds)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_allclose(
        *(found.astype(np.float64), wanted.astype(np.float64)), rtol=rtol, atol=rtol
    )
    return text


@pytest.mark.exhaustive
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)], ids=str)
@pytest.mark.parametrize("how", OPERANDS)
def test_operands_that_lie_anyhow(fake, cublaslt, how, batch, rng):
    with gf.Graph() as g:
        a = gf.placeholder((*batch, 7, 7), name="a")
        b = gf.placeholder((*batch, 7, 7), name="b")
        y = fit(g, *OPERANDS[how](a, b))
    arrays = {t: rng.normal(size=t.shape).astype(np.float32) for t in (a, b)}
    text = compared(g, y, arrays)
    copies = text.count("a copy") + text.count(": elements,") + text.count(": vector,")
    assert bool(copies) == (how in ("backwards", "every other", "the same in all rows"))


@pytest.mark.parametrize(
    ("a", "b", "products"),
    [
        ((2, 3, 4, 5), (5, 6), 1),  # all rows as those of one matrix
        ((4, 5), (2, 3, 5, 6), 1),
        ((2, 1, 4, 5), (1, 3, 5, 6), 1),  # copied: there is no one distance between matrices
        ((2, 3, 4, 5), (3, 5, 6), 1),
        ((1, 5), (5, 1), 1),
        ((1, 1, 5), (4, 5, 1), 1),
        ((4, 0), (0, 6), 0),  # zeros
        ((0, 5), (5, 6), 0),
        ((0, 4, 5), (0, 5, 6), 0),
    ],
    ids=str,
)
def test_shapes(fake, cublaslt, a, b, products, rng):
    with gf.Graph() as g:
        x, y = gf.placeholder(a, name="x"), gf.placeholder(b, name="y")
        z = x @ y
    arrays = {t: rng.normal(size=t.shape).astype(np.float32) for t in (x, y)}
    compared(g, z, arrays)
    assert len(cublaslt.products) == products


@pytest.mark.parametrize("dtype", [gf.float16, gf.bfloat16, gf.float64], ids=str)
def test_other_floats(fake, cublaslt, dtype, rng):
    with gf.Graph() as g:
        a, b = gf.placeholder(("n", 9), dtype, name="a"), gf.placeholder((9, 4), dtype, name="b")
        y = a @ b
    arrays = {
        a: rng.normal(size=(5, 9)).astype(dtype.dtype),
        b: rng.normal(size=(9, 4)).astype(dtype.dtype),
    }
    compared(g, y, arrays, rtol=1e-12 if dtype is gf.float64 else 2e-2)
    wide = binding.COMPUTE_64F if dtype is gf.float64 else binding.COMPUTE_32F
    assert cublaslt.products == [wide]


def test_integers_are_left_to_cupy(fake, cublaslt, rng):
    with gf.Graph() as g:
        a = gf.placeholder((3, 4), gf.int64, name="a")
        y = a @ gf.matrix_transpose(a)
    data = rng.integers(-5, 5, (3, 4))
    with gf.Session(g, executor="cupy") as session:
        np.testing.assert_array_equal(plain_array(session.run(y, {a: data})), data @ data.T)
    assert not cublaslt.products


@pytest.mark.parametrize(
    ("precision", "compute"),
    [("highest", binding.COMPUTE_32F), ("high", binding.COMPUTE_32F_TF32)],
)
def test_tf32_is_a_choice(fake, cublaslt, precision, compute):
    with gf.Graph() as g:
        a = gf.placeholder((2, 2), name="a")
        y = a @ a
    with gf.Session(g, executor="cupy", matmul_precision=precision) as session:
        session.run(y, {a: np.eye(2, dtype=np.float32)}, host=True)
    assert cublaslt.products == [compute]


def test_many_sizes_and_what_is_done_besides(fake, cublaslt, rng):
    with gf.Graph() as g:
        x = gf.placeholder(("batch", "time", 6), name="x")
        w = gf.Variable(gf.nn.init.normal(), shape=(6, 6), name="w")
        h = gf.gelu(x @ w + 1.0)
        scores = gf.softmax(h @ gf.matrix_transpose(h), axis=-1) @ h
        loss = gf.mean(scores**2)
        train = gf.optim.SGD(0.1).minimize(loss)
    shapes = [(2, 5, 6), (1, 1, 6), (3, 8, 6), (2, 5, 6)]
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    results = []
    for name in ("cupy", "numpy"):
        with gf.Session(g, executor=name, seed=1) as session:
            plan = session.compile([loss, train], [x])
            results.append([float(plan(array)[0]) for array in arrays])
            assert "matmul: elements" not in plan.explain(), "an operand is copied"
    np.testing.assert_allclose(*results, rtol=1e-4)


def test_workspace_lies_in_the_arena(fake, cublaslt):
    cublaslt.workspace = 6400
    with gf.Graph() as g:
        a = gf.placeholder((2, 2), name="a")
        y = a @ a
    with gf.Session(g, executor="cupy") as session:
        plan = session.compile(y, [a])
        plan(np.eye(2, dtype=np.float32))
        assert plan.memory().of("scratch") == 6400
    assert max(fake.allocated) >= 6400


def test_what_the_library_refuses(fake, cublaslt):
    with gf.Graph() as g:
        a = gf.placeholder((2, 2), name="a")
        y = a @ a
    cublaslt.status = 13
    with gf.Session(g, executor="cupy") as session:
        with pytest.raises(ExecutorError, match="cublasLtCreate returns 13"):
            session.run(y, {a: np.eye(2, dtype=np.float32)})


def test_a_missing_library(monkeypatch):
    with pytest.raises(ExecutorError, match=r"multiplies matrices by cuBLASLt(.|\n)*cuda99x\[ctk"):
        binding.load(99)


def header(name):
    """A header of CUDA, where the wheel that has it is installed."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in Path(folder).glob(f"*/include/{name}"):
            return path.read_text()
    pytest.skip(f"needs {name}: pip install nvidia-cublas-cu12 nvidia-cuda-runtime-cu12")


@pytest.mark.parametrize(
    ("file", "numbers"),
    [
        (
            "cublasLt.h",
            {
                "CUBLASLT_MATMUL_DESC_TRANSA": binding.TRANSA,
                "CUBLASLT_MATMUL_DESC_TRANSB": binding.TRANSB,
                "CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT": binding.BATCH_COUNT,
                "CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET": binding.BATCH_OFFSET,
                "CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES": binding.MAX_WORKSPACE,
                "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES": binding.ALIGNMENTS[0],
                "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES": binding.ALIGNMENTS[3],
                "CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK": binding.REDUCTIONS,
                "CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE": binding.IN_COMPUTE_TYPE,
                "CUBLASLT_MATMUL_DESC_EPILOGUE": binding.EPILOGUE,
                "CUBLASLT_MATMUL_DESC_BIAS_POINTER": binding.BIAS_POINTER,
                "CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER": binding.AUX_POINTER,
                "CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD": binding.AUX_LEAD,
                "CUBLASLT_EPILOGUE_DEFAULT": binding.PLAIN,
                "CUBLASLT_EPILOGUE_BIAS": binding.BIAS,
                "CUBLASLT_EPILOGUE_GELU": binding.GELU,
                "CUBLASLT_EPILOGUE_BGRADA": binding.BGRADA,
            },
        ),
        (
            "cublas_api.h",
            {
                "CUBLAS_COMPUTE_32F": binding.COMPUTE_32F,
                "CUBLAS_COMPUTE_32F_FAST_TF32": binding.COMPUTE_32F_TF32,
                "CUBLAS_COMPUTE_64F": binding.COMPUTE_64F,
                "CUBLAS_OP_T": binding.TRANSPOSED,
            },
        ),
        (
            "library_types.h",
            {
                "CUDA_R_16F": binding.KINDS["float16"],
                "CUDA_R_16BF": binding.KINDS["bfloat16"],
                "CUDA_R_32F": binding.KINDS["float32"],
                "CUDA_R_64F": binding.KINDS["float64"],
            },
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_numbers_are_those_of_the_headers(file, numbers):
    text = header(file)
    for name, number in numbers.items():
        assert re.search(rf"\b{name}\s*=\s*{number}\b", text), name


class HostSide:
    """The library's functions that work without a GPU: all but products and the search for them."""

    def __init__(self, library):
        self._library = library

    def __getattr__(self, name):
        return getattr(self._library, name)

    def cublasLtCreate(self, handle):
        return 0

    def cublasLtMatmulAlgoGetHeuristic(self, *args):
        args[-1]._obj.value = 1
        return 0


@pytest.mark.parametrize("dtype", [gf.float32, gf.bfloat16, gf.float64], ids=str)
@pytest.mark.parametrize(
    "op",
    [
        None,
        FusedProduct(bias=True, residual=True),
        FusedProduct(bias=True, activation="gelu", keeps=True, widens=True),
        FusedProduct(activation="gelu_grad"),
        FusedProduct(sums=True),
    ],
    ids=str,
)
def test_the_library_takes_what_it_is_told(op, dtype):
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in Path(folder).glob("*/lib/libcublasLt.so.*"):
            library = binding.CublasLt(HostSide(ctypes.CDLL(str(path))))
            code = ProductCode(dtype, dtype, True, False, "high", op)
            found = library.product(code, ProductSizes(5, 16, 7, 1, 3, 5, 0, 0, 16, 0, 8, 20))
            assert found.beta == (op is not None and op.residual)
            assert [one.number for one in found.matrices] == [1, 0, 3 if found.beta else 2, 2]
            return
    pytest.skip("needs cuBLASLt: pip install nvidia-cublas-cu12")


def test_structures_have_the_sizes_of_the_header():
    assert ctypes.sizeof(binding.Heuristic) == 96
