"""The instructions of the primitive functions that are no library functions: see `scalars`."""

from __future__ import annotations

from graphfw.ir.dtype import DType, int32, int64
from graphfw.runtime.numpy_executor.codegen.halves import narrowed, widened
from graphfw.runtime.numpy_executor.codegen.registers import literal, register, splat, vector
from graphfw.runtime.numpy_executor.codegen.writer import Writer

_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INTEGER = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_COMPARE = {
    # Of floats, of signed integers, of unsigned integers and bools.
    "eq": ("oeq", "eq", "eq"),
    "ne": ("une", "ne", "ne"),
    "lt": ("olt", "slt", "ult"),
    "le": ("ole", "sle", "ule"),
    "gt": ("ogt", "sgt", "ugt"),
    "ge": ("oge", "sge", "uge"),
}
_INTRINSIC = {
    "sqrt": "sqrt",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "round": "roundeven",
    "copysign": "copysign",
}


class Primitives:
    """Writes primitive functions of operands with a number of lanes, at one level of a function."""

    def __init__(self, writer: Writer, lanes: int, level: int) -> None:
        self.writer = writer
        self.lanes = lanes
        self.level = level

    def call(self, function: str, dtype: DType, args: tuple[str, ...]) -> str:
        """Write a function that is no cast, of operands of a dtype; return the result's name."""
        kind = vector(register(dtype), self.lanes)
        if function in _COMPARE:
            return self.compare(function, dtype, args[0], args[1])
        if function == "select":
            return self.select(dtype, *args)
        if dtype.is_floating and function in _FLOAT:
            return self.let(f"{_FLOAT[function]} {kind} {args[0]}, {args[1]}")
        if not dtype.is_floating and function in _INTEGER:
            return self.let(f"{_INTEGER[function]} {kind} {args[0]}, {args[1]}")
        if function in ("max", "min"):
            return self.extreme(function, dtype, args[0], args[1])
        if function in _INTRINSIC:
            return self.intrinsic(_INTRINSIC[function], dtype, args)
        if function == "neg":
            negate = "fneg {0} {1}" if dtype.is_floating else "sub {0} {2}, {1}"
            return self.let(negate.format(kind, args[0], self.number(0, dtype)))
        if function == "abs":
            return self.abs(dtype, args[0])
        if function == "not":
            ones = "true" if dtype.is_bool else "-1"
            every = splat(register(dtype), ones, self.lanes)
            return self.let(f"xor {kind} {args[0]}, {every}")
        if function in ("shl", "shr"):
            return self.shift(function, dtype, args[0], args[1])
        raise ValueError(f"there is no instruction for {function} of {dtype}")

    def let(self, text: str) -> str:
        """Add an instruction."""
        return self.writer.pure(text, self.level)

    def number(self, value: bool | int | float, dtype: DType) -> str:
        """Return a constant in all lanes."""
        return splat(register(dtype), literal(value, dtype), self.lanes)

    def compare(self, function: str, dtype: DType, a: str, b: str) -> str:
        """Write a comparison."""
        of_floats, of_signed, of_unsigned = _COMPARE[function]
        kind = vector(register(dtype), self.lanes)
        if dtype.is_floating:
            return self.let(f"fcmp {of_floats} {kind} {a}, {b}")
        predicate = of_signed if dtype.kind == "int" else of_unsigned
        return self.let(f"icmp {predicate} {kind} {a}, {b}")

    def select(self, dtype: DType, condition: str, a: str, b: str) -> str:
        """Write a choice between two values."""
        kind, bits = vector(register(dtype), self.lanes), vector("i1", self.lanes)
        return self.let(f"select {bits} {condition}, {kind} {a}, {kind} {b}")

    def either(self, a: str, b: str) -> str:
        """Write the "or" of two conditions."""
        return self.let(f"or {vector('i1', self.lanes)} {a}, {b}")

    def intrinsic(self, name: str, dtype: DType, args: tuple[str, ...], flags: str = "") -> str:
        """Write a call of one of LLVM's functions of values of one dtype."""
        element = register(dtype)
        suffix = {"float": "f32", "double": "f64"}.get(element, element)
        lanes = f"v{self.lanes}" if self.lanes > 1 else ""
        kind = vector(element, self.lanes)
        operands = [(kind, arg) for arg in args]
        return self.writer.call(kind, f"llvm.{name}.{lanes}{suffix}", operands, self.level, flags)

    def extreme(self, function: str, dtype: DType, a: str, b: str) -> str:
        """Write max or min: NaN where there is one, of equals the second."""
        better = self.compare("gt" if function == "max" else "lt", dtype, a, b)
        best = self.select(dtype, better, a, b)
        if not dtype.is_floating:
            return best
        # In this order the first choice is one instruction, of x86 and of others.
        return self.select(dtype, self.is_nan(dtype, a), a, best)

    def is_nan(self, dtype: DType, a: str) -> str:
        """Write whether a float is NaN."""
        return self.let(f"fcmp uno {vector(register(dtype), self.lanes)} {a}, {a}")

    def abs(self, dtype: DType, a: str) -> str:
        """Write the magnitude."""
        if dtype.is_floating:
            return self.intrinsic("fabs", dtype, (a,))
        if dtype.kind == "uint":
            return a
        return self.extreme("max", dtype, a, self.call("neg", dtype, (a,)))

    def shift(self, function: str, dtype: DType, a: str, b: str) -> str:
        """Write a shift; as far as there are bits, or further, all of them go."""
        bits = dtype.itemsize * 8
        kind = vector(register(dtype), self.lanes)
        within = self.let(f"icmp ult {kind} {b}, {self.number(bits, dtype)}")
        if function == "shr" and dtype.kind == "int":
            distance = self.select(dtype, within, b, self.number(bits - 1, dtype))
            return self.let(f"ashr {kind} {a}, {distance}")
        distance = self.select(dtype, within, b, self.number(0, dtype))
        shifted = self.let(f"{'shl' if function == 'shl' else 'lshr'} {kind} {a}, {distance}")
        return self.select(dtype, within, shifted, self.number(0, dtype))

    def cast(self, source: DType, to: DType, a: str) -> str:
        """Write a conversion."""
        old, new = register(source), register(to)
        if to.is_low_precision:
            return self.rounded(to, a)
        if old == new and source.is_bool == to.is_bool:
            return a
        if to.is_bool:
            return self.compare("ne", source, a, self.number(0, source))
        if source.is_floating and to.is_integer:
            return self.to_integer(source, to, a)
        if source.is_floating:
            return self.convert(
                "fpext" if to.itemsize > source.itemsize else "fptrunc", a, old, new
            )
        if to.is_floating:
            return self.convert("sitofp" if source.kind == "int" else "uitofp", a, old, new)
        if to.itemsize < source.itemsize and not source.is_bool:
            return self.convert("trunc", a, old, new)
        return self.convert("sext" if source.kind == "int" else "zext", a, old, new)

    def bits(self, source: DType, to: DType, a: str) -> str:
        """Write the same bits as another dtype."""
        old, new = register(source), register(to)
        return a if old == new else self.convert("bitcast", a, old, new)

    def convert(self, instruction: str, a: str, old: str, new: str) -> str:
        """Write a conversion between register types by one instruction."""
        kinds = vector(old, self.lanes), vector(new, self.lanes)
        return self.let(f"{instruction} {kinds[0]} {a} to {kinds[1]}")

    def to_integer(self, source: DType, to: DType, a: str) -> str:
        """Write a conversion of floats to integers, by way of int32 or int64 as C compilers do."""
        new = register(to)
        if to.name == "uint64":
            return self.to_uint64(source, a)
        whole = int64 if to.itemsize == 8 or to.name == "uint32" else int32
        value = self.truncated(source, whole, a)
        return (
            value if register(whole) == new else self.convert("trunc", value, register(whole), new)
        )

    def truncated(self, source: DType, to: DType, a: str) -> str:
        """Write a conversion to int32 or int64. Frozen, as out of range anything may come out."""
        value = self.convert("fptosi", a, register(source), register(to))
        return self.let(f"freeze {vector(register(to), self.lanes)} {value}")

    def to_uint64(self, source: DType, a: str) -> str:
        """Write a conversion to uint64: numbers from 2^63 on without their highest bit first."""
        half = self.number(2.0**63, source)
        large = self.compare("ge", source, a, half)
        low = self.truncated(source, int64, a)
        rest = self.truncated(source, int64, self.call("sub", source, (a, half)))
        top = self.number(-(2**63), int64)
        high = self.let(f"xor {vector('i64', self.lanes)} {rest}, {top}")
        return self.select(int64, large, high, low)

    def rounded(self, to: DType, a: str) -> str:
        """Write a float32 rounded to a float of 16 bits; it remains in float32's form."""
        bits = narrowed(self.let, to, self.lanes, a)
        value = widened(self.let, to, self.lanes, bits)
        self.writer.stored_form[value] = bits
        return value

    def from_memory(self, dtype: DType, a: str) -> str:
        """Turn what a load gives into register content."""
        if dtype.is_bool:
            return self.let(
                f"icmp ne {vector('i8', self.lanes)} {a}, {splat('i8', '0', self.lanes)}"
            )
        return widened(self.let, dtype, self.lanes, a) if dtype.is_low_precision else a

    def to_memory(self, dtype: DType, a: str) -> str:
        """Turn register content into what is stored."""
        if dtype.is_bool:
            return self.convert("zext", a, "i1", "i8")
        if not dtype.is_low_precision:
            return a
        known = self.writer.stored_form.get(a)
        return narrowed(self.let, dtype, self.lanes, a) if known is None else known
