"""What the ops of a graph are in ONNX, one module a family; importing this one registers all."""

from graphfw.onnx.exporters import (
    composed,
    convolution,
    elementwise,
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
    "elementwise",
    "measured",
    "movement",
    "pairs",
    "reduce",
    "regions",
    "selection",
    "windows",
]
