"""Elements in registers: loaded, stored, added and multiplied, one or some at a time.

Floats of 16 bits are computed in float32.
"""

from __future__ import annotations

from graphfw.ir.dtype import DType, bfloat16, float16
from graphfw.runtime.numpy_executor.special.text import Writer

_FLOATS = {"float16": "half", "bfloat16": "i16", "float32": "float", "float64": "double"}


class Number:
    """Values of a dtype, `lanes` at a time.

    Attributes:
        dtype: What it is in memory.
        stored: The type of one in memory, in LLVM's words.
        single: The type of one in a register.
        kind: The type of `lanes` in registers.
        nbytes: How many bytes one has in a register.
    """

    def __init__(self, dtype: DType, lanes: int = 1) -> None:
        self.dtype = dtype
        self.lanes = lanes
        self.stored = _FLOATS.get(dtype.name, f"i{8 * dtype.itemsize}")
        self.single = "float" if dtype.is_low_precision else self.stored
        self.kind = self._of(self.single)
        self.nbytes = 4 if dtype.is_low_precision else dtype.itemsize
        self._is_float = dtype.name in _FLOATS

    def load(self, f: Writer, address: str) -> str:
        """Load, and widen."""
        align = self.dtype.itemsize
        value = f.let(f"load {self._of(self.stored)}, ptr {address}, align {align}")
        if self.dtype is float16:
            return f.let(f"fpext {self._of('half')} {value} to {self.kind}")
        if self.dtype is not bfloat16:
            return value
        wide = f.let(f"zext {self._of('i16')} {value} to {self._of('i32')}")
        upper = f.let(f"shl {self._of('i32')} {wide}, {self._all('i32', 16)}")
        return f.let(f"bitcast {self._of('i32')} {upper} to {self.kind}")

    def store(self, f: Writer, value: str, address: str) -> None:
        """Round to the dtype, and store."""
        if self.dtype is float16:
            value = f.let(f"fptrunc {self.kind} {value} to {self._of('half')}")
        elif self.dtype is bfloat16:
            value = self._bfloat(f, value)
        align = self.dtype.itemsize
        f.do(f"store {self._of(self.stored)} {value}, ptr {address}, align {align}")

    def add(self, f: Writer, a: str, b: str) -> str:
        """The sum; that of integers wraps around."""
        return f.let(f"{'fadd' if self._is_float else 'add'} {self.kind} {a}, {b}")

    def multiply(self, f: Writer, a: str, b: str) -> str:
        """The product."""
        return f.let(f"{'fmul' if self._is_float else 'mul'} {self.kind} {a}, {b}")

    def constant(self, value: float) -> str:
        """The same small whole number, which may be -0.0, in all lanes."""
        text = repr(float(value)) if self._is_float else str(int(value))
        return self._all(self.single, text)

    def choose(self, f: Writer, condition: str, a: str, b: str) -> str:
        """One of two, by an i1."""
        return f.let(f"select i1 {condition}, {self.kind} {a}, {self.kind} {b}")

    def _of(self, kind: str) -> str:
        return kind if self.lanes == 1 else f"<{self.lanes} x {kind}>"

    def _all(self, kind: str, value: object) -> str:
        if self.lanes == 1:
            return str(value)
        return "<" + ", ".join([f"{kind} {value}"] * self.lanes) + ">"

    def _bfloat(self, f: Writer, value: str) -> str:
        """The bits of float32s rounded to bfloat16, halves to even.

        By integers: the instruction that there is for it drops numbers that are not normal.
        """
        kind, mask = self._of("i32"), self._of("i1")
        bits = f.let(f"bitcast {self.kind} {value} to {kind}")
        upper = f.let(f"lshr {kind} {bits}, {self._all('i32', 16)}")
        odd = f.let(f"and {kind} {upper}, {self._all('i32', 1)}")
        bias = f.let(f"add {kind} {odd}, {self._all('i32', 0x7FFF)}")
        near = f.let(f"add {kind} {bits}, {bias}")
        rounded = f.let(f"lshr {kind} {near}, {self._all('i32', 16)}")
        # The sum would carry a NaN over into an infinity or a zero: its upper half, made quiet.
        quiet = f.let(f"or {kind} {upper}, {self._all('i32', 0x40)}")
        nan = f.let(f"fcmp uno {self.kind} {value}, {value}")
        chosen = f.let(f"select {mask} {nan}, {kind} {quiet}, {kind} {rounded}")
        return f.let(f"trunc {kind} {chosen} to {self._of('i16')}")
