"""`MatMulParams`: the integers that a work item of a product takes."""

from __future__ import annotations

from graphfw.runtime.numpy_executor.codegen.param_block import ParamBlock


class MatMulParams(ParamBlock):
    """The integers of a work item.

    Of each batch dim extent, stride in a, and stride in b follow; then the epilogue's.
    """

    M: int
    N: int
    K: int
    A: int
    A_ROW: int
    A_K: int
    B: int
    B_K: int
    B_COLUMN: int
    ROW_BLOCKS: int
    COLUMN_BLOCKS: int
    GROUP: int
    BATCH: int
    SPLITS: int
    CHUNK_ROWS: int
    CHUNK_COLUMNS: int
    SECTIONS: int
    """The sections of the columns: a work item has some columns of the first, and the same of the
    others."""
