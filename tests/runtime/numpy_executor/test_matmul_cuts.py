"""The division of products into work items, pieces and tiles."""

from __future__ import annotations

import numpy as np
import pytest

from graphfw.ir.dim import symbol
from graphfw.ir.dim_text import evaluate
from graphfw.ir.dtype import as_dtype, float32
from graphfw.runtime.kernels.steps import Storage
from graphfw.runtime.numpy_executor.codegen import AVX512
from graphfw.runtime.numpy_executor.matmul import matmul_steps, plan
from graphfw.runtime.numpy_executor.matmul.dots import ways
from graphfw.runtime.numpy_executor.matmul.item import FEW_HEIGHTS
from graphfw.runtime.numpy_executor.matmul.plan import PLAIN, cut, heights_for
from graphfw.runtime.numpy_executor.matmul.tile import chains_for, shape_for
from tests.runtime.numpy_executor.matmul_runs import (
    Array,
    assert_product,
    product,
    random,
    storage_of,
    view_of,
)
from tests.support.kernels import TARGETS


@pytest.mark.parametrize("m", [16, 480])
@pytest.mark.parametrize(("batch", "n"), [(1, 38_400), (6, 480), (500, 12), (1, 1), (3, 0)])
def test_work_items_of_sizes_that_only_the_run_knows(m, batch, n):
    """Neither is all of a large product one work item, nor each of many small ones."""
    symbols = symbol("batch"), symbol("n")
    how = cut(shape_for(float32, AVX512), PLAIN, (m, symbols[1], 27), symbols[0])
    sizes = {"batch": batch, "n": n}
    rows, columns, group = (
        evaluate(x, sizes) for x in (how.row_blocks, how.column_blocks, how.group)
    )
    work_items = -(-batch // group) * rows * columns
    work = batch * m * n * 27
    assert work // (16 << 20) <= work_items <= 4 + work // (1 << 19)


@pytest.mark.parametrize(
    ("m", "n", "k", "batch"), [(1, 2, 2**27, 1), (512, 512, 2**20, 1), (64, 64, 2**25, 3)]
)
def test_no_slice_of_long_sums_takes_long(m, n, k, batch):
    """A run is interrupted between work items."""
    how = cut(shape_for(float32, AVX512), PLAIN, (m, n, k), batch)
    assert (how.row_blocks, how.column_blocks, how.group) == (1, 1, 1)
    assert m * n * k / how.splits <= 2**30
    assert k / how.splits <= 2**20


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [float32, as_dtype("float64")])
@pytest.mark.parametrize("may_split", [True, False])
@pytest.mark.parametrize(
    ("m", "n", "k", "batch"),
    [(6144, 6144, 6144, 1), (4096, 3000, 4097, 3), (33, 10**5, 10**5, 1), (5000, 5000, 5000, 100)],
)
def test_no_work_item_takes_long(target, dtype, may_split, m, n, k, batch):
    """A run is interrupted between work items."""
    shape = shape_for(dtype, target)
    how = cut(shape, PLAIN, (m, n, k), batch, may_split=may_split)
    units, panels = -(-m // how.heights[0]), -(-n // shape.columns)
    rows = -(-units // how.row_blocks) * how.heights[0]
    columns = -(-panels // how.column_blocks) * shape.columns
    assert rows * columns * k * how.group / how.splits <= 2**25 * shape.lanes


def test_many_slices_of_long_sums(monkeypatch, rng):
    monkeypatch.setattr(plan, "_LONGEST_SLICE", 4096)
    plan._fixed.cache_clear()
    try:
        for m, n, k in ((1, 2, 100_000), (9, 40, 70_001)):
            a, b = random(rng, (m, k), "float32"), random(rng, (k, n), "float32")
            memory: dict[Storage, Array] = {}
            out = storage_of(np.empty((m, n), np.float32))
            steps = matmul_steps((), view_of(a, memory), view_of(b, memory), out, None)
            assert steps[0].work_items == -(-k // 4096)
            assert_product(product(a, b), a, b)
    finally:
        plan._fixed.cache_clear()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [float32, as_dtype("float64")])
def test_registers_hold_all_sums(target, dtype):
    """There are 16 registers or 32: what a tile multiplies needs three of them, if not four."""
    shape, registers = shape_for(dtype, target), 32 if target is AVX512 else 16
    for rows in range(1, shape.rows + 1):
        for columns in (1, 2):
            assert rows * columns * chains_for(shape, rows, columns) <= registers - 4
    for heights in (FEW_HEIGHTS, (4,), (4, 1), (2, 1), (1,)):
        for way in ways(shape, heights):
            assert max(way.heights) * way.columns <= registers - 4


@pytest.mark.parametrize("target", TARGETS)
def test_tiles_of_unknown_rows_are_as_tall_as_registers_allow(target):
    shape = shape_for(float32, target)
    tall, short = heights_for(shape, symbol("m"))
    assert tall == min(shape.rows, 8)
    assert short == tall // 2


def test_rows_that_share_places_in_the_cache_have_lower_tiles():
    shape = shape_for(float32, AVX512)
    assert heights_for(shape, 140, 4 * 1000) == (14,)
    assert heights_for(shape, 140, 4 * 1024)[0] <= 8
    assert heights_for(shape, 140, 4 * symbol("k")) == (14,)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m", [*range(1, 40), 255, 256, 257, 260, 300, 511, 513, 1000])
def test_no_piece_of_rows_is_short(target, m):
    """The right operand is packed for each piece of a work item's rows."""
    shape = shape_for(float32, target)
    how = cut(shape, PLAIN, (m, 512, 512), 1)
    units = -(-m // how.heights[0])
    rows = min(-(-units // how.row_blocks) * how.heights[0], m)
    pieces = -(-rows // how.chunk_rows)
    assert pieces == -(-rows // 256) or how.chunk_rows > 128
    assert rows - (pieces - 1) * how.chunk_rows >= how.chunk_rows - pieces * how.heights[0]


@pytest.mark.parametrize("target", TARGETS)
def test_few_rows_of_an_unknown_number_read_long_pieces(target):
    """As long ones as few rows of a known number read."""
    shape, rows = shape_for(float32, target), symbol("m")
    how = cut(shape, PLAIN, (rows, 4096, 1024), 1)
    for m in (1, 2, 3, 4):
        known = cut(shape, PLAIN, (m, 4096, 1024), 1)
        assert 4 <= evaluate(how.column_blocks, {"m": m}) <= known.column_blocks
    assert evaluate(how.column_blocks, {"m": 128}) > 8
