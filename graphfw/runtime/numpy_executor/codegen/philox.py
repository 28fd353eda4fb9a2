"""Random words in registers: the bits of `ops.numerics.philox`, computed where they are used.

`word` gives each lane an element of its own. `words` gives the lanes elements in a row: of four
32-bit words that a block has then none is lost. Where the first of them is inside of a block, one
more block is computed, of which the last lanes are.

A round keeps the four words of a counter in the lower halves of 64-bit lanes. What the upper halves
have does not matter: products are of the lower halves only.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.dtype import DType, uint64
from graphfw.runtime.numpy_executor.codegen.mathlib_writer import MathBody, Value
from graphfw.runtime.numpy_executor.codegen.registers import iota, register, splat, vector
from graphfw.runtime.numpy_executor.codegen.writer import Writer

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_INCREMENTS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_LOWER = 0xFFFFFFFF
_COMMON = 3 + 2 * (_ROUNDS - 1)
"""The number of values that are the same for all blocks: see `stream`."""


def stream(writer: Writer, drawn: str, key: str, lanes: int) -> str:
    """Write, outside of all loops, what all blocks of a stream at a step have in common.

    The first round takes two words of the counter that are the step's. So one of its products is
    the same for all blocks: that one, what its upper half makes of the round's key, and what the
    last word does; then the keys of the other rounds.

    Args:
        writer: Of the function.
        drawn: Where the step is, and then the keys.
        key: Which of what lies there is the key.
        lanes: How many blocks the function that takes it computes at once.

    Returns:
        All of it as arguments of that function.
    """
    step = writer.pure(f"load i64, ptr {drawn}", 0)
    both = writer.pure(f"getelementptr i64, ptr {drawn}, i64 {key}", 0)
    low = writer.pure(f"load i64, ptr {both}", 0)
    high = writer.pure(f"lshr i64 {low}, 32", 0)
    third = writer.pure(f"and i64 {step}, {_LOWER}", 0)
    fourth = writer.pure(f"lshr i64 {step}, 32", 0)
    product = writer.pure(f"mul i64 {third}, {_MULTIPLIERS[1]}", 0)
    upper = writer.pure(f"lshr i64 {product}, 32", 0)
    values = [
        product,
        *[writer.pure(f"xor i64 {a}, {b}", 0) for a, b in ((upper, low), (fourth, high))],
    ]
    values += [
        writer.pure(f"add i64 {word}, {number * increment}", 0)
        for number in range(1, _ROUNDS)
        for word, increment in zip((low, high), _KEY_INCREMENTS, strict=True)
    ]
    kind = vector("i64", lanes)
    return ", ".join([f"{kind} {_in_all(writer, value, lanes)}" for value in values])


def blocks_of(dtype: DType, count: int) -> int:
    """Return how many blocks as many elements have; 0 if that is no whole number of them."""
    words = count * dtype.itemsize // 4
    return 0 if words % 4 else words // 4


def definitions(name: str, symbol: str, dtype: DType, count: int) -> dict[str, str]:
    """Return the functions that `word` or `words` is: symbol -> text."""
    if name == "word":
        return {symbol: _word(symbol, dtype, count)}
    blocks = blocks_of(dtype, count)
    needed = {_blocks_symbol(n): _blocks(n) for n in (blocks, 1)}
    return needed | {symbol: _words(symbol, dtype, count, blocks)}


def _word(symbol: str, dtype: DType, lanes: int) -> str:
    """Return a function of elements' numbers, and of a stream."""
    m = MathBody(uint64, lanes)
    number, *common = [m.operand(i) for i in range(1 + _COMMON)]
    is_half = dtype.itemsize == 4
    first, second = _block(m, _right(number, 2 if is_half else 1), common)
    which = number & (2 if is_half else 1)
    result = m.select(which.differs(0), second, first)
    if is_half:
        result = m.select((number & 1).differs(0), _right(result, 32), result)
        result = m.convert("trunc", result, "i32")
    return m.function(symbol, 1 + _COMMON, result)


def _words(symbol: str, dtype: DType, count: int, blocks: int) -> str:
    """Return a function of the first element's number, and of a stream."""
    element = register(dtype)
    each = 16 // dtype.itemsize  # elements of a block
    wide, kind, one = vector("i64", blocks), vector(element, count), vector(element, each)
    names = [f"%x{i}" for i in range(_COMMON)]
    common = "".join([f", {wide} {name}" for name in names])
    singles = names
    lines = [
        f"%number = lshr i64 %first, {each.bit_length() - 1}",
        f"%shift = and i64 %first, {each - 1}",
        *_numbers(blocks),
        f"%pairs = call <{2 * blocks} x i64> @{_blocks_symbol(blocks)}({wide} %numbers{common})",
        f"%whole = bitcast <{2 * blocks} x i64> %pairs to {kind}",
        "%fits = icmp eq i64 %shift, 0",
        "br i1 %fits, label %done, label %more",
        "more:",
        f"%following = add i64 %number, {blocks}",
    ]
    if blocks > 1:
        singles = [f"%single{i}" for i in range(len(names))]
        lines += [
            f"{single} = extractelement {wide} {name}, i64 0"
            for single, name in zip(singles, names, strict=True)
        ]
    common = "".join([f", i64 {name}" for name in singles])
    order = [f"i32 {i}" if i < each else "i32 poison" for i in range(count)]
    cases = " ".join([f"i64 {by}, label %by{by}" for by in range(1, each)])
    lines += [
        f"%pair = call <2 x i64> @{_blocks_symbol(1)}(i64 %following{common})",
        f"%last = bitcast <2 x i64> %pair to {one}",
        f"%rest = shufflevector {one} %last, {one} poison, <{count} x i32> <{', '.join(order)}>",
        f"switch i64 %shift, label %by1 [{cases}]",
    ]
    sources = ["[ %whole, %entry ]"]
    for by in range(1, each):
        order = [f"i32 {i + by}" for i in range(count)]
        both = f"{kind} %whole, {kind} %rest"
        lines += [
            f"by{by}:",
            f"%result{by} = shufflevector {both}, <{count} x i32> <{', '.join(order)}>",
            "br label %done",
        ]
        sources.append(f"[ %result{by}, %by{by} ]")
    lines += ["done:", f"%result = phi {kind} {', '.join(sources)}", f"ret {kind} %result"]
    operands = "".join([f", {wide} {name}" for name in names])
    head = f"define internal {kind} @{symbol}(i64 %first{operands}) alwaysinline nounwind {{"
    return "\n".join([head, "entry:", *lines, "}", ""])


def _numbers(blocks: int) -> list[str]:
    """Return the lines that count the blocks in a row."""
    kind = vector("i64", blocks)
    if blocks == 1:
        return ["%numbers = add i64 %number, 0"]
    order = f"<{blocks} x i32> zeroinitializer"
    return [
        f"%begin = insertelement {kind} poison, i64 %number, i64 0",
        f"%begins = shufflevector {kind} %begin, {kind} poison, {order}",
        f"%numbers = add {kind} %begins, {iota('i64', blocks)}",
    ]


def _blocks_symbol(count: int) -> str:
    return f"math.blocks.{count}"


def _blocks(count: int) -> str:
    """Return a function of blocks' numbers and of a stream: their words, in order."""
    m = MathBody(uint64, count)
    number, *common = [m.operand(i) for i in range(1 + _COMMON)]
    first, second = _block(m, number, common)
    kind, result = vector("i64", count), f"<{2 * count} x i64>"
    if count == 1:
        one = m.let("", f"insertelement {result} poison, i64 {first.text}, i64 0").text
        text = f"insertelement {result} {one}, i64 {second.text}, i64 1"
    else:
        order = ", ".join([f"i32 {i}, i32 {i + count}" for i in range(count)])
        operands = f"{kind} {first.text}, {kind} {second.text}"
        text = f"shufflevector {operands}, <{2 * count} x i32> <{order}>"
    words = m.let("", text).text
    parameters = ", ".join([f"{kind} %x{i}" for i in range(1 + _COMMON)])
    head = f"define internal {result} @{_blocks_symbol(count)}({parameters}) alwaysinline nounwind"
    return "\n".join([f"{head} {{", "entry:", *m.lines, f"ret {result} {words}", "}", ""])


def _block(m: MathBody, number: Value, common: Sequence[Value]) -> tuple[Value, Value]:
    """Write the rounds; return the first two words and the last two, the first of each below."""
    product, upper, last, *keys = common
    own = (number & _LOWER) * _MULTIPLIERS[0]
    words = _right(number, 32) ^ upper, product, _right(own, 32) ^ last, own
    for key_a, key_b in zip(keys[::2], keys[1::2], strict=True):
        a, b, c, d = words
        product_a, product_b = (a & _LOWER) * _MULTIPLIERS[0], (c & _LOWER) * _MULTIPLIERS[1]
        words = (
            _right(product_b, 32) ^ b ^ key_a,
            product_b,
            _right(product_a, 32) ^ d ^ key_b,
            product_a,
        )
    a, b, c, d = words
    return _pair(a, b), _pair(c, d)


def _pair(low: Value, high: Value) -> Value:
    """Write lanes of two lower halves. By an order: LLVM would multiply again for a shift."""
    m, lanes = low.body, low.body.lanes
    halves = [m.let("", f"bitcast {x.type} {x.text} to <{2 * lanes} x i32>") for x in (low, high)]
    order = ", ".join([f"i32 {2 * i}, i32 {2 * (i + lanes)}" for i in range(lanes)])
    operands = ", ".join([f"<{2 * lanes} x i32> {half.text}" for half in halves])
    both = m.let("", f"shufflevector {operands}, <{2 * lanes} x i32> <{order}>")
    return m.let("i64", f"bitcast <{2 * lanes} x i32> {both.text} to {low.type}")


def _right(x: Value, distance: int) -> Value:
    """Shift without a sign."""
    return x.body.let(
        x.element, f"lshr {x.type} {x.text}, {splat(x.element, str(distance), x.body.lanes)}"
    )


def _in_all(writer: Writer, value: str, lanes: int) -> str:
    """Write an i64 to all lanes, outside of all loops."""
    if lanes == 1:
        return value
    kind = vector("i64", lanes)
    one = writer.pure(f"insertelement {kind} poison, i64 {value}, i64 0", 0)
    order = f"<{lanes} x i32> zeroinitializer"
    return writer.pure(f"shufflevector {kind} {one}, {kind} poison, {order}", 0)
