"""The kernels of attention on the CPU, against the ops' reference."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.build import emit_all
from graphfw.ir.op import Op, lookup
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.cupy_executor.attention import config
from graphfw.runtime.cupy_executor.attention.config import WIDEST, KernelConfig, Mask
from graphfw.runtime.cupy_executor.codegen import HandwrittenCode, Launch, module
from graphfw.runtime.cupy_executor.target import GpuTarget
from graphfw.runtime.kernels.steps import Step, Storage, View
from graphfw.runtime.planning.draws import Draws
from tests.support.cuda_compilers import compiled
from tests.support.cuda_kernels import run_once
from tests.support.kernel_interpreter import new_array
from tests.support.lying import lying, whole_of

Array = np.ndarray[Any, Any]

DTYPES = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
}
# Of 16-bit floats weights are rounded before they are multiplied, the result besides.
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 3e-6, "float64": 1e-13}
TF32 = 5e-3
LOWEST = float(np.finfo(np.float32).min)


def steps_of(
    op: Op, inputs: Any, precision: str, memory: dict[Storage, Array]
) -> tuple[list[Step], list[Any]]:
    """Return the steps of an op on arrays, read as they lie, and its outputs."""
    with gf.Graph():
        given = [gf.placeholder(x.shape, str(x.dtype)) for x in inputs]
        made = emit_all(op, *given)
    memory.update(zip(given, map(whole_of, inputs), strict=True))
    read = [lying(*pair) for pair in zip(given, inputs, strict=True)]
    written = [View(t, 0, t.shape, contiguous(t.shape)) for t in made]
    return list(GpuTarget(Draws(()), precision).lower_node(made[0].node, read, written)), list(made)


def check(
    inputs: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    precision: str = "highest",
    slack: float = 1,
) -> list[Launch]:
    """Compare the result and the gradients with the reference; return the launches."""
    ops = lookup("attention")(causal, scale), lookup("attention_grad")(causal, scale)
    with np.errstate(all="ignore"):
        out, lse, rest = ops[0].eval(np, *inputs)
        d_out = np.random.default_rng(3).normal(size=out.shape).astype(out.dtype)
        delta = (out * d_out).sum(-1, dtype=lse.dtype) + np.cos(lse)
        all_inputs = (inputs, (*inputs[:3], lse, rest, delta, d_out, *inputs[3:]))
        pairs = zip(ops, all_inputs, strict=True)
        wanted = [x for op, given in pairs for x in op.eval(np, *given)]
    memory: dict[Storage, Array] = {}
    steps, outputs = [], []
    for op, given in zip(ops, all_inputs, strict=True):
        more = steps_of(op, given, precision, memory)
        steps += more[0]
        outputs += more[1]
    launches = [step.code.launch(step.params) for step in steps]
    variants: dict[str, set[str]] = {}
    for step, one in zip(steps, launches, strict=True):
        variants.setdefault(step.code.symbol, set()).add(one.variant)
    source = module([step.code for step in steps], variants)
    for step, one in zip(steps, launches, strict=True):
        arrays = [
            new_array(storage, {}) if written else memory[storage]
            for storage, written in zip(step.operands, step.written, strict=True)
        ]
        found = run_once(step.code, one, arrays, step.params, source)
        triples = zip(step.operands, step.written, found, strict=True)
        memory.update({storage: array for storage, written, array in triples if written})
    tolerance = TF32 if precision == "high" else TOLERANCE[str(inputs[0].dtype)]
    for tensor, right in zip(outputs, wanted, strict=True):
        found = memory[tensor].reshape(right.shape)
        assert found.dtype == right.dtype
        found, right = found.astype(np.float64), right.astype(np.float64)
        largest = max(1.0, np.abs(right[np.abs(right) < 1e30]).max(initial=0))
        exact = 1e-5 if right.ndim < out.ndim and precision == "highest" else tolerance
        np.testing.assert_allclose(
            found, right, rtol=exact * slack, atol=exact * slack * largest, err_msg=str(tensor.type)
        )
    return launches


def draw(rng: np.random.Generator, dtype: str, *shapes: tuple[int, ...]) -> list[Array]:
    return [rng.normal(size=shape).astype(DTYPES[dtype]) for shape in shapes]


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize(
    ("dtype", "precision", "causal"),
    [
        ("float16", "highest", False),
        *[(name, "highest", True) for name in DTYPES],
        pytest.param("float32", "high", False, marks=pytest.mark.slow),
        ("float32", "high", True),
    ],
    ids=str,
)
def test_dtypes(dtype, precision, causal, rng):
    # Tails of queries and keys; widths of which rows are 16 bytes apart, and others.
    inputs = draw(rng, dtype, (2, 71, 24), (2, 90, 24), (2, 90, 11))
    check(inputs, causal=causal, precision=precision)


MASKS = {
    "seen": lambda rng: rng.uniform(size=(3, 37, 50)) < 0.5,
    "keys": lambda rng: rng.uniform(size=(2, 1, 1, 50)) < 0.5,
    "one": lambda rng: np.array(True),
    "added": lambda rng: rng.normal(size=(37, 50)).astype(np.float32),
    "by query": lambda rng: rng.normal(size=(3, 37, 1)).astype(np.float32),
    "infinite": lambda rng: np.where(rng.uniform(size=(37, 50)) < 0.5, 0, -np.inf),
}


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("mask", MASKS)
def test_masks(mask, rng):
    inputs = draw(rng, "float32", (2, 3, 37, 8), (2, 3, 50, 8), (2, 3, 50, 16))
    found = MASKS[mask](rng)
    if found.dtype != bool:
        found = found.astype(np.float32)
    check([*inputs, found])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_masks_of_few_bits(dtype, rng):
    inputs = draw(rng, dtype, (2, 40, 16), (2, 33, 16), (2, 33, 16), (40, 33))
    check(inputs, causal=True)


def test_queries_that_see_nothing(rng):
    inputs = draw(rng, "float32", (40, 8), (70, 8), (70, 8))
    mask = rng.uniform(size=(40, 70)) < 0.5
    mask[::3] = False
    mask[5, :64] = False  # sees none of the first keys
    check([*inputs, mask])
    check([*inputs, np.where(mask, 0, -np.inf).astype(np.float32)])


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize(
    ("dtype", "fill"),
    [("float32", LOWEST), ("float32", -1e9), ("bfloat16", -1e9), ("float64", -1e20)],
)
def test_queries_whose_keys_are_hidden_by_a_sum(dtype, fill, rng):
    """As is done where infinities are shunned: what sees nothing sees everything."""
    inputs = draw(rng, dtype, (40, 8), (70, 8), (70, 8))
    mask = np.where(rng.uniform(size=(40, 70)) < 0.5, 0, fill).astype(DTYPES[dtype])
    mask[::3] = fill
    check([*inputs, mask])
    check([*inputs, mask], causal=True)


def test_what_is_no_number_stays_in_its_rows(rng):
    q, k, v = draw(rng, "float32", (20, 8), (70, 8), (70, 8))
    q[3, 2] = np.nan
    q[9, 5] = np.inf
    v[69, 1] = np.nan
    check([q, k, v])
    check([q, k, v, np.zeros((1, 1), np.float32)])


@pytest.mark.parametrize("scale", [-0.7, 0.0])
def test_scales_that_turn_scores_round(scale, rng):
    check(draw(rng, "float32", (40, 8), (70, 8), (70, 8)), scale=scale, causal=True)


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize(
    "shapes",
    [
        ((2, 3, 4, 9, 8), (2, 3, 1, 17, 8), (2, 3, 1, 17, 8)),  # groups of queries share keys
        ((3, 9, 8), (2, 1, 17, 8), (17, 8)),
        ((9, 8), (17, 8), (2, 17, 8)),
        ((1, 1), (1, 1), (1, 1)),
        ((2, 9, 8), (2, 0, 8), (2, 0, 8)),
        ((2, 0, 8), (2, 9, 8), (2, 9, 8)),
        ((0, 9, 8), (0, 9, 8), (0, 9, 8)),
    ],
    ids=str,
)
def test_shapes(shapes, rng):
    check(draw(rng, "float16", *shapes), causal=True)


def test_operands_as_they_lie(rng):
    (packed,) = draw(rng, "float16", (2, 33, 3, 4, 16))  # as one product makes q, k and v
    q, k, v = [packed[:, :, i].transpose(0, 2, 1, 3) for i in range(3)]
    launches = check([q, k, v])
    assert len(launches) == 3
    check([q[..., 1:], k[..., :-1], v[:1, :, ::-1]])  # not well aligned; from last to first


def test_operands_that_are_copied(rng):
    q, k, v = draw(rng, "float32", (2, 16, 37), (2, 33, 32), (2, 33, 16))
    memory: dict[Storage, Array] = {}
    inputs = [q.swapaxes(-1, -2), k[..., ::2], v]
    steps, _ = steps_of(lookup("attention")(False, None), inputs, "highest", memory)
    assert [isinstance(step.code, HandwrittenCode) for step in steps] == [False, False, True]
    check(inputs)


@pytest.mark.exhaustive(every=4)
@pytest.mark.parametrize(
    ("dtype", "width"),
    [("float16", 64), ("bfloat16", 128), ("float16", 256), ("float32", 256), ("float64", 128)],
)
def test_widths(dtype, width, rng):
    check(draw(rng, dtype, (70, width), (65, width), (65, width)), causal=True)


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize(
    ("dtype", "width"), [("float16", 128), ("bfloat16", 256), ("float32", 250), ("float64", 90)]
)
def test_few_wide_queries(dtype, width, rng):
    launches = check(draw(rng, dtype, (3, width), (45, width), (45, width)))
    assert launches[0].variant.startswith("16x")


def test_where_there_is_much_to_do_blocks_have_many_rows(monkeypatch, rng):
    monkeypatch.setattr(config, "_BUSY", 8)
    launches = check(draw(rng, "float32", (150, 8), (40, 8), (40, 8)), causal=True)
    assert [one.variant.split("x")[0] for one in launches] == ["128", "128", "64"]
    launches = check(draw(rng, "bfloat16", (3, 75, 64), (3, 150, 64), (3, 150, 64)), causal=True)
    assert [one.variant.split("x")[0] for one in launches] == ["128", "128", "128"]


@pytest.mark.parametrize("dtype", ["float16", pytest.param("float32", marks=pytest.mark.slow)])
def test_blocks_share_the_keys_of_few_queries(dtype, rng):
    inputs = draw(rng, dtype, (2, 3, 16), (2, 1100, 16), (2, 1100, 24))
    seen = np.ones((3, 1100), bool)
    seen[1, :700] = False
    seen[2] = False
    launches = check([*inputs, seen])
    assert (launches[0].variant, launches[0].pieces) == ("16x64", 4)
    inputs[0] = np.concat([inputs[0]] * 6, axis=1)
    launches = check(inputs)
    assert (launches[0].variant, launches[0].pieces) == ("64x64", 4)
    assert check(inputs, causal=True)[0].pieces == 1


@pytest.mark.parametrize(
    "mask", [(2, 1, 5, 1, 70), *[pytest.param(m, marks=pytest.mark.slow) for m in [(), (70,)]]]
)
def test_queries_of_heads_that_share_keys_are_computed_together(mask, rng):
    inputs = draw(rng, "float16", (2, 3, 5, 1, 16), (2, 3, 1, 70, 16), (2, 3, 1, 70, 16))
    seen = [rng.uniform(size=mask) < 0.6] if mask else []
    assert check([*inputs, *seen])[0].grid == 6


@pytest.mark.parametrize("dtype", DTYPES)
def test_tiles_for_all_widths(dtype):
    widest = WIDEST // 2 if dtype == "float64" else WIDEST
    for width in range(1, widest + 1, 5):
        for value_width in {1, width, widest}:
            for role in ("forward", "queries", "keys"):
                fields = (getattr(gf, dtype), "highest", width, value_width, 0, False, 1.0, None)
                one = KernelConfig(role, *fields)
                assert one.tiles
                assert len({tiles.name for tiles in one.tiles}) == len(one.tiles)
                assert max([one.shared(tiles) for tiles in one.tiles]) <= 99 << 10


def kinds(name: str, *, precision: str = "highest", mask: Mask | None = None) -> list[Any]:
    fields = (getattr(gf, name), precision, 64, 64, 2, True, 0.125, mask)
    return [KernelConfig(role, *fields).code() for role in ("forward", "queries", "keys")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "name"), [("sm_80", "float16"), ("sm_90", "bfloat16"), ("sm_80", "float32")]
)
def test_gpus_compilers_take_them(architecture, name):
    codes = kinds(name)
    assert compiled(module(codes, {c.symbol: {c.variants[0]} for c in codes}), architecture)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_gpus_compilers_take_all(architecture):
    """Each kind for one of them: all take two minutes."""
    if architecture == "sm_80":
        codes = kinds("float16", mask=Mask(gf.bool, has_rows=False, in_rows=True))
        codes += kinds("float32", precision="high")
    else:
        codes = kinds("bfloat16", mask=Mask(gf.bfloat16, has_rows=True, in_rows=False))
        codes += [*kinds("float32"), *kinds("float64")]
    assert compiled(module(codes), architecture)
