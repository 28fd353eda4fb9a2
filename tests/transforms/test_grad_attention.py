"""The gradient of attention that is composed by hand: its values, and no matrix of all scores."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.passes.manager import Level
from graphfw.runtime.plan import Plan

SEEN = "gf.arange(q.shape[-2])[:, None] >= gf.arange(k.shape[-2])"

FORMS = [
    "gf.softmax(q @ k.mT) @ v",
    "gf.softmax(q * 0.3 @ k.mT) @ v",
    "gf.softmax(q @ k.mT * 0.3) @ v",
    "gf.softmax(q @ k.mT / 3.5) @ v",
    "gf.softmax(q @ k.mT / gf.sqrt(4.0 + gf.sum(heat))) @ v",
    "gf.softmax(heat * (q @ k.mT)) @ v",
    "gf.softmax(q @ k.mT / 2 + bias) @ v",
    "gf.softmax(bias + q @ k.mT) @ v",
    "gf.softmax(gf.where(mask, q @ k.mT, -gf.inf)) @ v",
    "gf.softmax(gf.where(mask, -gf.inf, q @ k.mT)) @ v",
    f"gf.softmax(gf.where({SEEN}, q @ k.mT, -gf.inf)) @ v",
    f"gf.softmax(gf.where({SEEN}, q @ k.mT + bias, -gf.inf)) @ v",
    f"gf.softmax(gf.where(mask, gf.where({SEEN}, q @ k.mT, -gf.inf), -gf.inf)) @ v",
    "gf.exp(gf.log_softmax(q @ k.mT / 2)) @ v",
    "gf.einsum('bhts,bhse->bhte', gf.softmax(gf.einsum('bhtd,bhsd->bhts', q, k)), v)",
    "gf.softmax(q @ k.mT) @ v + gf.softmax(q @ k.mT / 2) @ (2 * v)",
    "gf.softmax(gf.softmax(q @ k.mT) @ k @ k.mT) @ v",
    "gf.softmax(q[0, 0] @ k.mT) @ v[0]",
    "gf.softmax(q @ q.mT) @ q",
    "gf.softmax(q @ k.mT / 2 + gf.where(mask, 0.0, -1e20)) @ v",
    f"gf.softmax(gf.where({SEEN}, q @ k.mT + gf.where(mask, 0.0, -1e20), -gf.inf)) @ v",
]

PADDED = "gf.astype(gf.arange(k.shape[-2]) < 9, k.dtype) * {}"
LOWEST = float(np.finfo(np.float64).min)

SQUARE = "gf.arange(k.shape[-2])[:, None] >= gf.arange(k.shape[-2])"

FINITE = [
    "gf.softmax(gf.where(mask, q @ k.mT, -1e9)) @ v",
    "gf.softmax(gf.where(mask, q @ k.mT / 2 , -5.0)) @ v",
    "gf.softmax(gf.where(~mask, 0.0, q @ k.mT / 2)) @ v",
    "gf.softmax(gf.where(bias > 0, q @ k.mT, -1e4)) @ v",
    "gf.softmax(gf.where(bias > 9, q[0, 0] @ k.mT, -1e9)) @ v[0]",
    f"gf.softmax(gf.where({SQUARE}, k @ k.mT, -1e9)) @ v",
    f"gf.softmax(gf.where({SQUARE}, k @ k.mT / 2, -5.0)) @ v",
    f"gf.softmax(gf.where({SQUARE}, k @ k.mT + bias, gf.finfo(gf.float64).min)) @ v",
    f"gf.softmax(gf.where({SQUARE}, gf.where(bias > 0, k @ k.mT, -1e9), -1e9)) @ v",
    f"gf.softmax(gf.where({SQUARE}, gf.where(bias[0, 0] > 0, k @ k.mT, -5.0), -5.0)) @ v",
    f"gf.softmax(gf.where({SQUARE}, gf.where(mask[0], k @ k[:, :1].mT, -2.0), -2.0)) @ v[0, 0]",
    f"gf.softmax(gf.where({SQUARE}, k @ k.mT + {PADDED.format(-1e20)}, -1e20)) @ v",
    f"gf.softmax(gf.where({SQUARE}, k @ k.mT + {PADDED.format(LOWEST)}, {LOWEST})) @ v",
    f"gf.softmax(gf.where({SQUARE}, k @ k.mT + {PADDED.format(LOWEST)}, -gf.inf)) @ v",
]
"""Forms with masked scores that are a number, which have a part in the results."""


class Net:
    """Inputs of attention, and what differentiates what is made of them.

    So many keys are too many for the compiler to compose attention of them.
    """

    def __init__(self, queries: int = 5, keys: int = 37) -> None:
        self.graph = gf.Graph()
        with self.graph:
            self.tensors = {
                "q": gf.placeholder(("b", 2, queries, 4), gf.float64, name="q"),
                "k": gf.placeholder(("b", 2, keys, 4), gf.float64, name="k"),
                "v": gf.placeholder(("b", 2, keys, 3), gf.float64, name="v"),
                "bias": gf.placeholder((2, 1, keys), gf.float64, name="bias"),
                "heat": gf.placeholder((2, 1, 1), gf.float64, name="heat"),
            }
            self.mask = gf.placeholder((queries, keys), gf.bool, name="mask")

    def feeds(self, rng: np.random.Generator) -> dict[gf.Tensor, np.ndarray]:
        """Of these keys, query 2 sees none, where the mask is True for what is seen."""
        feeds = {}
        for tensor in self.tensors.values():
            feeds[tensor] = rng.normal(
                size=[3 if d == "b" else d for d in map(_size, tensor.shape)]
            )
        feeds[self.mask] = rng.random(self.mask.shape) < 0.6
        feeds[self.mask][2] = False
        return feeds

    def outputs(self, expression: str, *, composed: bool) -> list[gf.Tensor]:
        """Return the value and its gradients, of first and second order."""
        softmax = gf.softmax
        weights: list[gf.Tensor] = []

        def watched(x: gf.Tensor) -> gf.Tensor:
            weights.append(softmax(x))
            return weights[-1]

        with self.graph, pytest.MonkeyPatch.context() as patch:
            if composed:
                patch.setattr(gf, "softmax", watched)
                patch.setattr(gf, "log_softmax", lambda x: gf.log(watched(x)))
            y = eval(expression, {"gf": gf, "mask": self.mask, **self.tensors})
            # A gradient that reaches the weights from elsewhere, too, keeps the composition.
            loss = gf.sum(gf.tanh(y)) + sum(0 * gf.sum(w) for w in weights)
            xs = list(self.tensors.values())
            first = gf.grad(loss, xs, missing="zeros")
            steep = sum(gf.sum(g * g) for g in first)
            return [y, *first, *gf.grad(steep, xs, missing="zeros")]


def _size(dim: object) -> object:
    return dim if isinstance(dim, int) else str(dim)


def ops_of(plan: Plan) -> list[str]:
    return [node.op.name for node in plan.program.graph.nodes]


@pytest.mark.exhaustive(every=6)
@pytest.mark.parametrize("expression", [*FORMS, *FINITE])
def test_values(expression: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled and node by node, beside the composition, which is computed node by node once."""
    net = Net(66, 65) if expression in FINITE else Net(37 if "q @ q.mT" in expression else 5)
    expected = net.outputs(expression, composed=True)
    got = net.outputs(expression, composed=False)
    feeds = net.feeds(rng)
    monkeypatch.setenv("GRAPHFW_JIT", "0")
    with gf.Session(net.graph) as session:
        by_nodes, wanted = session.run((got, expected), feeds)
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    with gf.Session(net.graph) as session:
        compiled = session.run(got, feeds)
    for found in (by_nodes, compiled):
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize("expression", FORMS)
@pytest.mark.parametrize("order", [0, 1])
def test_it_is_one_op(expression: str, order: int) -> None:
    """Forward and backward share it, so that it is computed once."""
    net = Net(37 if "q @ q.mT" in expression else 5)
    y, *gradients = net.outputs(expression, composed=False)
    with gf.Session(net.graph) as session:
        wanted = [net.tensors[name] for name in "qkv"]
        feeds = [*net.tensors.values(), net.mask]
        fetches = [y, *gradients[: len(wanted)]] if order else [y]
        ops = ops_of(session.compile(fetches, feeds=feeds))
    count = expression.count("softmax")
    assert ops.count("attention") == count
    assert ops.count("attention_grad") == count * order
    assert "exp" not in ops


@pytest.mark.exhaustive(every=4)
@pytest.mark.parametrize("expression", FINITE)
def test_masked_scores_that_are_a_number_take_the_op_too(expression: str) -> None:
    net = Net(66, 65)
    y, *gradients = net.outputs(expression, composed=False)
    with gf.Session(net.graph) as session:
        ops = ops_of(session.compile([y, *gradients[:3]], feeds=[*net.tensors.values(), net.mask]))
    times = 1 if SQUARE in expression else 2  # a second one gives the mean of unseen values
    assert ops.count("attention") == ops.count("attention_grad") == times
    assert "exp" not in ops


def test_masked_scores_are_equal_in_rows_without_a_key(rng: np.random.Generator) -> None:
    """So such a query gets the mean of all values, in float32 also of scores far below 0."""
    with gf.Graph() as graph:
        q, k, v = (gf.placeholder(("b", "t", 8), name=name) for name in "qkv")
        seen = gf.placeholder(("b", 1, "t"), gf.bool)
        y = gf.softmax(gf.where(seen, q @ k.mT, gf.finfo(gf.float32).min)) @ v
        gradients = gf.grad(gf.sum(y), [q, k, v])
    feeds = {x: rng.normal(size=(2, 40, 8)).astype(np.float32) for x in (q, k, v)}
    feeds[seen] = np.zeros((2, 1, 40), bool)
    with gf.Session(graph) as session:
        found, d_q, d_k, d_v = session.run([y, *gradients], feeds)
    mean = feeds[v].mean(axis=1, keepdims=True)
    np.testing.assert_allclose(found, np.broadcast_to(mean, found.shape), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(d_v, np.ones_like(d_v), rtol=1e-5)
    assert not d_q.any()
    assert not d_k.any()


@pytest.mark.parametrize("fill", [-gf.inf, -1e9, -5.0])
def test_queries_that_share_keys_and_long_sequences(
    fill: float, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHFW_JIT", "1")  # only compiled plans know their memory
    time = 4096
    with gf.Graph() as graph:
        q = gf.placeholder(("b", 1, 2, "t", 4), name="q")
        k, v = (gf.placeholder(("b", 1, 1, "t", 4), name=name) for name in "kv")
        seen = gf.placeholder(("b", 1, 1, 1, "t"), gf.bool, name="seen")
        rows = gf.arange(q.shape[-2])
        scores = gf.where(seen, q @ k.mT / 2, fill)
        y = gf.softmax(gf.where(rows[:, None] >= rows, scores, fill)) @ v
    arrays = [rng.standard_normal((1, 1, n, time, 4), dtype=np.float32) for n in (2, 1, 1)]
    arrays.append(rng.random((1, 1, 1, 1, time)) < 0.7)
    with gf.Session(graph) as session:
        plan = session.compile(y, feeds=[q, k, v, seen])
        found = np.asarray(plan(*arrays))
        entries = plan.memory(*[array.shape for array in arrays]).entries
    assert max(entry.nbytes for entry in entries) < time * time / 8
    row = 2000
    x, y, z, flags = (array[0, 0].astype(np.float64) for array in arrays)
    scores = x[:, row] @ y[0].T / 2
    scores = np.where((flags[0, 0] > 0) & (np.arange(time) <= row), scores, fill)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    expected = weights / weights.sum(axis=-1, keepdims=True) @ z[0]
    np.testing.assert_allclose(found[0, 0, :, row], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("verify", ["off", "values", "first-run"])
def test_no_matrix_of_all_scores_is_in_memory(
    verify: Level, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHFW_JIT", "1")  # only compiled plans know their memory
    time = 1024 if verify == "off" else 9
    with gf.Graph() as graph:
        q, k, v = (gf.placeholder(("b", 3, time, 8), name=name) for name in "qkv")
        seen = gf.tril(gf.ones((time, time), dtype=gf.bool))
        y = gf.softmax(gf.where(seen, q @ k.mT * 8**-0.5, -gf.inf)) @ v
        loss = gf.mean(y * y)
        step = gf.value_and_grad(loss, [q, k, v])
    shape = (2, 3, time, 8)
    with gf.Session(graph, verify=verify) as session:
        plan = session.compile(step, feeds=[q, k, v])
        plan(*[rng.standard_normal(shape, dtype=np.float32) for _ in range(3)])
        if verify == "off":
            largest = max(entry.nbytes for entry in plan.memory(*[shape] * 3).entries)
            assert largest < 2 * 3 * time * time  # one byte a score


def test_who_reads_the_weights_gets_them(rng: np.random.Generator) -> None:
    with gf.Graph() as graph:
        q, k, v = (gf.placeholder((2, 36, 4), gf.float64, name=name) for name in "qkv")
        weights = gf.softmax(q @ k.mT / 2)
        y = weights @ v
        loss = gf.sum(y * y)
        d_q, d_v = gf.grad(loss, [q, v])
    feeds = {x: rng.normal(size=(2, 36, 4)) for x in (q, k, v)}
    scores = feeds[q] @ feeds[k].swapaxes(1, 2) / 2
    expected = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    d_y = 2 * expected @ feeds[v]
    with gf.Session(graph) as session:
        got, by_q, by_v = session.run([weights, d_q, d_v], feeds)
        np.testing.assert_allclose(got, expected)
        np.testing.assert_allclose(by_v, expected.swapaxes(1, 2) @ d_y)
        np.testing.assert_allclose(by_q, session.run(d_q, feeds))
        plan = session.compile([weights, loss, d_q], feeds=[q, k, v])
        assert {"exp", "attention", "attention_grad"} <= set(ops_of(plan))


@pytest.mark.parametrize("inner", ["scores", "weights", "transposed"])
def test_gradients_of_what_is_inside(inner: str, rng: np.random.Generator) -> None:
    """Gradients of tensors inside must be found on the way: these compositions stay."""
    with gf.Graph() as graph:
        q, k, v = (gf.placeholder((2, 6, 4), gf.float64, name=name) for name in "qkv")
        transposed = k.mT
        scores = q @ transposed
        weights = gf.softmax(scores)
        y = weights @ v
        asked = {"scores": scores, "weights": weights, "transposed": transposed}[inner]
        found, by_q = gf.grad(gf.sum(y * y), [asked, q])
        assert found.type == asked.type
        by_k = gf.grad(gf.sum(y * y), k)
    feeds = {x: rng.normal(size=(2, 6, 4)) for x in (q, k, v)}
    with gf.Session(graph) as session:
        d_asked, d_q, d_k, w = session.run([found, by_q, by_k, weights], feeds)
    d_w = 2 * w @ feeds[v] @ feeds[v].swapaxes(1, 2)
    d_s = w * (d_w - (w * d_w).sum(axis=-1, keepdims=True))
    d_t = feeds[q].swapaxes(1, 2) @ d_s
    np.testing.assert_allclose(d_asked, {"scores": d_s, "weights": d_w, "transposed": d_t}[inner])
    np.testing.assert_allclose(d_q, d_s @ feeds[k])
    np.testing.assert_allclose(d_k, d_t.swapaxes(1, 2))


def test_a_loss_of_the_weights_keeps_the_composition() -> None:
    with gf.Graph() as graph:
        q = gf.placeholder((2, 6, 4), name="q")
        weights = gf.softmax(q @ q.mT)
        spread = -gf.sum(weights * gf.log(weights + 1e-9))
        gradient = gf.grad(gf.sum(weights @ q) + spread, q)
    with gf.Session(graph) as session:
        assert "attention" not in ops_of(session.compile(gradient, feeds=[q]))


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (0, 3, 4), (2, 1, 5), (2, 5, 1), (2, 0, 3), (2, 3, 0)]
)
def test_small_sizes(sizes: tuple[int, int, int], causal: bool, rng: np.random.Generator) -> None:
    batch, queries, keys = sizes
    with gf.Graph() as graph:
        q = gf.placeholder(("b", "t", 4), gf.float64, name="q")
        k = gf.placeholder(("b", "s", 4), gf.float64, name="k")
        v = gf.placeholder(("b", "s", 3), gf.float64, name="v")
        seen = gf.expand_dims(gf.arange(q.shape[-2]), axis=1) >= gf.arange(k.shape[-2])

        def scores() -> gf.Tensor:
            return gf.where(seen, q @ k.mT, -gf.inf) if causal else q @ k.mT

        y = gf.softmax(scores()) @ v
        powers = gf.exp(scores())  # of small scores, so that nothing needs a maximum
        total = gf.sum(powers, axis=-1, keepdims=True)
        other = powers @ v / gf.where(total == 0, 1, total)
        got, expected = ([x, *gf.grad(gf.sum(x * x), [q, k, v])] for x in (y, other))
    feeds = {
        q: rng.normal(size=(batch, queries, 4)),
        k: rng.normal(size=(batch, keys, 4)),
        v: rng.normal(size=(batch, keys, 3)),
    }
    with gf.Session(graph) as session:
        assert "attention_grad" in ops_of(session.compile(got, feeds=[q, k, v]))
        for a, b in zip(*session.run((got, expected), feeds), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_under_no_grad(rng: np.random.Generator) -> None:
    with gf.Graph() as graph:
        q = gf.placeholder((2, 6, 4), gf.float64, name="q")
        y = gf.softmax(q @ q.mT * gf.sqrt(gf.sum(q * q))) @ q
        loss = gf.sum(y * y)
        gradient = gf.grad(loss, q)
        with gf.no_grad():
            same = gf.grad(loss, q)
    with gf.Session(graph) as session:
        got, expected = session.run([same, gradient], {q: rng.normal(size=(2, 6, 4))})
    np.testing.assert_allclose(got, expected)


def test_16_bit_floats_keep_the_composition() -> None:
    with gf.Graph() as graph:
        q = gf.placeholder((2, 6, 4), gf.float16, name="q")
        gradient = gf.grad(gf.sum(gf.softmax(q @ q.mT) @ q), q)
    assert "attention" not in {node.op.name for node in gradient.graph.nodes}
    assert graph is gradient.graph


def test_places() -> None:
    """The op stands on the product's line, its gradient is known to be one."""
    with gf.Graph() as graph:
        q = gf.placeholder((2, 6, 4), name="q")
        weights = gf.softmax(q @ q.mT)
        y = weights @ q
        gf.grad(gf.sum(y * y), q)
    (forward,) = (node for node in graph.nodes if node.op.name == "attention")
    (backward,) = (node for node in graph.nodes if node.op.name == "attention_grad")
    assert forward.loc == y.node.loc
    assert backward.loc.grad_of == y.node.loc
