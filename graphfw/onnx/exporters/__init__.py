"""The ONNX forms of a graph's ops, one module a family; importing this one registers all."""

from graphfw.onnx.exporters import (
    composed,
    convolution,
    measured,
    movement,
    pairs,
    reduce,
    regions,
    selection,
    windows,
)

__all__ = [
    "composed",
    "convolution",
    "measured",
    "movement",
    "pairs",
    "reduce",
    "regions",
    "selection",
    "windows",
]
