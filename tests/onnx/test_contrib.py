"""ONNX Runtime's own operators, compared with ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

import graphfw as gf
from tests.onnx.runtime import started

RNG = np.random.default_rng(7)


def f(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int32)


def quantised(*shape, dtype=np.uint8):
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


def real(value):
    return np.array(value, np.float32)


def zero(value, dtype=np.uint8):
    return np.array(value, dtype)


def compared(tmp_path, kind, inputs, outputs="0", *, constant=(), domain="com.microsoft", **how):
    """Compare a node's outputs, of which some are wanted; a None is an input that is left out."""
    feeds = {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
    wanted = [int(i) for i in outputs.split()]
    names = [f"y{i}" if i in wanted else "" for i in range(max(wanted) + 1)]
    given = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    numbers = {n: helper.np_dtype_to_tensor_dtype(x.dtype) for n, x in feeds.items()}
    kept = [f"x{i}" for i in constant]
    graph = helper.make_graph(
        [helper.make_node(kind, given, names, "it", domain=domain, **how)],
        "one",
        [
            helper.make_tensor_value_info(n, numbers[n], x.shape)
            for n, x in feeds.items()
            if n not in kept
        ],
        [helper.make_empty_tensor_value_info(n) for n in names if n],
        [numpy_helper.from_array(feeds[n], n) for n in kept],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    feeds = {n: x for n, x in feeds.items() if n not in kept}
    made = gf.onnx.run(path, feeds)
    for value, expected in zip(made.values(), started(path).run(None, feeds), strict=True):
        assert value.dtype == expected.dtype
        close = 1e-4 if value.dtype.kind == "f" else 1.01  # rounding may go the other way
        wide = [np.asarray(v, np.float64) for v in (value, expected)]
        np.testing.assert_allclose(*wide, rtol=1e-3, atol=close)


X = f(2, 3, 8)
MASK = np.array([[1, 1, 0], [1, 1, 1]], np.int32)
W, B = f(8, 24), f(24)
TABLES = [f(8, 8), f(8, 8)]
WORDS = [RNG.integers(0, n, (2, 3)).astype(np.int32) for n in (10, 2)]


@pytest.mark.parametrize(
    ("kind", "inputs", "how"),
    [
        ("FusedMatMul", [f(2, 3, 4), f(2, 3, 5)], {"transA": 1, "alpha": 0.5}),
        ("FusedMatMul", [f(3, 2, 4), f(2, 4, 5)], {"transBatchA": 1}),
        ("BiasGelu", [X, f(8)], {}),
        ("Gelu", [X], {}),
        ("FastGelu", [X, f(8)], {}),
        ("QuickGelu", [X], {}),
        ("SkipLayerNormalization", [X, f(2, 3, 8), f(8), f(8), f(8)], {"outputs": "0 3"}),
        ("SkipSimplifiedLayerNormalization", [X, f(2, 3, 8), f(8)], {"epsilon": 1e-5}),
        ("SimplifiedLayerNormalization", [X, f(8)], {"domain": "", "axis": -1}),
        (
            "EmbedLayerNormalization",
            [*WORDS, f(10, 8), f(5, 8), f(2, 8), f(8), f(8), MASK],
            {"outputs": "0 1"},
        ),
        (
            "EmbedLayerNormalization",
            [WORDS[0], None, f(10, 8), f(5, 8), None, f(8), f(8)],
            {"outputs": "0 2"},
        ),
        ("FusedConv", [f(1, 2, 5, 5), f(3, 2, 3, 3), f(3)], {"activation": "Relu"}),
        (
            "FusedConv",
            [f(1, 2, 5, 5), f(3, 2, 3, 3), f(3)],
            {"activation": "Clip", "activation_params": [0.0, 0.5]},
        ),
        ("FusedGemm", [f(3, 4), f(4, 5), f(5)], {"activation": "Tanh"}),
        ("RotaryEmbedding", [f(2, 3, 16), WORDS[0].astype(np.int64) % 8, f(8, 4), f(8, 4)], {}),
        ("RotaryEmbedding", [f(2, 2, 3, 8), np.array([2]), f(8, 4), f(8, 4)], {"interleaved": 1}),
    ],
)
def test_layers_and_products(tmp_path, kind, inputs, how):
    compared(tmp_path, kind, inputs, **how)


@pytest.mark.parametrize(
    ("inputs", "how"),
    [
        ([X, W, B], {}),
        ([X, W, B, MASK], {}),
        ([X, W, B, ints(2, 3)], {}),
        ([X, W, B, None, f(2, 2, 2, 5, 4)], {"unidirectional": 1, "outputs": "0 1"}),
        ([X, W, B, None, None, f(2, 2, 3, 3)], {}),
        ([X, f(8, 28), f(28)], {"qkv_hidden_sizes": [8, 8, 12]}),
    ],
)
def test_attention(tmp_path, inputs, how):
    compared(tmp_path, "Attention", inputs, num_heads=2, **how)


@pytest.mark.parametrize(
    ("inputs", "how"),
    [
        ([X, f(2, 5, 8), f(2, 5, 8), f(24)], {}),
        ([X, f(2, 3, 8), f(2, 3, 8), None, MASK], {}),
        ([X, f(2, 5, 8), f(2, 5, 8), None, None, f(1, 2, 3, 5)], {}),
        (
            [X, f(2, 3, 8), f(2, 3, 8), None, None, None, f(2, 2, 4, 4), f(2, 2, 4, 4)],
            {"outputs": "0 1 2"},
        ),
        ([X, f(2, 2, 5, 4), f(2, 2, 5, 4)], {}),
        ([X, f(2, 3, 8), f(2, 3, 8)], {"unidirectional": 1}),
    ],
)
def test_multi_head_attention(tmp_path, inputs, how):
    compared(tmp_path, "MultiHeadAttention", inputs, num_heads=2, **how)


@pytest.mark.parametrize("how", [{}, {"do_rotary": 1}, {"do_rotary": 1, "rotary_interleaved": 1}])
def test_group_query_attention(tmp_path, how):
    def one(*inputs):
        given = [*inputs, *(TABLES if how else ())]
        compared(
            tmp_path, "GroupQueryAttention", given, "0 1 2", num_heads=4, kv_num_heads=2, **how
        )

    one(f(2, 3, 64), f(2, 3, 32), f(2, 3, 32), None, None, ints(2, 2), np.array(3, np.int32))
    one(f(2, 3, 128), None, None, None, None, ints(1, 2), np.array(3, np.int32))
    past = f(2, 2, 4, 16), f(2, 2, 4, 16)
    one(f(2, 1, 64), f(2, 1, 32), f(2, 1, 32), *past, ints(4, 4), np.array(5, np.int32))


@pytest.mark.exhaustive
@pytest.mark.parametrize("k", [32, 40])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("has_zeros", [False, True])
def test_products_with_weights_of_few_bits(tmp_path, k, bits, has_zeros):
    blocks = -(-k // 16)
    zeros = [quantised(6 * -(-blocks * bits // 8))] if has_zeros else []
    inputs = [f(3, k), quantised(6, blocks, 2 * bits), f(6 * blocks), *zeros]
    compared(tmp_path, "MatMulNBits", inputs, K=k, N=6, bits=bits, block_size=16)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_quantised_elements(tmp_path, dtype):
    a, b = quantised(3, 4, dtype=dtype), quantised(4, dtype=dtype)
    pair = [a, real(0.1), zero(5, dtype), b, real(0.2), zero(7, dtype)]
    for kind in ("QLinearAdd", "QLinearMul"):
        compared(tmp_path, kind, [*pair, real(0.6), zero(9, dtype)])
    for kind in ("QLinearSigmoid", "QLinearLeakyRelu"):
        inputs = [a, real(0.1), zero(5, dtype), real(0.1), zero(9, dtype)]
        compared(tmp_path, kind, inputs, constant=(1, 2, 3, 4))


def test_quantised_products_and_means(tmp_path):
    fixed = (1, 2, 3, 4, 5, 6, 7, 8)
    left, right = [quantised(3, 4), real(0.1), zero(5)], quantised(4, 5, dtype=np.int8)
    rest = [quantised(5).astype(np.int32), real(1.0), zero(9)]
    whole = [*left, right, real(0.2), zero(0, np.int8), *rest]
    compared(tmp_path, "QGemm", whole, constant=fixed)
    each = [*left, right.T.copy(), np.abs(f(5)), np.zeros(5, np.int8), *rest]
    compared(tmp_path, "QGemm", each, constant=fixed, transB=1)
    signed = zero(3, np.int8)
    floats = [left[0], right, real(0.1), real(0.2), zero(4), signed, f(5)]
    compared(tmp_path, "MatMulIntegerToFloat", floats)
    compared(tmp_path, "DynamicQuantizeMatMul", [f(3, 4), right, real(0.2), signed, f(5)])
    image = [quantised(2, 3, 4, 4), real(0.1), zero(5), real(0.1), zero(9)]
    compared(tmp_path, "QLinearGlobalAveragePool", image, constant=(1, 2, 3, 4))
    inputs = [real(0.1), zero(3), quantised(2, 3), real(0.2), zero(4)]
    compared(tmp_path, "QLinearConcat", inputs, constant=(0, 1, 3, 4), axis=1)


def test_what_is_wrong_with_a_node(tmp_path):
    with pytest.raises(gf.onnx.OnnxError, match=r"GroupQueryAttention: its input 0 .query"):
        compared(tmp_path, "GroupQueryAttention", [None, f(1, 2, 4)], num_heads=1)
    with pytest.raises(gf.onnx.OnnxError, match="can't be shared out to 3 heads"):
        compared(tmp_path, "Attention", [X, W, B], num_heads=3)
    with pytest.raises(gf.onnx.OnnxError, match="'num_heads' is a float, not an int"):
        compared(tmp_path, "Attention", [X, W, B], num_heads=2.5)
    with pytest.raises(gf.onnx.OnnxError, match="activation='Rule' is none of"):
        compared(tmp_path, "FusedGemm", [f(3, 4), f(4, 5), f(5)], activation="Rule")
