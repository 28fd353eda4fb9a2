"""Scores of products of queries and keys: the factor, the mask, the causal limit."""

from __future__ import annotations

import math

from graphfw.ir.dtype import DType, float64
from graphfw.runtime.numpy_executor.attention.tile import AttentionTile
from graphfw.runtime.numpy_executor.codegen.llvm_module import LlvmFunction
from graphfw.runtime.numpy_executor.codegen.registers import iota, literal


def score_scale(f: LlvmFunction, t: AttentionTile, scale: float | None, width: str) -> str:
    """Return the factor of products in scores, 1 / sqrt(width) if `scale` is None."""
    if scale is not None:
        return t.number(scale)
    whole = f.let(f"sitofp i64 {f.high(width, '1')} to double")
    root = f.call("double", "llvm.sqrt.f64", ("double", whole))
    factor = f.let(f"fdiv double {literal(1.0, float64)}, {root}")
    return factor if t.bytes == 8 else f.let(f"fptrunc double {factor} to float")


def biased(
    f: LlvmFunction, t: AttentionTile, x: str, factor: str, bias: str, mask: DType | None
) -> str:
    """Scale a vector of scores and add the mask: -inf, whatever x, where a bool is False."""
    score = t.fma(f, x, factor, bias)
    if mask is None or not mask.is_bool:
        return score
    gone = t.constant(-math.inf)
    seen = f.let(f"fcmp oeq {t.vector} {bias}, {t.constant(0.0)}")
    return f.let(f"select <{t.lanes} x i1> {seen}, {t.vector} {score}, {t.vector} {gone}")


def masked(f: LlvmFunction, t: AttentionTile, score: str, column: str, limit: str) -> str:
    """Return a vector of scores, of `column` and those after it; -inf from the limit on."""
    kind = f"<{t.lanes} x i32>"
    left = f.let(f"trunc i64 {f.sub(limit, column)} to i32")
    one = f.let(f"insertelement {kind} poison, i32 {left}, i32 0")
    all_ = f.let(f"shufflevector {kind} {one}, {kind} poison, {kind} zeroinitializer")
    below = f.let(f"icmp slt {kind} {iota('i32', t.lanes)}, {all_}")
    gone = t.constant(-math.inf)
    return f.let(f"select <{t.lanes} x i1> {below}, {t.vector} {score}, {t.vector} {gone}")
