"""Attention by cuDNN, on a stand-in that computes what it is told."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.build import emit_all
from graphfw.ops.nn.attention_backward import AttentionBackward
from graphfw.ops.nn.attention_ops import Attention, AttentionGrad
from graphfw.runtime.cupy_executor import cudnn
from graphfw.runtime.cupy_executor.attention.cudnn import CudnnAttention
from tests.runtime.cupy_executor.test_cudnn import compare

TOLERANCE = {"float16": 1e-2, "bfloat16": 6e-2}
BOTH = ["sdpa", "sdpa_backward"]


@pytest.fixture(autouse=True)
def recent(library):
    library.version = 92800


@pytest.fixture
def check(library, session, rng):
    """Return a function that compares with the CPU, and returns the plan's text and the graphs."""

    def compared(g, fetches, **options):
        feeds = {}
        for tensor in [node.outputs[0] for node in g.nodes if node.op.name == "placeholder"]:
            size = tuple([dim if isinstance(dim, int) else 21 for dim in tensor.shape])
            feeds[tensor] = rng.normal(size=size).astype(tensor.dtype.dtype)
        rtol = TOLERANCE.get(options.pop("dtype", fetches[0].dtype.name), 1e-4)
        text = compare(session, g, fetches, feeds, rtol=rtol, **options)
        return text, [names[0] for names in library.runs]

    return compared


def attention(shape, keys=None, width=None, dtype="bfloat16", mask=None, **form):
    """Return a graph of attention, and the result and gradients in it."""
    keys = keys or shape
    with gf.Graph() as g:
        q, k = gf.placeholder(shape, dtype, name="q"), gf.placeholder(keys, dtype, name="k")
        v = gf.placeholder((*keys[:-1], width or keys[-1]), dtype, name="v")
        seen = () if mask is None else (mask(),)
        y = gf.scaled_dot_product_attention(q, k, v, *seen, **form)
        return g, [y, *gradients(y, [q, k, v])]


def gradients(y, of):
    w = gf.placeholder(y.shape, y.dtype, name="w")
    return gf.grad(gf.sum(gf.astype(y * w, "float32")), of)


@pytest.mark.exhaustive(every=4)
@pytest.mark.parametrize(
    ("arguments", "form"),
    [
        (((2, 3, 64, 16),), {"dtype": "float16"}),
        (((2, 3, 64, 16),), {"causal": True}),
        ((("b", 3, 41, 8),), {"causal": True, "scale": 0.7, "dtype": "float16"}),
        (((2, 3, 37, 24), (2, 3, 50, 24), 8), {}),
        (((2, 3, 50, 8), (2, 3, 37, 8), 16), {"causal": True}),
        (((37, 40),), {"causal": True}),
        (((5, 37, 8),), {}),
        (((1, 1, 50, 8),), {}),
        (((2, 3, 2, 37, 8),), {}),
        (((2, 1, 3, 37, 8), (2, 5, 1, 37, 8)), {}),
    ],
)
def test_forms(arguments, form, check):
    """Lengths of any kind; all leading dims there may be, known in runs only, too."""
    g, fetches = attention(*arguments, **form)
    text, ran = check(g, fetches)
    shares = len(arguments) > 1 and arguments[0][:-2] != arguments[1][:-2]
    assert ran == ([] if shares else BOTH)
    assert text.count(" by cuDNN, ") == len(ran)


@pytest.mark.parametrize("lengths", [("n", "n"), ("n", 40), (40, "n")], ids=str)
def test_lengths_that_differ_from_run_to_run(lengths, check):
    """They would be waited for again and again: kernels that are there for all of them do it."""
    queries, keys = [(2, 3, length, 8) for length in lengths]
    g, fetches = attention(queries, keys)
    text, ran = check(g, fetches)
    assert not ran
    assert "cuDNN is not asked for attention: it compiles kernels for each length" in text


HEADS, WIDTH = 4, 8


@pytest.mark.parametrize("shared", [1, 2, 4])
def test_heads_of_projections(shared, check):
    """They are read as they lie, [B, T, H D]; heads of queries may share those of keys."""
    with gf.Graph() as g:
        q = gf.placeholder(("b", 33, HEADS * WIDTH), "bfloat16", name="q")
        kv = gf.placeholder(("b", 33, 2 * HEADS // shared * WIDTH), "bfloat16", name="kv")

        def heads(x, *lead):
            split = gf.reshape(x, (x.shape[0], x.shape[1], *lead, WIDTH))
            return gf.permute_dims(split, (0, *range(2, 2 + len(lead)), 1, 2 + len(lead)))

        both = heads(kv, 2, HEADS // shared, 1)
        k, v = both[:, 0], both[:, 1]
        y = gf.scaled_dot_product_attention(heads(q, HEADS // shared, shared), k, v, causal=True)
        fetches = [y, *gradients(y, [q, kv])]
    text, ran = check(g, fetches)
    assert ran == BOTH
    assert "a copy" not in text.partition("attention")[0]
    assert "sum" not in text.partition("by cuDNN where it has a way")[2]


@pytest.mark.parametrize("precision", ["mixed-fp16", "mixed-bf16"])
def test_sums_of_shared_heads_that_float16_can_not_hold(precision, library, session, rng):
    """With float32 behind it, a gradient is added up in that, and may be large."""
    with gf.Graph() as g:
        q = gf.placeholder((1, 16, 40, 8), name="q")
        k, v = [gf.placeholder((1, 1, 40, 8), name=name) for name in "kv"]
        y = gf.scaled_dot_product_attention(q, k, v, causal=True)
        w = gf.placeholder(y.shape, name="w")
        grads = gf.grad(gf.sum(y * w), [q, k, v])
    feeds = {t: 0.1 * rng.normal(size=t.shape).astype(np.float32) for t in (q, k, v)}
    feeds[w] = np.full(w.shape, 1500, np.float32)
    found = session(g, precision=precision).run(grads, feeds, host=True)
    wanted = gf.Session(g, precision=precision).run(grads, feeds)
    assert np.max(wanted[2]) > 65504
    np.testing.assert_allclose(found[2], wanted[2], rtol=0.02)
    # cuDNN adds gradients of shared heads up in their own dtype.
    ran = [names[0] for names in library.runs]
    assert ran == (BOTH if precision == "mixed-bf16" else BOTH[:1])


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize(("room", "slices"), [(6, 1), (3, 2), (2, 6), (1, 6), (0, 0)], ids=str)
def test_gradients_in_slices(room, slices, library, check, monkeypatch):
    """It is made for some heads at a time where all would take too much memory.

    Libraries before 9.26 want the logs of sums to be packed, along dims of 1, too.
    """
    library.version = 91900
    monkeypatch.setattr(cudnn, "WORKSPACE", room * 2 * (64 * 64 + 40 * 16) + 1001)
    with gf.Graph() as g:
        x = gf.placeholder((2, 40, 3 * 3 * 8), "bfloat16", name="x")
        heads = gf.permute_dims(gf.reshape(x, (2, 40, 3, 3, 8)), (2, 0, 3, 1, 4))
        y = gf.scaled_dot_product_attention(heads[0], heads[1], heads[2], causal=True)
        fetches = [y, *gradients(y, [x])]
    text, ran = check(g, fetches)
    assert ran == ["sdpa", *["sdpa_backward"] * slices]
    assert (f"by cuDNN in {slices} slices" in text) == (slices > 1)


def test_what_nobody_reads_is_not_computed(check):
    """Delta is cuDNN's own; and rest is 0 only where a gradient may be by kernels."""
    g, fetches = attention((2, 3, 40, 8), causal=True)
    text, _ = check(g, fetches)
    assert "pass-attention-result" in text
    assert "sum" not in text.replace("split-complex-sums", "")
    assert text.count("scratch memory, then:\n        attention: ") == 1
    text, ran = check(g, fetches[:1])
    assert "then:" not in text
    assert ran == [*BOTH, "sdpa"]


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("reads", ["k", "v", "both", "neither"])
def test_gradients_of_what_heads_share(reads, check):
    """They are added up with the rest, unless each is wanted."""
    with gf.Graph() as g:
        q = gf.placeholder((2, 3, 40, 8), "bfloat16", name="q")
        k = gf.placeholder((2, 1, 50, 8), "bfloat16", name="k")
        v = gf.placeholder((2, 1, 50, 16), "bfloat16", name="v")
        out, lse, rest = emit_all(Attention(True, None), q, k, v)
        w = gf.placeholder(out.shape, "bfloat16", name="w")
        delta = gf.sum(gf.astype(out, "float32") * gf.astype(w, "float32"), axis=-1)
        d_q, d_k, d_v = emit_all(AttentionGrad(True, None), q, k, v, lse, rest, delta, w)
        fetches = [d_q, gf.sum(d_k, axis=1, keepdims=True), gf.sum(d_v, axis=1)]
        fetches += {"k": [d_k], "v": [gf.tanh(d_v)], "both": [d_k, d_v], "neither": []}[reads]
    _, ran = check(g, fetches)
    assert ran == (BOTH if reads == "neither" else ["sdpa"])


@pytest.mark.exhaustive
@pytest.mark.parametrize("refused", [BOTH[:1], BOTH[1:], BOTH], ids=" ".join)
@pytest.mark.parametrize("causal", [False, True])
def test_either_may_be_by_kernels(refused, causal, library, check):
    library.refused = lambda names: names[0] in refused
    g, fetches = attention((2, 3, 40, 16), (2, 1, 40, 16) if causal else None, causal=causal)
    text, ran = check(g, fetches, runs=4)
    assert {*ran} == {*BOTH}.difference(refused)
    why = "by kernels, since cuDNN has no way that is allowed: no engine"
    assert text.count(why) == len(refused)


MASKS = {
    "bools": lambda: gf.placeholder((40, 40), "bool", name="mask"),
    "floats": lambda: gf.placeholder((2, 1, 1, 40), "bfloat16", name="mask"),
}


@pytest.mark.parametrize("mask", MASKS)
def test_masks_are_not_for_cudnn(mask, check):
    g, fetches = attention((2, 3, 40, 8), mask=MASKS[mask])
    text, ran = check(g, fetches)
    assert not ran
    for name in ("attention", "attention_grad"):
        assert f"cuDNN is not asked for {name}: it has no output for what masks make" in text


def test_logs_of_sums_that_have_a_gradient(check):
    """Delta holds that gradient, and cuDNN makes delta of the result alone."""
    with gf.Graph() as g:
        q, k, v = [gf.placeholder((2, 3, 40, 8), "bfloat16", name=name) for name in "qkv"]
        y, lse, _ = emit_all(Attention(True, None), q, k, v)
        w = gf.placeholder(y.shape, "bfloat16", name="w")
        total = gf.sum(gf.astype(y * w, "float32")) + gf.sum(gf.sin(lse))
        fetches = [y, lse, *gf.grad(total, [q, k, v])]
    text, ran = check(g, fetches)
    assert ran == ["sdpa"]
    assert "cuDNN is not asked for attention_grad: it makes delta itself" in text


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (((2, 3, 40, 12),), "the heads' width is no multiple of 8"),
        (((2, 3, 1, 8), (2, 3, 40, 8)), "there is one query a head"),
        (((2, 0, 40, 8),), "there is nothing to attend to"),
        (((2, 3, 40, 8), (2, 3, 0, 8)), "there is nothing to attend to"),
    ],
)
def test_what_it_can_not_be_told(arguments, reason, check):
    g, fetches = attention(*arguments)
    text, ran = check(g, fetches)
    assert not ran
    assert f"by kernels, since {reason}:" in text


def test_operands_that_lie_otherwise(check):
    """Copied where elements of a row are apart; by kernels where rows begin anywhere."""
    with gf.Graph() as g:
        x = gf.placeholder((2, 3, 41, 24), "bfloat16", name="x")
        transposed = gf.placeholder((2, 3, 8, 40), "bfloat16", name="transposed")
        k = v = x[:, :, 1:, 8:16]
        fetches = [
            gf.scaled_dot_product_attention(transposed.mT, k, v),
            gf.scaled_dot_product_attention(x[:, :, 1:, 1:9], k, v),
            gf.scaled_dot_product_attention(gf.broadcast_to(x[:, :1, 1:, :8], (2, 3, 40, 8)), k, v),
            gf.scaled_dot_product_attention(x[:, :, ::-1, :8], k, v),
        ]
    text, ran = check(g, fetches)
    assert ran == ["sdpa"]
    assert "q begins where no 16 bytes begin" in text
    assert "the heads do not lie in an order that cuDNN takes" in text
    assert "the rows of q do not lie as cuDNN takes them" in text


def test_other_floats_are_not_for_cudnn(check):
    g, fetches = attention((2, 3, 40, 8), dtype="float32")
    text, ran = check(g, fetches)
    assert not ran
    assert "cuDNN is not asked for attention: its floats have 16 bits" in text


def test_where_it_is_not_asked(library, fake, session, monkeypatch):
    g, fetches = attention((2, 3, 40, 8))

    def said():
        inputs = [node.outputs[0] for node in g.nodes if node.op.name == "placeholder"]
        return session(g).compile(fetches, feeds=inputs).explain()

    assert "2 of attention by cuDNN where it has a way" in said()
    library.version = 91500
    assert said().count("by kernels, since cuDNN 9.15.0 is older than 9.15.1") == 2
    monkeypatch.setattr(fake.cuda.Device, "compute_capability", "86")
    reason = "the GPU has compute capability 8.6, and it is asked from 9.0 on"
    assert f"cuDNN is asked for no attention: {reason}" in said()
    monkeypatch.setenv("GRAPHFW_CUDNN", "0")
    assert "cuDNN is asked for no attention: GRAPHFW_CUDNN=0" in said()


def test_recorded_runs(library, check):
    with gf.Graph() as g:
        q = gf.placeholder((2, 3, 40, 8), "bfloat16", name="q")
        y = q
        for _ in range(3):
            y = gf.scaled_dot_product_attention(y, y, y, causal=True)
        fetches = [y, *gradients(y, [q])]
    text, ran = check(g, fetches, runs=5)
    assert "they save" in text
    assert ran.count("sdpa") == ran.count("sdpa_backward") == 3 * 5
    assert len(library.graphs) == 2, "equal ones have one plan"
    assert all(graph.limit == cudnn.WORKSPACE for graph in library.graphs)
    assert all("NONDETERMINISTIC" in graph.barred for graph in library.graphs)


def test_plans_are_kept_on_disk(library, check, monkeypatch, tmp_path):
    """A plan compiled by one session is not compiled for another one."""
    monkeypatch.setenv("GRAPHFW_CACHE", str(tmp_path))
    known = {}

    def compiled(length, **form):
        g, fetches = known.setdefault(length, attention((2, 3, length, 8), causal=True, **form))
        before, library.runs[:] = len(library.compiled), []
        _, ran = check(g, fetches)
        assert ran == BOTH
        return [names[0] for names in library.compiled[before:]]

    assert compiled(40) == BOTH
    assert compiled(40) == []
    assert compiled(48) == compiled(41, scale=0.3) == BOTH
    assert compiled(48) == compiled(41) == []
    library.version += 1
    assert compiled(40) == BOTH
    assert compiled(40) == []
    library.kept.clear()  # as if it did not take them
    assert compiled(40) == BOTH
    monkeypatch.setenv("CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT", "0")
    assert compiled(40) == BOTH
    monkeypatch.setattr(library, "__version__", "1.33.0")
    assert compiled(40) == BOTH
    monkeypatch.setenv("GRAPHFW_CACHE", "off")
    assert compiled(40) == compiled(40) == BOTH


def test_plans_that_can_not_be_written(library, check, monkeypatch, tmp_path):
    def refuse(_):
        raise RuntimeError("CUDNN_STATUS_NOT_SUPPORTED")

    monkeypatch.setenv("GRAPHFW_CACHE", str(tmp_path))
    monkeypatch.setattr("tests.support.fake_cudnn.Graph.serialize", refuse)
    g, fetches = attention((2, 3, 40, 8))
    assert check(g, fetches)[1] == check(g, fetches)[1][:2] == BOTH
    assert [names[0] for names in library.compiled] == BOTH * 2


def test_in_a_loop(check):
    """So are the layers of a network whose weights are stacked, and their gradients."""
    with gf.Graph() as g:
        x = gf.placeholder((2, 2, 40, 8), "bfloat16", name="x")
        ws = gf.placeholder((3, 8, 8), "bfloat16", name="ws")
        y, _ = gf.scan(
            lambda c, w: (gf.scaled_dot_product_attention(c @ w, c, c, causal=True), ()), x, ws
        )
        fetches = [y, *gradients(y, [x, ws])]
    _, ran = check(g, fetches)
    assert ran == ["sdpa"] * 3 + ["sdpa_backward"] * 3


def test_mixed_precision(check):
    """A step of training whose weights are float32."""
    with gf.Graph() as g:
        x = gf.placeholder((2, 40, 32), name="x")
        w = gf.placeholder((32, 96), name="w")
        split = gf.reshape(x @ (w / 8), (2, 40, 3, 4, 8))
        q, k, v = [gf.permute_dims(split[:, :, i], (0, 2, 1, 3)) for i in range(3)]
        y = gf.scaled_dot_product_attention(q, k, v, causal=True)
        y = gf.reshape(gf.permute_dims(y, (0, 2, 1, 3)), (2, 40, 32))
        fetches = gf.grad(gf.sum(gf.tanh(y)), [x, w])
    text, ran = check(g, fetches, dtype="bfloat16", precision="mixed-bf16")
    assert ran == BOTH
    assert "2 of attention by cuDNN" in text


HEADS_LIE = {
    # The leading dims, the strides of k, of v and of the others; then [B, H] of q, k and v.
    "in a row": ((2, 3), (1200, 400), (1200, 400), (960, 320), [(2, 3)] * 3),
    "one for all": ((2, 3), (0, 0), (0, 0), (960, 320), [(1, 6), (1, 1), (1, 1)]),
    "of a batch": ((2, 3), (400, 0), (400, 0), (960, 320), [(2, 3), (2, 1), (2, 1)]),
    "keys of a batch": ((2, 3), (400, 0), (1200, 400), (960, 320), [(2, 3), (2, 1), (2, 3)]),
    "of groups": (
        (2, 4, 3),
        (1600, 400, 0),
        (1600, 400, 0),
        (3840, 960, 320),
        [(8, 3), (8, 1), (8, 1)],
    ),
    "of batches": ((5, 3), (0, 400), (0, 400), (960, 320), [(3, 5), (3, 1), (3, 1)]),
    "of groups that lie apart": (
        *((2, 3, 5), (2000, 0, 400), (2000, 0, 400), (4800, 1600, 320)),
        [(5, 6), (5, 2), (5, 2)],
    ),
    "joined": ((2, 3, 5), (6000, 2000, 400), (6000, 2000, 400), (4800, 1600, 320), [(30, 1)] * 3),
    "many": ((70000, 2), (800, 400), (800, 400), (640, 320), []),
}


@pytest.mark.parametrize("name", HEADS_LIE)
def test_how_heads_lie(name, library):
    """Heads that share keys are neighbours, whatever the order of the leading dims."""
    lead, keys, values, others, wanted = HEADS_LIE[name]
    code = CudnnAttention(False, gf.bfloat16, 8, 8, len(lead), False, 1.0)
    params = [40, 50, *lead]
    for operand in code.operands:
        along = {"k": keys, "v": values}.get(operand, others)
        params += [0, 1 if operand == "lse" else 8, *along]
    asked = code.request(params)
    assert isinstance(asked, str) == (not wanted)
    if wanted:
        graph = asked.graph(library, {"handle": None})
        assert [tuple(shape[:2]) for shape, _ in graph.lying[:3]] == wanted


@pytest.mark.exhaustive
@pytest.mark.parametrize("sums", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_what_takes_the_result_by_kernels(dtype, sums, check, monkeypatch):
    """The op itself takes all that `attention_grad` does, but for masks."""
    monkeypatch.setenv("GRAPHFW_CUDNN", "0")
    with gf.Graph() as g:
        q = gf.placeholder((2, 1, 21, 8), dtype, name="q")
        k = gf.placeholder((3, "n", 8), dtype, name="k")
        v = gf.placeholder(("n", 5), dtype, name="v")
        out, lse, rest = emit_all(Attention(True, None), q, k, v)
        d_out = gf.placeholder((5, *out.shape[:-1]), dtype, name="d_out")
        transposed = gf.permute_dims(d_out, (1, 2, 3, 0))
        fetches = [
            *emit_all(AttentionBackward(sums, causal=True), q, k, v, out, lse, rest, transposed)
        ]
    text, ran = check(g, fetches)
    assert not ran
    assert "attention_backward: by CuPy" not in text
