"""The division of work into work items."""

import pytest

import graphfw as gf
from graphfw.ir.dim_text import evaluate
from graphfw.runtime.kernels.lower_work_items import (
    WorkDivision,
    columns,
    is_long,
    pieces,
    tiles,
    whole_rows,
)

SHAPES = [(1, 1), (1, 10**6), (4096, 3072), (512, 32_000), (4096, 768), (10, 0), (0, 7), (3, 10**7)]


def ways(rows, inner, nbytes=8):
    return {
        "pieces": pieces(rows, inner, nbytes),
        "rows": whole_rows(rows, inner, nbytes, passes=1, some_rows=False),
        "passes": whole_rows(rows, inner, nbytes, passes=3, some_rows=False),
        "lines": whole_rows(rows, inner, nbytes, passes=3, some_rows=True),
        "columns": columns(2, rows, inner, nbytes),
    }


@pytest.mark.parametrize(("rows", "inner"), SHAPES)
def test_sizes_known_early_or_late_give_the_same(rows, inner):
    with gf.Graph():
        x = gf.placeholder(("n", "m"))
    late = ways(*x.shape)
    for name, work in ways(rows, inner).items():
        numbers = [
            None if size is None else evaluate(size, {"n": rows, "m": inner})
            for size in late[name][:3]
        ]
        assert WorkDivision(*numbers, work.asks) == work, name


def test_work_items_that_may_take_long_ask_whether_to_end():
    with gf.Graph():
        rows, inner = gf.placeholder(("n", "m")).shape
    asking = {"rows", "passes", "lines", "columns"}  # others are cut until they are short
    assert {name for name, work in ways(rows, inner).items() if work.asks} == asking
    assert {name for name, work in ways(rows, 1 << 14).items() if work.asks} == set()
    assert {name for name, work in ways(rows, 1 << 15).items() if work.asks} == asking


@pytest.mark.parametrize(("rows", "inner"), SHAPES)
def test_all_work_is_in_some_work_item(rows, inner):
    work = ways(rows, inner)
    for name in ("rows", "passes", "lines"):
        assert (
            work[name].per_item * work[name].work_items
            >= rows
            > (work[name].per_item * (work[name].work_items - 1) if rows else -1)
        )
    cut = work["pieces"]
    assert cut.split * cut.work_items >= rows * inner
    assert cut.split % 64 == 0
    assert work["columns"].per_item % 64 == 0
    assert work["columns"].per_item * work["columns"].work_items >= 2 * rows


def test_work_items_grow_with_the_work_between_limits():
    sizes = [pieces(1, 1 << n, 8).split * 8 for n in (10, 16, 20, 24, 30)]
    assert sizes == [1 << 16, 1 << 16, 1 << 17, 1 << 20, 1 << 20]
    assert whole_rows(4096, 3072, 8, passes=1, some_rows=False).work_items >= 64


def test_several_rows_where_a_row_is_read_while_another_is_computed():
    wide = 1 << 20
    assert whole_rows(512, wide, 8, passes=2, some_rows=False).per_item == 4
    assert whole_rows(512, wide, 8, passes=1, some_rows=False).per_item == 1
    assert whole_rows(128, wide, 8, passes=2, some_rows=False).per_item == 2
    assert whole_rows(8, wide, 8, passes=2, some_rows=False).per_item == 1
    assert whole_rows(8, wide, 8, passes=2, some_rows=True).per_item == 16


def test_tiles_and_long_rows():
    assert tiles(100, 165) == WorkDivision(32, 128, 8)
    assert tiles(100, 60) == WorkDivision(64, 64, 2)
    assert tiles(100, 3) == WorkDivision(256, 16, 1)
    assert is_long(1 << 14)
    assert not is_long((1 << 14) - 1)
    with gf.Graph():
        assert not is_long(gf.placeholder(("n",)).shape[0])
