"""Numbers in kernels that are only kept in a dtype: how its bytes are read and written.

Each is a byte. A float has its sign in front, then its exponent, then its mantissa, as in IEEE 754;
what differs is how many bits these have and what the last codes mean: see `_Format`. The formats
are those of the Open Compute Project (OFP8 1.0, MX 1.0), those with "uz" of Graphcore and AMD
(arXiv:2206.02915); where these leave something open, the results are ml_dtypes'.
"""

from __future__ import annotations

from typing import NamedTuple

from graphfw.ir.dtype import DType, float32, int32, uint8, uint32
from graphfw.runtime.kernels.ir import Expr
from graphfw.runtime.kernels.primitives import PrimitiveCalls


class _Format(NamedTuple):
    """The meaning of the codes of a float.

    Attributes:
        width: How many bits a code has, its sign included.
        mantissa: How many of these are the mantissa.
        bias: What the exponent is larger by.
        last: The code of the largest number; what lies after it are no numbers.
        beyond: The code of what is larger than that.
        nan: The code of NaN; where there is none, what it becomes: a zero.
        minus: Whether zero and NaN have a sign.
        infinite: Whether what is beyond is an infinity.
    """

    width: int
    mantissa: int
    bias: int
    last: int
    beyond: int
    nan: int
    minus: bool
    infinite: bool = False

    @property
    def sign(self) -> int:
        """The bit of the sign."""
        return 1 << (self.width - 1)

    @property
    def rest(self) -> int:
        """The number of bits by which the mantissa of a float32 is longer."""
        return 23 - self.mantissa

    @property
    def rebias(self) -> int:
        """The difference between the biases of the exponents of a float32 and this format."""
        return 127 - self.bias

    @property
    def least(self) -> float:
        """The least number above zero, of which all below 2^(1 - bias) are multiples."""
        return 2.0 ** (1 - self.bias - self.mantissa)


_FORMATS = {
    "float8_e4m3fn": _Format(8, 3, 7, 0x7E, 0x7F, 0x7F, True),
    "float8_e4m3fnuz": _Format(8, 3, 8, 0x7F, 0x80, 0x80, False),
    "float8_e5m2": _Format(8, 2, 15, 0x7B, 0x7C, 0x7E, True, True),
    "float8_e5m2fnuz": _Format(8, 2, 16, 0x7F, 0x80, 0x80, False),
    "float4_e2m1fn": _Format(4, 1, 1, 0x7, 0x7, 0x8, True),
}
_SIGN, _INFINITY, _QUIET = 0x8000_0000, 0x7F80_0000, 0x7FC0_0000
"""The bits of a float32: of its sign, of an infinity, of a quiet NaN."""


def decoded(k: PrimitiveCalls, x: Expr) -> Expr:
    """Return the number that is kept: a float32, or of integers an int32."""
    code, name = k.cast(k.bits(x, uint8), uint32), x.dtype.name
    if name in _FORMATS:
        return _float(k, code, _FORMATS[name])
    if name == "float8_e8m0fnu":
        return _power(k, code)
    width = x.dtype.bits
    if name.startswith("uint"):
        return k.bits(k.and_(code, 2**width - 1), int32)
    return k.shr(k.bits(k.shl(code, 32 - width), int32), 32 - width)  # which repeats the sign


def encoded(k: PrimitiveCalls, x: Expr, dtype: DType) -> Expr:
    """Return a number as it is kept: rounded to the nearest, halves to even; integers wrap."""
    if not dtype.holds_floats:
        code = k.and_(k.bits(k.cast(x, int32), uint32), 2**dtype.bits - 1)
    else:
        near = k.cast(x, float32)  # float64, too, as ml_dtypes converts it
        form = _FORMATS.get(dtype.name)
        code = _code_of_power(k, near) if form is None else _code(k, near, form)
    return k.bits(k.cast(code, uint8), dtype)


def _float(k: PrimitiveCalls, code: Expr, form: _Format) -> Expr:
    """Move exponent and mantissa to where a float32 has them; the smallest count the least one."""
    size = k.and_(code, form.sign - 1)
    normal = k.add(k.shl(size, form.rest), form.rebias << 23)
    small = k.bits(k.mul(k.cast(k.bits(size, int32), float32), form.least), uint32)
    found = k.select(k.lt(size, 1 << form.mantissa), small, normal)
    if form.last < form.beyond < form.sign:
        found = k.select(k.gt(size, form.last), _QUIET, found)
    if form.infinite:
        found = k.select(k.eq(size, form.beyond), _INFINITY, found)
    signed = k.or_(found, k.shl(k.and_(code, form.sign), 32 - form.width))
    if not form.minus:
        signed = k.select(k.eq(code, form.nan), k.const(_SIGN | _QUIET, uint32), signed)
    return k.bits(signed, float32)


def _code(k: PrimitiveCalls, x: Expr, form: _Format) -> Expr:
    """The way back: half of the last bit is added, and carries over; the smallest are counted."""
    whole = k.bits(x, uint32)
    size = k.and_(whole, _SIGN - 1)
    is_odd = k.and_(k.shr(size, form.rest), 1)
    near = k.add(k.add(size, (1 << (form.rest - 1)) - 1), is_odd)
    normal = k.sub(k.shr(near, form.rest), form.rebias << form.mantissa)
    count = k.round(k.mul(k.bits(size, float32), 1 / form.least))
    small = k.bits(k.cast(count, int32), uint32)
    found = k.select(k.lt(size, (form.rebias + 1) << 23), small, normal)
    found = k.select(k.gt(found, form.last), form.beyond, found)
    sign = k.shr(k.and_(whole, _SIGN), 32 - form.width)
    is_nan = k.gt(size, _INFINITY)
    if not form.minus:
        signed = k.select(k.eq(found, 0), found, k.or_(found, sign))
        return k.select(is_nan, form.nan, signed)
    if form.nan < form.sign:
        return k.or_(k.select(is_nan, form.nan, found), sign)
    return k.select(is_nan, k.xor(sign, form.nan), k.or_(found, sign))


def _power(k: PrimitiveCalls, code: Expr) -> Expr:
    """float8_e8m0fnu: the exponent of a float32 only, or NaN."""
    least = k.const(1 << 22, uint32)  # 2^-127, which no normal float32 is
    found = k.select(k.eq(code, 0), least, k.shl(code, 23))
    return k.bits(k.select(k.eq(code, 0xFF), _QUIET, found), float32)


def _code_of_power(k: PrimitiveCalls, x: Expr) -> Expr:
    """Halves go up, as all does between the two least powers; zero and less become NaN."""
    size = k.bits(x, uint32)
    normal = k.shr(k.add(size, 1 << 22), 23)
    small = k.cast(k.gt(size, 1 << 22), uint32)
    found = k.select(k.lt(size, 1 << 23), small, normal)
    is_some = k.and_(k.gt(k.bits(size, int32), 0), k.le(size, _INFINITY))
    return k.select(is_some, found, 0xFF)
