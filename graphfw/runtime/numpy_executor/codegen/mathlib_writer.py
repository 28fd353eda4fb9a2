"""`MathBody` and `Value`: formulas in Python that become one LLVM function on vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from graphfw.ir.dtype import DType, float32, float64
from graphfw.runtime.numpy_executor.codegen.registers import literal, register, splat, vector
from graphfw.runtime.numpy_executor.codegen.target import AVX512, host

_BITS = {"float": "i32", "double": "i64"}
_DTYPE = {"float": float32, "double": float64}
_FLOAT_COMPARISONS = {"<": "olt", "<=": "ole", ">": "ogt", ">=": "oge", "==": "oeq", "!=": "une"}
_SIGNED_COMPARISONS = {"<": "slt", "<=": "sle", ">": "sgt", ">=": "sge", "==": "eq", "!=": "ne"}

Number: TypeAlias = "Value | int | float"


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """A vector in a register, or a scalar where there is one lane.

    The operators are those of Python; comparisons are methods, and between integers signed; `>>` of
    integers keeps the sign. A number as an operand stands for a vector of it.

    Attributes:
        body: The function it belongs to.
        element: The LLVM type of a lane.
        text: Its name, or a constant.
    """

    body: MathBody
    element: str
    text: str

    @property
    def is_float(self) -> bool:
        """Whether it is no integer and no condition."""
        return self.element in _BITS

    def __add__(self, other: Number) -> Value:
        return self._arithmetic("fadd", "add", other)

    def __radd__(self, other: int | float) -> Value:
        return self.body.constant(other, self.element) + self

    def __sub__(self, other: Number) -> Value:
        return self._arithmetic("fsub", "sub", other)

    def __rsub__(self, other: int | float) -> Value:
        return self.body.constant(other, self.element) - self

    def __mul__(self, other: Number) -> Value:
        return self._arithmetic("fmul", "mul", other)

    def __rmul__(self, other: int | float) -> Value:
        return self.body.constant(other, self.element) * self

    def __truediv__(self, other: Number) -> Value:
        return self._arithmetic("fdiv", "", other)

    def __rtruediv__(self, other: int | float) -> Value:
        return self.body.constant(other, self.element) / self

    def __neg__(self) -> Value:
        if self.is_float:
            return self.body.let(self.element, f"fneg {self.type} {self.text}")
        return 0 - self

    def __and__(self, other: Number) -> Value:
        return self._arithmetic("", "and", other)

    def __or__(self, other: Number) -> Value:
        return self._arithmetic("", "or", other)

    def __xor__(self, other: Number) -> Value:
        return self._arithmetic("", "xor", other)

    def __lshift__(self, other: int) -> Value:
        return self._arithmetic("", "shl", other)

    def __rshift__(self, other: int) -> Value:
        return self._arithmetic("", "ashr", other)

    def __lt__(self, other: Number) -> Value:
        return self._compare("<", other)

    def __le__(self, other: Number) -> Value:
        return self._compare("<=", other)

    def __gt__(self, other: Number) -> Value:
        return self._compare(">", other)

    def __ge__(self, other: Number) -> Value:
        return self._compare(">=", other)

    def equals(self, other: Number) -> Value:
        """Return whether they are equal; NaN is not."""
        return self._compare("==", other)

    def differs(self, other: Number) -> Value:
        """Return whether they are not equal."""
        return self._compare("!=", other)

    @property
    def type(self) -> str:
        """Its LLVM type."""
        return vector(self.element, self.body.lanes)

    def _arithmetic(self, of_floats: str, of_integers: str, other: Number) -> Value:
        instruction = of_floats if self.is_float else of_integers
        second = self.body.constant(other, self.element)
        return self.body.let(self.element, f"{instruction} {self.type} {self.text}, {second.text}")

    def _compare(self, sign: str, other: Number) -> Value:
        second = self.body.constant(other, self.element).text
        comparison = (
            f"fcmp {_FLOAT_COMPARISONS[sign]}"
            if self.is_float
            else f"icmp {_SIGNED_COMPARISONS[sign]}"
        )
        return self.body.let("i1", f"{comparison} {self.type} {self.text}, {second}")


class MathBody:
    """The body of a function that is being written.

    Attributes:
        dtype: Of the function's operands.
        lanes: How many elements each operand has.
        declarations: The functions of LLVM and of the C library in use: symbol -> declaration.
        helpers: The functions beside it that it calls: symbol -> definition.
    """

    def __init__(self, dtype: DType, lanes: int) -> None:
        self.dtype = dtype
        self.lanes = lanes
        self.declarations: dict[str, str] = {}
        self.helpers: dict[str, str] = {}
        self.lines: list[str] = []
        self._block = "entry"

    @property
    def is_double(self) -> bool:
        """Whether the operands are float64."""
        return self.dtype is float64

    def pick(self, single: float, double: float) -> float:
        """Return the number for float32 or for float64."""
        return double if self.is_double else single

    def operand(self, number: int) -> Value:
        """Return one of the function's operands."""
        return Value(self, register(self.dtype), f"%x{number}")

    def constant(self, value: Number, element: str) -> Value:
        """Return a number in all lanes; values stay as they are."""
        if isinstance(value, Value):
            return value
        text = literal(value, _DTYPE[element]) if element in _DTYPE else str(value)
        return Value(self, element, splat(element, text, self.lanes))

    def let(self, element: str, text: str) -> Value:
        """Add an instruction."""
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return Value(self, element, name)

    def intrinsic(self, name: str, *args: Value) -> Value:
        """Call one of LLVM's functions of values of one type."""
        first = args[0]
        suffix = {"float": "f32", "double": "f64"}.get(first.element, first.element)
        symbol = f"llvm.{name}.{f'v{self.lanes}' if self.lanes > 1 else ''}{suffix}"
        return self._call(first.type, first.element, symbol, args)

    def _call(self, result: str, element: str, symbol: str, args: tuple[Value, ...]) -> Value:
        types = ", ".join([arg.type for arg in args])
        self.declarations[symbol] = f"declare {result} @{symbol}({types})"
        values = ", ".join([f"{arg.type} {arg.text}" for arg in args])
        return self.let(element, f"call {result} @{symbol}({values})")

    # What formulas are written with.

    def fma(self, a: Value, b: Number, c: Number) -> Value:
        """Return a b + c, rounded once."""
        return self.intrinsic("fma", a, self.constant(b, a.element), self.constant(c, a.element))

    @property
    def can_scale(self) -> bool:
        """Whether there is an instruction for `scaled`: only whole registers of AVX-512 have it."""
        return self.lanes * self.dtype.itemsize == AVX512.vector_bytes and host() is AVX512

    def scaled(self, x: Value, exponent: Value) -> Value:
        """Return x 2^n of a whole number n, rounded once; only where `can_scale`."""
        kind = f"p{'d' if self.is_double else 's'}.512"
        mask = "i8" if self.is_double else "i16"
        symbol = f"llvm.x86.avx512.mask.scalef.{kind}"
        types = f"{x.type}, {x.type}, {x.type}, {mask}, i32"
        self.declarations[symbol] = f"declare {x.type} @{symbol}({types})"
        # No lane is masked; 4 is rounding as it is set.
        operands = f"{x.type} {x.text}, {x.type} {exponent.text}, {x.type} {x.text}"
        return self.let(x.element, f"call {x.type} @{symbol}({operands}, {mask} -1, i32 4)")

    def polynomial(self, x: Value, coefficients: tuple[float, ...]) -> Value:
        """Return the polynomial with these coefficients, the constant first, by Horner's rule."""
        result = self.constant(coefficients[-1], x.element)
        for coefficient in coefficients[-2::-1]:
            result = self.fma(result, x, coefficient)
        return result

    def sqrt(self, x: Value) -> Value:
        """Return the square root."""
        return self.intrinsic("sqrt", x)

    def abs(self, x: Value) -> Value:
        """Return the magnitude of a float."""
        return self.intrinsic("fabs", x)

    def copysign(self, size: Value, sign: Value) -> Value:
        """Return the magnitude of one with the sign of the other."""
        return self.intrinsic("copysign", size, sign)

    def select(self, condition: Value, a: Number, b: Number) -> Value:
        """Return a where the condition holds, else b."""
        element = a.element if isinstance(a, Value) else b.element if isinstance(b, Value) else ""
        if not element:
            element = register(self.dtype)
        first, second = self.constant(a, element), self.constant(b, element)
        operands = f"{first.type} {first.text}, {second.type} {second.text}"
        return self.let(element, f"select {condition.type} {condition.text}, {operands}")

    def negated(self, condition: Value) -> Value:
        """Return where a condition does not hold."""
        ones = splat("i1", "true", self.lanes)
        return self.let("i1", f"xor {condition.type} {condition.text}, {ones}")

    def at_most(self, x: Value, limit: float) -> Value:
        """Return x, or the limit if x is larger; NaN stays."""
        return self.select(x > limit, limit, x)

    def at_least(self, x: Value, limit: float) -> Value:
        """Return x, or the limit if x is smaller; NaN stays."""
        return self.select(x < limit, limit, x)

    def convert(self, instruction: str, x: Value, element: str) -> Value:
        """Convert to another type of lanes: `sitofp`, `bitcast`, ..."""
        return self.let(
            element, f"{instruction} {x.type} {x.text} to {vector(element, self.lanes)}"
        )

    def bits(self, x: Value) -> Value:
        """Return the bits of a float, as an integer."""
        return self.convert("bitcast", x, _BITS[x.element])

    def of_bits(self, x: Value) -> Value:
        """Return the float that has these bits."""
        return self.convert("bitcast", x, "float" if x.element == "i32" else "double")

    # The C library.

    def each_lane(self, function: str, *args: Value) -> Value:
        """Call a function of the C library for each lane."""
        first = args[0]
        scalar, kind = first.element, first.type
        types = ", ".join([scalar] * len(args))
        self.declarations[function] = f"declare {scalar} @{function}({types})"
        values = ", ".join([f"{kind} {arg.text}" for arg in args])
        if self.lanes == 1:
            return self.let(scalar, f"call {scalar} @{function}({values})")
        symbol = f"each.{function}.{self.lanes}"
        self.helpers[symbol] = _loop_over_lanes(symbol, function, scalar, self.lanes, len(args))
        return self.let(scalar, f"call {kind} @{symbol}({values})")

    def each_lane_where(
        self, condition: Value, function: str, args: tuple[Value, ...], usual: Value
    ) -> Value:
        """Return the usual value, and where the condition holds the C library's function's."""
        return self.where_rare(condition, lambda: self.each_lane(function, *args), usual)

    def where_rare(self, condition: Value, other: Callable[[], Value], usual: Value) -> Value:
        """Return the usual value, and where the condition holds another one.

        The other is computed only if some lane needs it; lanes do not depend on each other.
        """
        any_lane = self._any(condition)
        before, number = self._block, len(self.lines)
        rare, done = f"rare{number}", f"done{number}"
        self.lines += [f"br i1 {any_lane}, label %{rare}, label %{done}", f"{rare}:"]
        self._block = rare
        chosen = self.select(condition, other(), usual)
        self.lines += [f"br label %{done}", f"{done}:"]
        sources = f"[ {usual.text}, %{before} ], [ {chosen.text}, %{self._block} ]"
        self._block = done
        return self.let(usual.element, f"phi {usual.type} {sources}")

    def repeat(
        self,
        values: tuple[Value, ...],
        again: Callable[..., Value],
        step: Callable[..., tuple[Value, ...]],
    ) -> tuple[Value, ...]:
        """Replace values by `step(*values)` as long as `again(*values)` holds in some lane."""
        before, number = self._block, len(self.lines)
        names = [f"loop{number}", f"step{number}", f"done{number}"]
        self.lines += [f"br label %{names[0]}", f"{names[0]}:"]
        start = len(self.lines)
        current = tuple([self.let(value.element, "") for value in values])
        go_on = self._any(again(*current))
        self.lines += [f"br i1 {go_on}, label %{names[1]}, label %{names[2]}", f"{names[1]}:"]
        following = step(*current)
        for index, (old, now, new) in enumerate(zip(values, current, following, strict=True)):
            sources = f"[ {old.text}, %{before} ], [ {new.text}, %{names[1]} ]"
            self.lines[start + index] = f"{now.text} = phi {now.type} {sources}"
        self.lines += [f"br label %{names[0]}", f"{names[2]}:"]
        self._block = names[2]
        return current

    def _any(self, condition: Value) -> str:
        """Return the name of a single bit: whether the condition holds in some lane."""
        if self.lanes == 1:
            return condition.text
        symbol = f"llvm.vector.reduce.or.v{self.lanes}i1"
        self.declarations[symbol] = f"declare i1 @{symbol}({condition.type})"
        return self.let("i1", f"call i1 @{symbol}({condition.type} {condition.text})").text

    def function(self, symbol: str, operands: int, result: Value) -> str:
        """Return the definition of the function, given its result."""
        kind = vector(register(self.dtype), self.lanes)
        parameters = ", ".join([f"{kind} %x{i}" for i in range(operands)])
        head = f"define internal {result.type} @{symbol}({parameters}) alwaysinline nounwind {{"
        return "\n".join([head, "entry:", *self.lines, f"ret {result.type} {result.text}", "}", ""])


def _loop_over_lanes(symbol: str, function: str, scalar: str, lanes: int, operands: int) -> str:
    """Return a function on vectors that calls a scalar function for each lane."""
    kind = vector(scalar, lanes)
    each = range(operands)
    lines = [
        f"define internal {kind} @{symbol}({', '.join([f'{kind} %x{i}' for i in each])})"
        " noinline cold nounwind {",
        "entry:",
        f"%out = alloca {kind}",
        *[f"%in{i} = alloca {kind}" for i in each],
        *[f"store {kind} %x{i}, ptr %in{i}" for i in each],
        "br label %loop",
        "loop:",
        "%lane = phi i64 [ 0, %entry ], [ %next, %loop ]",
        *[f"%at{i} = getelementptr {scalar}, ptr %in{i}, i64 %lane" for i in each],
        *[f"%a{i} = load {scalar}, ptr %at{i}" for i in each],
        f"%y = call {scalar} @{function}({', '.join([f'{scalar} %a{i}' for i in each])})",
        f"%to = getelementptr {scalar}, ptr %out, i64 %lane",
        f"store {scalar} %y, ptr %to",
        "%next = add i64 %lane, 1",
        f"%again = icmp ult i64 %next, {lanes}",
        "br i1 %again, label %loop, label %done",
        "done:",
        f"%result = load {kind}, ptr %out",
        f"ret {kind} %result",
        "}",
        "",
    ]
    return "\n".join(lines)
