"""ONNX's numbers for types."""

from __future__ import annotations

import onnx

import graphfw as gf
from graphfw.ir.dtype import DType, as_dtype
from graphfw.ir.tensor import Tensor
from graphfw.onnx.errors import OnnxError


def dtype_of(number: int) -> DType:
    """Return the dtype that ONNX has this number for.

    Raises:
        OnnxError: It is the number of no type, or of strings.
    """
    try:
        found = onnx.helper.tensor_dtype_to_np_dtype(number)
    except KeyError:
        raise OnnxError(f"{number} is the number of no type") from None
    return as_dtype(found)


def number_of(dtype: DType) -> int:
    """Return ONNX's number for a dtype."""
    return int(onnx.helper.np_dtype_to_tensor_dtype(dtype.dtype))


def converted(
    x: Tensor, wanted: DType, *, saturate: bool = True, round_mode: str = "nearest"
) -> Tensor:
    """Convert as ONNX's Cast does.

    Args:
        x: What to convert.
        wanted: The dtype. Integers of few bits wrap around.
        saturate: Floats of 8 bits and less take their largest number for what is beyond it.
        round_mode: To which power of two float8_e8m0fnu rounds: "nearest", "up" or "down".
    """
    if not wanted.is_storage or not x.dtype.is_floating:
        return gf.astype(x, wanted)
    if not wanted.holds_floats:
        return gf.astype(gf.astype(x, gf.int32), wanted)
    wide = gf.astype(x, gf.result_type(x.dtype, gf.float32))
    if saturate:
        wide = gf.clip(wide, *limits(wanted))
    made = gf.astype(wide, wanted)
    if wanted.name != "float8_e8m0fnu" or round_mode == "nearest":
        return made
    power = gf.astype(made, wide.dtype)
    if round_mode == "up":
        return gf.astype(gf.where(power < wide, power * 2, power), wanted)
    return gf.astype(gf.where(power > wide, power / 2, power), wanted)


def limits(dtype: DType) -> tuple[float, float]:
    """Return the least and the largest number of an integer dtype or of one for storage."""
    found = gf.finfo(dtype) if dtype.holds_floats else gf.iinfo(dtype)
    return float(found.min), float(found.max)
