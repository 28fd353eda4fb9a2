"""The base of the kernels that compute scores."""

from __future__ import annotations

import math
from abc import abstractmethod

from graphfw.ir.dtype import DType
from graphfw.runtime.numpy_executor.attention.layout import AttentionParams, operands
from graphfw.runtime.numpy_executor.attention.scores import biased, masked, score_scale
from graphfw.runtime.numpy_executor.attention.tile import (
    AttentionTile,
    define_bias,
    define_stage,
    exp,
    folded,
    greater,
)
from graphfw.runtime.numpy_executor.codegen import RecordCode
from graphfw.runtime.numpy_executor.codegen.llvm_module import LlvmFunction, LlvmModule
from graphfw.runtime.numpy_executor.codegen.registers import memory
from graphfw.utils.records import record


@record
class ScoresCode(RecordCode):
    """A kernel that computes scores.

    Attributes:
        tile: The shape of its tiles.
        lead: The number of leading dims.
        causal, scale: As those of the op.
        mask: The mask's dtype; None where there is none.
    """

    tile: AttentionTile
    lead: int
    causal: bool
    scale: float | None
    mask: DType | None

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The operands."""

    @property
    @abstractmethod
    def layout(self) -> AttentionParams:
        """The arguments."""

    @property
    def masks(self) -> tuple[str, ...]:
        """The name of the mask, if there is one."""
        return () if self.mask is None else ("mask",)

    @abstractmethod
    def llvm(self, symbol: str) -> str:
        """Return the kernel's module."""


class ScoresKernel:
    """Writes a kernel that computes scores.

    Attributes:
        f: The lines of the kernel.
        n: The run-time integers.
        operand: The addresses of the operands.
        start: The offset of the head's matrix in each operand with strides, in elements.
        scale: The factor of the scores.
        factor: A vector of the scale.
    """

    def __init__(self, code: ScoresCode) -> None:
        self.code, self.tile = code, code.tile
        self.module = LlvmModule()
        self.stage = define_stage(self.module, self.tile)
        self.bias = None if code.mask is None else define_bias(self.module, self.tile, code.mask)
        f = self.f = LlvmFunction(self.module)
        self.n = code.layout.loaded(f)
        self.operand = operands(f, code.names)
        self.start: dict[str, str] = {}
        self.scale = score_scale(f, self.tile, code.scale, self.n["width"])
        self.factor = self.tile.splat(f, self.scale)

    def begin(self, head: str) -> None:
        """Set the head that the work item belongs to."""
        layout = self.code.layout
        self.start = layout.starts(self.f, self.n, head, layout.views)

    def text(self, symbol: str) -> str:
        """Return the module with the kernel so far."""
        return self.f.work_item(symbol)

    def address(self, name: str, row: str, col: str = "0") -> str:
        """Return the address of an element of the head's matrix of an operand with strides."""
        f, n = self.f, self.n
        element = self.tile.element
        if name == "mask":
            assert self.code.mask is not None
            element = memory(self.code.mask)
        elif name in ("lse", "rest", "delta"):
            element = self.tile.kind
        offset = f.add(self.start[name], f.mul(row, n[f"{name}.row"]))
        if col != "0":
            offset = f.add(offset, f.mul(col, n[f"{name}.col"]))
        return f.at(element, self.operand[name], offset)

    def copy(self, to: str, name: str, row: str, rows: str, total: str, padded: str) -> None:
        """Copy rows of an operand to scratch memory.

        Args:
            to: The address of the copy.
            name: The operand.
            row: Its first row to copy.
            rows: The number of rows.
            total: The number of rows of the copy, padded with zeros.
            padded: The length of its rows, likewise.
        """
        n = self.n
        width = n["value_width" if name in ("v", "d_out") else "width"]
        sizes = f"i64 {rows}, i64 {total}, i64 {width}, i64 {padded}"
        strides = f"i64 {n[f'{name}.row']}, i64 {n[f'{name}.col']}"
        source = self.address(name, row)
        self.f.do(f"call void {self.stage}(ptr {to}, ptr {source}, {sizes}, {strides})")

    def write_bias(
        self, to: str, query: str, queries: str, key: str, keys: str, length: str
    ) -> None:
        """Write the mask's summands of scores of some queries and keys, in rows `length` apart."""
        if self.bias is None:
            return
        n = self.n
        sizes = f"i64 {queries}, i64 {keys}, i64 {length}"
        strides = f"i64 {n['mask.row']}, i64 {n['mask.col']}"
        source = self.address("mask", query, key)
        self.f.do(f"call void {self.bias}(ptr {to}, ptr {source}, {sizes}, {strides})")

    def score(self, product: str, bias: str, column: str, limit: str) -> str:
        """Return a vector of scores for a vector of products.

        Args:
            product: The products of a query and some keys.
            bias: The address of the summands that `write_bias` wrote for them.
            column: The position of the first of these keys.
            limit: The position from which on the query sees no key.
        """
        f, t = self.f, self.tile
        if self.bias is None:
            score = f.let(f"fmul {t.vector} {product}, {self.factor}")
        else:
            score = biased(f, t, product, self.factor, t.load(f, bias), self.code.mask)
        return masked(f, t, score, column, limit)

    def top(self, products: str, bias: str, keys: str, limit: str) -> str:
        """Turn a query's products into scores in place, and return the greatest.

        Args:
            products: Their address; there are as many as whole tiles for the keys have.
            bias: The address of the summands that `write_bias` wrote for them.
            keys: The number of keys.
            limit: The number of keys that the query sees.
        """
        f, t = self.f, self.tile
        width = f.whole(keys, t.columns)
        with f.loop("0", width, t.columns, [(t.vector, t.constant(-math.inf))] * 2) as at:
            for j in range(2):
                column = f.add(at.index, str(j * t.lanes))
                address = f.at(t.kind, products, column)
                score = t.load(f, address)
                score = self.score(score, f.at(t.kind, bias, column), column, limit)
                t.store(f, score, address)
                at.following.append(greater(f, t.vector, score, at.values[j]))
        return folded(f, t, greater(f, t.vector, *at.values), "max")

    def weigh(self, scores: str, keys: str, top: str) -> str:
        """Turn a query's scores into exp(score - top) in place, and return their sum."""
        f, t = self.f, self.tile
        top = t.splat(f, top)
        width = f.whole(keys, t.columns)
        with f.loop("0", width, t.columns, [(t.vector, t.constant(0.0))] * 2) as at:
            for j in range(2):
                address = f.at(t.kind, scores, f.add(at.index, str(j * t.lanes)))
                weight = exp(f, t, f.let(f"fsub {t.vector} {t.load(f, address)}, {top}"))
                t.store(f, weight, address)
                at.following.append(f.let(f"fadd {t.vector} {at.values[j]}, {weight}"))
        return folded(f, t, f.let(f"fadd {t.vector} {at.values[0]}, {at.values[1]}"), "add")


def finished(f: LlvmFunction, t: AttentionTile, total: str, top: str) -> tuple[str, str, str]:
    """Return the factor of a query's result, its lse and its rest; see `ScoresKernel.weigh`.

    If the query sees no key, the result is 0 and both numbers are the lowest.
    """
    kind, one = t.kind, t.number(1.0)
    empty = f.let(f"fcmp oeq {kind} {total}, {t.number(0.0)}")
    total = f.let(f"select i1 {empty}, {kind} {one}, {kind} {total}")
    inverse = f.let(f"fdiv {kind} {one}, {total}")
    log = f.call(kind, f"llvm.log.f{8 * t.bytes}", (kind, total))
    lse = f.let(f"fadd {kind} {top}, {log}")
    rest = f.let(f"fadd {kind} {f.let(f'fsub {kind} {top}, {lse}')}, {log}")
    lse, rest = (
        f.let(f"select i1 {empty}, {kind} {t.number(t.lowest)}, {kind} {x}") for x in (lse, rest)
    )
    return inverse, lse, rest
