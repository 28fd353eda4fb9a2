"""Opsets: which of them have an operator, and which have a dtype for storage."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import TensorProto

from graphfw.ir.dtype import DType
from graphfw.onnx.errors import Unsupported, needs_opset
from graphfw.onnx.signature import schema_of
from graphfw.onnx.types import number_of

OPSETS = (17, 26)
"""The oldest and the newest opset that `save` writes."""

_SINCE = {
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"), 19),
    **{"int4": 21, "uint4": 21, "float4_e2m1fn": 23, "float8_e8m0fnu": 24, "int2": 25, "uint2": 25},
}
"""The first opset of each dtype for storage."""


def check_dtype(dtype: DType, opset: int) -> None:
    """Refuse a dtype that is newer than an opset.

    Raises:
        Unsupported: It is.
    """
    since = _SINCE.get(dtype.name, 0)
    if opset < since:
        raise needs_opset(dtype.name, since)


def check_opset(kind: str, opset: int) -> None:
    """Refuse an operator of ONNX's own domain that is newer than an opset.

    Raises:
        Unsupported: It is.
    """
    if schema_of("", kind, opset) is None:
        newer = range(opset + 1, OPSETS[1] + 1)
        raise needs_opset(kind, next(o for o in newer if schema_of("", kind, o) is not None))


def check_operator(
    kind: str, opset: int, inputs: Sequence[DType | None], outputs: Sequence[DType]
) -> None:
    """Refuse dtypes for storage where an operator of ONNX's own domain has none of them.

    Other dtypes are not checked: whoever writes a node knows which it has.

    Raises:
        Unsupported: It has none, in this opset or in any.
    """
    for dtypes, are_outputs in ((inputs, False), (outputs, True)):
        for index, dtype in enumerate(dtypes):
            if dtype is None or not dtype.is_storage:
                continue
            newer = range(opset, OPSETS[1] + 1)
            since = next((o for o in newer if _has(kind, o, are_outputs, index, dtype)), None)
            if since is None:
                raise Unsupported(
                    f"ONNX's {kind} has no {dtype.name}", "convert before: gf.astype(x, gf.float32)"
                )
            if since > opset:
                raise needs_opset(f"{kind} of {dtype.name}", since)


def _has(kind: str, opset: int, of_outputs: bool, index: int, dtype: DType) -> bool:
    schema = schema_of("", kind, opset)
    parameters = schema.outputs if of_outputs else schema.inputs
    types = parameters[min(index, len(parameters) - 1)].types  # the last may stand for many
    return f"tensor({TensorProto.DataType.Name(number_of(dtype)).lower()})" in types
