"""Finding attention in what users compose."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.build import emit_all
from graphfw.ir.op import lookup
from graphfw.ir.rebuild import derive
from graphfw.ir.tensor import Tensor
from graphfw.passes.attention import DecomposeAttention, FuseAttention
from graphfw.passes.dce import EliminateDeadCode
from graphfw.passes.manager import run_pipeline
from graphfw.passes.pipelines import DEFAULT
from tests.passes.helpers import ops_of

NAMES = {
    name: getattr(gf, name)
    for name in ("softmax", "log_softmax", "exp", "where", "arange", "astype")
}
TRIANGLE = np.tri(5, 7, dtype=bool)
DOWN = np.where(TRIANGLE, 0, -np.inf).astype(np.float32)
FUSING = (*[one for one in DEFAULT if not isinstance(one, DecomposeAttention)], EliminateDeadCode())
SEEN = "arange(q.shape[-2])[:, None] >= arange(k.shape[-2])"


def optimised(expression: str, keys: object = "s", dtype: str = "float32") -> gf.Graph:
    """Run the pass over an expression of q, k, v, a mask of bools and one of floats."""
    with gf.Graph() as graph:
        rows = "t" if keys == "s" else 5
        tensors = {
            "q": gf.placeholder(("b", 2, rows, 4), dtype, name="q"),
            "k": gf.placeholder(("b", 2, keys, 4), dtype, name="k"),
            "v": gf.placeholder(("b", 2, keys, 3), dtype, name="v"),
            "mask": gf.placeholder(("b", 1, 1, keys), gf.bool, name="mask"),
            "bias": gf.placeholder((rows, keys), dtype, name="bias"),
        }
        constants = {"tri": TRIANGLE, "down": DOWN, "inf": np.inf, "gf": gf, "np": np}
        result = eval(expression, {**NAMES, **tensors, **constants})
    outputs = [result] if isinstance(result, Tensor) else list(result)
    return run_pipeline(derive(graph, outputs), FUSING, verify="values").graph


def attention_in(graph: gf.Graph) -> list[tuple[bool, float | None, int]]:
    """Causality, scale and the number of inputs of each `attention` node."""
    found = [node for node in graph.nodes if node.op.name == "attention"]
    return [(node.op.causal, node.op.scale, len(node.inputs)) for node in found]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("softmax(q @ k.mT) @ v", (False, 1.0, 3)),
        ("softmax(q @ k.mT * 0.5) @ v", (False, 0.5, 3)),
        ("softmax(0.5 * (q @ k.mT)) @ v", (False, 0.5, 3)),
        ("softmax(q @ k.mT / 8) @ v", (False, 0.125, 3)),
        ("softmax((q * 0.5) @ k.mT) @ v", (False, 1.0, 3)),
        ("softmax(q @ k.mT * 0.5 + bias) @ v", (False, 0.5, 4)),
        ("softmax(bias + q @ k.mT) @ v", (False, 1.0, 4)),
        ("softmax(where(mask, q @ k.mT, -inf)) @ v", (False, 1.0, 4)),
        (f"softmax(where({SEEN}, q @ k.mT, -inf)) @ v", (True, 1.0, 3)),
        (f"softmax(where({SEEN}, where(mask, q @ k.mT / 2, -inf), -inf)) @ v", (True, 0.5, 4)),
        (f"softmax(where({SEEN}, q @ k.mT / 2 + bias, -inf)) @ v", (True, 0.5, 4)),
        ("exp(log_softmax(q @ k.mT / 2)) @ v", (False, 0.5, 3)),
        ("gf.einsum('bhts,bhse->bhte', softmax(q @ k.mT), v)", (False, 1.0, 3)),
        ("softmax(q @ k.mT / 3) @ v", (False, 1 / 3, 3)),
        ("softmax(q @ k.mT / gf.sqrt(gf.sum(v * v))) @ v", (False, 1.0, 3)),
        ("softmax(q @ k.mT * gf.sum(q, axis=-1, keepdims=True)) @ v", (False, 1.0, 3)),
        ("softmax(where(mask, -inf, q @ k.mT)) @ v", (False, 1.0, 4)),
        (f"softmax(where(mask, where({SEEN}, q @ k.mT / 2, -inf), -inf)) @ v", (True, 0.5, 4)),
        ("softmax(where(gf.tril(q @ k.mT > -inf), q @ k.mT, -inf)) @ v", (False, 1.0, 4)),
    ],
)
def test_found(expression: str, expected: tuple[bool, float, int]) -> None:
    graph = optimised(expression)
    assert attention_in(graph) == [expected]
    assert not {"exp", "max"} & set(ops_of(graph))


SQUARE = "arange(k.shape[-2])[:, None] >= arange(k.shape[-2])"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("softmax(where(mask, q @ k.mT, -1e9)) @ v", [(False, 1.0, 4), (False, None, 4)]),
        ("softmax(where(~mask, -1e4, k @ k.mT / 2)) @ v", [(False, 0.5, 4), (False, None, 4)]),
        (f"softmax(where({SQUARE}, k @ k.mT, gf.finfo(k.dtype).min)) @ v", [(True, 1.0, 3)]),
        (f"softmax(where({SQUARE}, where(mask, k @ k.mT, -1e9), -1e9)) @ v", [(True, 1.0, 4)]),
        (f"softmax(where({SQUARE}, k @ k.mT + bias[0], -1e9)) @ v", [(True, 1.0, 4)]),
        ("softmax(k @ k.mT + (1 - astype(mask, k.dtype)) * -1e4) @ v", [(False, 1.0, 4)]),
    ],
)
def test_masked_scores_that_are_finite(expression: str, expected: list[object]) -> None:
    graph = optimised(expression)
    assert attention_in(graph) == expected
    squares = [t for n in graph.nodes for t in n.types if [*map(str, t.shape)].count("s") > 1]
    assert not squares


@pytest.mark.parametrize("keys", [64, 65])
def test_few_scores_that_are_finite_stay_composed(keys: int) -> None:
    expression = f"softmax(where({SQUARE}, k @ k.mT, -1e9)) @ v"
    assert len(attention_in(optimised(expression, keys))) == (keys > 64)


@pytest.mark.parametrize(
    ("expression", "causal"),
    [
        ("softmax(where(tri, q @ k.mT, -inf)) @ v", True),
        ("softmax(q @ k.mT + down) @ v", False),
        ("softmax(where(gf.tril(gf.ones((5, 7))) == 0, -inf, q @ k.mT)) @ v", True),
        (f"softmax(where(~tri, -inf, where({SEEN}, q @ k.mT, -inf))) @ v", True),
        (f"softmax(where({SEEN}, q @ k.mT, -inf)) @ v", True),
        ("softmax(where(~tri, q @ k.mT, -inf)) @ v", False),
        ("softmax(q @ k.mT + 2 * bias) @ v", False),
    ],
)
def test_constant_masks(expression: str, causal: bool) -> None:
    (found,) = attention_in(optimised(expression, 7))
    assert found[:2] == (causal, 1.0)
    assert found[2] == (3 if causal else 4)


@pytest.mark.parametrize(
    "expression",
    [
        "softmax(q @ k.mT, axis=-2) @ v",
        "softmax(where(mask, q @ k.mT, inf)) @ v",
        "softmax(where(mask, q @ k.mT, gf.nan)) @ v",
        f"softmax(where({SEEN}, q @ k.mT, -1e9)) @ v",
        f"softmax(where({SEEN}, where(mask, q @ k.mT, -1e9), -inf)) @ v",
        "softmax(q @ k.mT + bias + where(mask, 0, -inf)) @ v",
        f"softmax(where({SEEN}, q @ k.mT, -inf) + bias) @ v",
        "softmax(where(mask, where(gf.flip(mask, axis=-1), q @ k.mT, -inf), -inf)) @ v",
        "softmax(q @ k.mT * inf) @ v",
        "softmax(q @ k.mT / 0) @ v",
        "softmax(q + 1) @ k.mT",
        "softmax(gf.tanh(q @ k.mT)) @ v",
        "exp(q @ k.mT) @ v",
        "softmax(q @ k.mT * bias) @ v",
        "(lambda w: (w, w @ v))(softmax(q @ k.mT))",
        "(lambda s: (s, softmax(s) @ v))(q @ k.mT)",
        "(lambda s: gf.grad(gf.sum((softmax(s) @ v) ** 2), s))(q @ k.mT)",
        "softmax(q @ k.mT + gf.broadcast_to(bias, (3, *q.shape[:2], *bias.shape))) @ v",
    ],
)
def test_left_alone(expression: str) -> None:
    assert attention_in(optimised(expression)) == []


def test_narrow_floats_are_left_alone() -> None:
    assert attention_in(optimised("softmax(q @ k.mT) @ v", dtype="float16")) == []
    assert attention_in(optimised("softmax(q @ k.mT) @ v", dtype="float64"))


def test_keys_that_lie_transposed() -> None:
    with gf.Graph() as graph:
        q, k, v = (gf.placeholder((3, *dims), name=n) for n, dims in zip("qkv", _DIMS, strict=True))
        y = gf.softmax(q @ k) @ v
    result = run_pipeline(derive(graph, [y]), FUSING, verify="values").graph
    assert ops_of(result).count("permute_dims") == 1
    assert len(attention_in(result)) == 1


_DIMS = ((5, 4), (4, 7), (7, 2))


def test_two_layers() -> None:
    """The result of one is the query of the next."""
    graph = optimised("softmax((softmax(q @ k.mT) @ k) @ k.mT) @ v")
    assert len(attention_in(graph)) == 2


def test_nothing_to_do_returns_the_graph_itself() -> None:
    for expression in ("q + 1", "exp(q)"):
        graph = optimised(expression)
        hits: Counter[str] = Counter()
        assert FuseAttention().run(graph, hits) is graph
        assert not hits


def attention_kept(keys: object, queries: object = 40, *, differentiated: bool = False) -> set[str]:
    """Run the pipeline over attention, and return which of its ops are still there."""
    with gf.Graph() as graph:
        q = gf.placeholder(("b", 2, queries, 4), name="q")
        k, v = (gf.placeholder(("b", 2, keys, 4), name=name) for name in "kv")
        y = gf.scaled_dot_product_attention(q, k, v)
        outputs = [y, *(gf.grad(gf.sum(y * y), [q, k, v]) if differentiated else ())]
    result = run_pipeline(derive(graph, outputs), DEFAULT, verify="values").graph
    return {"attention", "attention_grad"} & set(ops_of(result))


@pytest.mark.parametrize("queries", [1, 40, "t"])
def test_attention_with_few_keys_is_composed(queries: object) -> None:
    assert attention_kept(1, queries) == attention_kept(16, queries) == set()
    assert attention_kept(17, queries) == {"attention"}
    assert attention_kept(32, queries, differentiated=True) == set()
    assert attention_kept(33, queries, differentiated=True) == {"attention", "attention_grad"}


def test_attention_with_keys_of_any_number_or_none_is_not_composed() -> None:
    assert attention_kept("s") == attention_kept(0) == {"attention"}


def test_forward_and_backward_graphs_share_their_scores() -> None:
    with gf.Graph() as graph:
        q, k, v = (gf.placeholder((8, 4), name=name) for name in "qkv")
        y = gf.softmax(q @ k.mT) @ v
        outputs = [y, *gf.grad(y, [q, k, v], gf.ones((8, 4)))]
    result = run_pipeline(derive(graph, outputs), DEFAULT, verify="values").graph
    assert ops_of(result).count("matmul") == 6


@pytest.mark.exhaustive
@pytest.mark.parametrize("mask", ["none", "bools", "floats"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_compositions_compute_what_the_ops_compute(
    dtype: str, causal: bool, mask: str, rng: np.random.Generator
) -> None:
    shapes = [(3, 5, 4), (2, 1, 7, 4), (7, 6)]
    x = [gf.astype(gf.asarray(rng.normal(size=shape)), dtype) for shape in shapes]
    masks = []
    if mask != "none":
        seen = rng.random((2, 1, 5, 7)) < 0.5
        seen[1, 0, 3] = False  # this query sees no key
        values = seen if mask == "bools" else np.where(seen, rng.normal(size=seen.shape), -np.inf)
        masks = [gf.asarray(values) if mask == "bools" else gf.astype(gf.asarray(values), dtype)]
    op = lookup("attention")(causal, 0.6)
    own = emit_all(op, *x, *masks)
    assert_near(op.composed(*x, *masks), own)
    _, lse, rest = own
    d_out, delta = (gf.astype(gf.asarray(rng.normal(size=t.shape)), t.dtype) for t in own[:2])
    operands = [*x, lse, rest, delta, d_out, *masks]
    op = lookup("attention_grad")(causal, 0.6)
    assert_near(op.composed(*operands), emit_all(op, *operands))


def assert_near(found: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    """Of one type, and equal up to a few roundings of numbers of ordinary size."""
    for a, b in zip(found, expected, strict=True):
        assert a.type == b.type
        near = 32 * gf.finfo(a.dtype).eps
        x, y = (gf.astype(t, gf.float64).numpy() for t in (a, b))
        np.testing.assert_allclose(x, y, near, near)
