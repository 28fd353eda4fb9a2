"""Products by matrix tiles, which no test needs: they are emulated where there are none.

`test_amx_traps` runs these tests there once more, with the instructions of AMX.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import sys
from dataclasses import replace
from types import SimpleNamespace

import llvmlite.binding as llvm
import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError
from graphfw.ir.dim import symbol
from graphfw.ir.dtype import as_dtype, float32
from graphfw.runtime.kernels.steps import Storage, Temp, View
from graphfw.runtime.numpy_executor import cache_key, lowerings, machine, target
from graphfw.runtime.numpy_executor.codegen import AVX512, host
from graphfw.runtime.numpy_executor.matmul import amx_self_test, matmul_steps
from graphfw.runtime.numpy_executor.matmul.code import MatmulCode
from tests.runtime.numpy_executor.matmul_runs import (
    LAYOUTS,
    Array,
    assert_product,
    norms,
    product,
    random,
    run,
)
from tests.support.amx_traps import FORM, IS_TRAPPED


def by_tiles(a: Array, b: Array, **options) -> Array:
    # Tiles are as wide as two vectors of AVX-512, which LLVM can emulate, too.
    return product(a, b, target=AVX512, tiles=FORM, **options)


def by_vectors(a: Array, b: Array) -> Array:
    return product(a, b, target=AVX512)


def error(got: Array, a: Array, b: Array) -> Array:
    """The error of a product, relative to the sum of |a b|."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(np.abs(got - a @ b) / (np.abs(a) @ np.abs(b)))


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize("precision", ["highest", "high"])
@pytest.mark.parametrize("fixed_b", [False, True])
@pytest.mark.parametrize(("transposed_a", "transposed_b"), LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_sizes_around_the_tiles(dtype, transposed_a, transposed_b, fixed_b, precision, rng):
    for m, n, k in [
        (9, 1, 1),
        (16, 16, 32),
        (17, 33, 31),
        (32, 32, 64),
        (50, 140, 300),
        (33, 5, 0),
    ]:
        a = random(rng, (m, k), as_dtype(dtype).dtype, transposed=transposed_a)
        b = random(rng, (k, n), as_dtype(dtype).dtype, transposed=transposed_b)
        got = by_tiles(a, b, fixed_b=fixed_b, precision=precision)
        if (dtype, precision) == ("float32", "high"):
            assert (error(got, a, b) <= 2.0**-14).all()
        else:
            assert_product(got, a, b)


def test_steps_and_batches(rng):
    a, b = random(rng, (3, 20, 61), np.float32), random(rng, (3, 61, 35), np.float32)
    for left, right in [
        (a, b),
        (a[:, ::2, ::3], b[:, ::3, ::2]),
        (a[::-1, :, ::-1], b[:, ::-1]),
        (a, np.broadcast_to(b[0], b.shape)),
    ]:
        assert_product(by_tiles(left, right), left, right)


def test_unknown_sizes(rng):
    m, n, k = symbol("m"), symbol("n"), symbol("k")
    left, right, out = (Temp(float32, m, "") for _ in range(3))
    views = View(left, 0, (m, k), (k, 1)), View(right, 0, (k, n), (1, k))
    steps = matmul_steps((), *views, out, None, target=AVX512, tiles=FORM)
    for sizes in [(1, 40, 30), (5, 3, 0), (60, 70, 300), (300, 40, 17)]:
        a = random(rng, sizes[::2], np.float32)
        b = random(rng, sizes[:0:-1], np.float32, transposed=True)
        got = np.full(sizes[:2], np.nan, np.float32)
        memory: dict[Storage, Array] = {left: a, right: b.T, out: got}
        run(steps, memory, dict(zip("mnk", sizes, strict=True)))
        assert_product(got, a, b)


def test_errors_are_those_of_float32_or_as_large_as_allowed(rng):
    """Six products leave out 2^-23 of each |a b| at most, three 3 * 2^-16; sums are of float32."""
    a, b = random(rng, (64, 500), np.float32), random(rng, (500, 64), np.float32)
    for scaled in (False, True):
        if scaled:  # each number by itself, as far apart as numbers that are split may be
            a = np.ldexp(np.frexp(a)[0], rng.integers(-60, 24, a.shape)).astype(np.float32)
            b = np.ldexp(np.frexp(b)[0], rng.integers(-60, 24, b.shape)).astype(np.float32)
        six, three = by_tiles(a, b), by_tiles(a, b, precision="high")
        assert (error(six, a, b) <= 2.0**-20).all()
        assert (error(three, a, b) <= 2.0**-14).all()
        assert error(six, a, b).max() <= 3 * error(by_vectors(a, b), a, b).max()
        assert error(three, a, b).max() > error(six, a, b).max()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        (np.nextafter(np.float32(2.0**28), np.float32(0)), 2.0**28),
        (2.0**-70, np.nextafter(np.float32(2.0**-70), np.float32(0))),
    ],
)
def test_the_range_of_what_is_split(inside, outside, sign, rng):
    """Inside of it results are as exact as ever; from its ends on they are those of vectors."""
    a, b = random(rng, (28, 100), np.float32), random(rng, (100, 50), np.float32)
    for factor in (a, b):
        kept = factor[7, 9]
        factor[7, 9] = sign * inside
        assert (error(by_tiles(a, b), a, b) <= 2.0**-20).all()
        assert (by_tiles(a, b) != by_vectors(a, b)).any()
        factor[7, 9] = sign * outside
        np.testing.assert_array_equal(by_tiles(a, b), by_vectors(a, b))
        factor[7, 9] = kept


def test_the_ends_of_the_range_neither_overflow_nor_vanish():
    """The emulation takes subnormal numbers for 0, as the processors do: none come up."""
    large = np.full((32, 256), 2.0**28 * (1 - 2.0**-24), np.float32)
    np.testing.assert_allclose(by_tiles(large, large.T), 256 * 2.0**56 * (1 - 2.0**-23), rtol=2e-7)
    small = np.full((32, 256), 2.0**-70 * (1 + 2.0**-20), np.float32)
    exact = (small.astype(np.float64) @ small.T).astype(np.float32)
    assert exact[0, 0] > 0
    np.testing.assert_array_equal(by_tiles(small, small.T), exact)
    alternating = small * np.where(np.arange(256) % 2, 1, -1 - 2.0**-23).astype(np.float32)
    exact = (alternating.astype(np.float64) @ small.T).astype(np.float32)
    np.testing.assert_array_equal(by_tiles(alternating, small.T), exact)


@pytest.mark.parametrize("precision", ["highest", "high"])
@pytest.mark.parametrize("value", [1e-40, 1e-30, 1e30, 3.39e38, 3.4028e38, np.inf, -np.inf, np.nan])
def test_what_cannot_be_split_is_computed_by_vectors(value, precision, rng):
    a, b = random(rng, (28, 100), np.float32), random(rng, (100, 200), np.float32)
    for factor, row, column in ((a, 7, 9), (b, 3, 199)):
        kept = factor[row, column]
        factor[row, column] = value
        expected, got = by_vectors(a, b), by_tiles(a, b, precision=precision)
        strip = slice(None) if factor is a else slice(128, None)
        np.testing.assert_array_equal(got[:, strip], expected[:, strip])
        if factor is b:  # the first four panels are computed by tiles all the same
            assert (got[:, :128] != expected[:, :128]).any()
        factor[row, column] = kept


def test_long_sums_and_several_chunks(rng):
    for m, n, k in [(20, 40, 20000), (520, 300, 300)]:
        a, b = random(rng, (m, k), np.float32), random(rng, (k, n), np.float32)
        got = by_tiles(a, b)
        assert (np.abs(got - a.astype(np.float64) @ b) <= 3e-7 * norms(a, b)).all()


def code(dtype: str, form: str | None, m: int = 64, **options) -> MatmulCode:
    kind = as_dtype(dtype)
    left, right, out = (Temp(kind, 64 * 64, "") for _ in range(3))
    views = View(left, 0, (m, 64), (64, 1)), View(right, 0, (64, 64), (64, 1))
    (step,) = matmul_steps((), *views, out, None, target=AVX512, tiles=form, **options)
    assert isinstance(step.code, MatmulCode)
    return step.code


@pytest.mark.parametrize(
    ("dtype", "precision", "products"),
    [
        ("float32", "highest", 6),
        ("float32", "high", 3),
        ("float16", "high", 4),
        ("bfloat16", "high", 1),
    ],
)
def test_instructions_of_processors_that_have_tiles(dtype, precision, products):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple = "x86_64-unknown-linux-gnu"
    processor = llvm.Target.from_triple(triple).create_target_machine(cpu="sapphirerapids", opt=1)
    module = llvm.parse_assembly(
        code(dtype, "amx", precision=precision).work_item.llvm("work_item")
    )
    module.triple = triple
    module.verify()
    text = processor.emit_assembly(module)
    assert text.count("tdpbf16ps") == 4 * products
    assert text.count("tileloadd") == 4 + 2 * (products - 1)
    assert text.count("tilestored") == 4
    for instruction in ("ldtilecfg", "tilerelease", "tilezero"):
        assert instruction in text


def test_where_tiles_are_used():
    assert code("float64", "emulated").work_item.tiles is None
    assert code("float32", "emulated", m=4).work_item.tiles is None
    assert code("float32", None).work_item.tiles is None
    keys = [
        code("float32", form, precision=p).key
        for form in ("amx", "emulated")
        for p in ("highest", "high")
    ]
    assert len({code("float32", None).key, *keys}) == 5


def test_a_processor_whose_tiles_are_wrong_is_not_trusted(monkeypatch):
    monkeypatch.setattr(
        amx_self_test,
        "matmul_steps",
        lambda *args, **options: matmul_steps(*args, target=AVX512, **options),
    )
    assert amx_self_test.passes_self_test(FORM)
    real = amx_self_test._product
    monkeypatch.setattr(
        amx_self_test, "_product", lambda a, b, form: real(a, b, form) + (form is not None)
    )
    with pytest.warns(RuntimeWarning, match="AMX.*not used"):
        assert not amx_self_test.passes_self_test(FORM)


@pytest.mark.parametrize("fine", [True, False])
def test_tiles_are_used_where_they_are_trusted(fine, monkeypatch):
    monkeypatch.setattr(machine, "_may_use_amx", lambda: True)
    monkeypatch.setattr(amx_self_test, "passes_self_test", lambda form: fine)
    assert (machine.matrix_unit_here.__wrapped__() == "amx") is fine
    monkeypatch.setattr(machine, "_may_use_amx", lambda: False)
    assert machine.matrix_unit_here.__wrapped__() is None


@pytest.mark.parametrize("granted", [True, False])
def test_the_system_is_asked_for_tiles(granted, monkeypatch):
    asked = []

    def syscall(*numbers):
        asked.append([number.value for number in numbers])
        return 0 if granted else -1

    here = replace(machine.machine(), triple="x86_64-unknown-linux-gnu")
    features = "+amx-bf16,+amx-tile,+avx512f"
    monkeypatch.setattr(machine.sys, "platform", "linux")
    monkeypatch.setattr(
        machine,
        "ctypes",
        SimpleNamespace(CDLL=lambda _: SimpleNamespace(syscall=syscall), c_long=ctypes.c_long),
    )
    monkeypatch.setattr(machine, "machine", lambda: replace(here, features=features))
    assert machine._may_use_amx() is granted
    assert asked == [[158, 0x1023, 18]]
    monkeypatch.setattr(machine, "machine", lambda: replace(here, features="-amx-bf16,+amx-tile"))
    assert machine._may_use_amx() is False
    assert len(asked) == 1


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux is asked")
@pytest.mark.skipif(IS_TRAPPED, reason="the library of the test answers in its place")
def test_linux_understands_what_it_is_asked(monkeypatch):
    """It says that there are no tiles, or gives them: not that it does not know the question."""
    if platform.machine() != "x86_64":
        pytest.skip("needs x86-64")
    ask = ctypes.CDLL(None, use_errno=True).syscall
    bits = ctypes.c_uint64()

    def known(question: int) -> bool:
        assert ask(*map(ctypes.c_long, (158, question)), ctypes.byref(bits)) == 0
        return bool(bits.value >> machine._XFEATURE_XTILEDATA & 1)

    if ask(*map(ctypes.c_long, (158, 0x1021)), ctypes.byref(bits)) != 0:
        pytest.skip("this Linux has no permissions for parts of the processor's state")
    has_tiles = known(0x1021)
    here = replace(machine.machine(), features="+amx-bf16,+amx-tile")
    monkeypatch.setattr(machine, "machine", lambda: here)
    assert machine._may_use_amx() is has_tiles
    assert known(0x1022) is has_tiles
    if not has_tiles:
        question = machine._ARCH_PRCTL, machine._ARCH_REQ_XCOMP_PERM, machine._XFEATURE_XTILEDATA
        assert ask(*map(ctypes.c_long, question)) == -1
        assert ctypes.get_errno() == errno.EOPNOTSUPP


@pytest.mark.skipif(AVX512 is not host(), reason="the program's other kernels are run as well")
def test_programs(monkeypatch, rng):
    """Layers and their gradients, with what follows the products, by several threads."""
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    monkeypatch.setattr(cache_key, "enabled", False)
    with gf.Graph() as g:
        x = gf.placeholder(("n", 70), name="x")
        w = gf.Variable(random(rng, (70, 90), "float32"), name="w")
        fixed = gf.gelu(x @ random(rng, (70, 200), "float32") + random(rng, (200,), "float32"))
        scores = gf.reshape(x, (5, -1, 70)) @ gf.permute_dims(gf.reshape(x, (5, -1, 70)), (0, 2, 1))
        loss = gf.sum(gf.tanh(x @ w / 10) ** 2)
        fetches = [loss, *gf.grad(loss, [x, w]), fixed, scores]
    value = random(rng, (150, 70), "float32")
    results = []
    for form, options in [
        (None, {}),
        (FORM, {}),
        (FORM, {"threads": 1}),
        (FORM, {"threads": 3}),
        (FORM, {"matmul_precision": "high"}),
    ]:
        for module in (target, lowerings):
            monkeypatch.setattr(module, "matrix_unit_here", lambda form=form: form)
        results.append(gf.Session(g, **options).run(fetches, {x: value}))
    without, highest, one, three, high = results
    for tolerance, got in ((1e-5, highest), (1e-3, high)):
        for result, exact in zip(got, without, strict=True):
            np.testing.assert_allclose(result, exact, rtol=tolerance, atol=10 * tolerance)
    for number in range(1, len(fetches)):
        np.testing.assert_array_equal(one[number], highest[number])
        np.testing.assert_array_equal(three[number], highest[number])
        assert (highest[number] != high[number]).any()
        assert (highest[number] != without[number]).any()


def test_the_option_of_sessions(rng):
    with gf.Graph() as g:
        y = gf.placeholder((40, 50), name="x") @ random(rng, (50, 60), "float32")
    value = random(rng, (40, 50), "float32")
    high, highest = (
        gf.Session(g, matmul_precision=p).run(y, {"x": value}) for p in ("high", "highest")
    )
    assert (high != highest).any() == (machine.matrix_unit_here() is not None)
    with pytest.raises(ArgumentError, match="there are: highest, high"):
        gf.Session(g, matmul_precision="medium")
