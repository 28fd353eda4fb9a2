"""Packing keys and values for the forward kernel."""

from __future__ import annotations

from graphfw.runtime.numpy_executor.attention.layout import AttentionParams, operands
from graphfw.runtime.numpy_executor.attention.tile import (
    AttentionTile,
    define_panels,
    define_stage,
)
from graphfw.runtime.numpy_executor.codegen import RecordCode
from graphfw.runtime.numpy_executor.codegen.llvm_module import LlvmFunction, LlvmModule
from graphfw.utils.records import record

KEYS = 256
"""The number of keys of a block."""


@record
class PackKeysCode(RecordCode):
    """The kernel that packs keys into panels, and values where they are not dense.

    A work item packs a block of keys of one head. Operands: k, v, packed keys, packed values.

    Attributes:
        tile: The shape of the tiles that read it.
        lead: The number of leading dims.
    """

    tile: AttentionTile
    lead: int

    @property
    def layout(self) -> AttentionParams:
        """The arguments; `blocks` is the number of a head's work items."""
        sizes = ("keys", "width", "value_width", "blocks")
        return AttentionParams(sizes, self.lead, ("k", "v"))

    def llvm(self, symbol: str) -> str:
        t, module = self.tile, LlvmModule()
        define_stage(module, t)
        define_panels(module, t)
        f = LlvmFunction(module)
        n = self.layout.loaded(f)
        at = operands(f, ("k", "v", "keys", "values"))
        head, block = f.div("%work_item", n["blocks"]), f.rem("%work_item", n["blocks"])
        start = self.layout.starts(f, n, head, ("k", "v"))
        k, v = (f.at(t.element, at[name], start[name]) for name in ("k", "v"))
        key = f.mul(block, str(KEYS))
        to_keys = f.at(t.kind, packed_keys(f, t, n, at["keys"], head), f.mul(key, n["width"]))
        values = packed_values(f, t, n, at["values"], head)
        to_values = f.at(t.kind, values, f.mul(key, f.whole(n["value_width"], t.columns)))
        pack_block(f, t, n, k, v, key, to_keys, to_values)
        return f.work_item(symbol)


def packed_keys(f: LlvmFunction, t: AttentionTile, n: dict[str, str], begin: str, head: str) -> str:
    """Return the address of a head's packed keys."""
    room = f.mul(f.whole(n["keys"], t.columns), n["width"])
    return f.at(t.kind, begin, f.mul(head, room))


def packed_values(
    f: LlvmFunction, t: AttentionTile, n: dict[str, str], begin: str, head: str
) -> str:
    """Return the address of a head's packed values."""
    room = f.mul(n["keys"], f.whole(n["value_width"], t.columns))
    return f.at(t.kind, begin, f.mul(head, room))


def lies_dense(f: LlvmFunction, t: AttentionTile, n: dict[str, str]) -> str:
    """Return whether values need no packing: rows are whole tiles of neighbouring columns."""
    if t.dtype is not t.wide:
        return "false"
    rest = f.rem(n["value_width"], str(t.columns))
    full = f.let(f"icmp eq i64 {rest}, 0")
    return f.let(f"and i1 {full}, {f.let('icmp eq i64 ' + n['v.col'] + ', 1')}")


def pack_block(
    f: LlvmFunction,
    t: AttentionTile,
    n: dict[str, str],
    k: str,
    v: str,
    key: str,
    to_keys: str,
    to_values: str,
) -> None:
    """Pack the block of keys from `key` on, by functions of `define_stage` and `define_panels`.

    Args:
        f: The function's body.
        t: The shape of the tiles that read it.
        n: The run-time integers.
        k: The address of the head's keys.
        v: The address of its values.
        key: The block's first key.
        to_keys: The address of its panels.
        to_values: The address of its packed values, if they are not dense.
    """
    count = f.low(str(KEYS), f.sub(n["keys"], key))
    source = f.at(t.element, k, f.mul(key, n["k.row"]))
    sizes = f"i64 {count}, i64 {n['width']}, i64 {n['k.row']}, i64 {n['k.col']}"
    f.do(f"call void @panels(ptr {to_keys}, ptr {source}, {sizes})")
    with f.when(f.let(f"xor i1 {lies_dense(f, t, n)}, true")):
        padded = f.whole(n["value_width"], t.columns)
        source = f.at(t.element, v, f.mul(key, n["v.row"]))
        sizes = f"i64 {count}, i64 {count}, i64 {n['value_width']}, i64 {padded}"
        strides = f"i64 {n['v.row']}, i64 {n['v.col']}"
        f.do(f"call void @stage(ptr {to_values}, ptr {source}, {sizes}, {strides})")
