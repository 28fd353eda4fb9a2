"""`conv_steps`: the steps of a convolution, by one of several strategies.

Each strategy is an entry of `strategies_of`: a name, an estimate, and a function that makes steps.
The functions take the same arguments. Their steps write `product` if it is not None, and end with
`epilogue`.
"""

from __future__ import annotations

from functools import partial

from graphfw.ir.tensor import Node
from graphfw.ops.nn.convolution_ops import Conv
from graphfw.runtime.kernels.steps import Epilogue, Step, Storage, View
from graphfw.runtime.limits import Precision
from graphfw.runtime.numpy_executor.choice import Choose, Strategy, by_estimate
from graphfw.runtime.numpy_executor.codegen import Processor, host
from graphfw.runtime.numpy_executor.convolution.amx_steps import amx_strategies
from graphfw.runtime.numpy_executor.convolution.dims import SpatialDim
from graphfw.runtime.numpy_executor.convolution.lowering import (
    Convolution,
    multiply,
    multiply_seconds,
    slide,
)
from graphfw.runtime.numpy_executor.convolution.pixel_major_steps import pixel_major_strategies
from graphfw.runtime.numpy_executor.convolution.winograd import winograd_strategies
from graphfw.runtime.numpy_executor.matmul.amx import Form, Tiles, tiles_for

_BATCH = 16
"""The number of images that is assumed if it is not known and the weights are trained."""


def conv_steps(
    nodes: tuple[Node, ...],
    op: Conv,
    x: View,
    weight: View,
    product: Storage | None,
    epilogue: Epilogue | None,
    *,
    fixed_weight: bool = False,
    is_near: bool = False,
    winograd: bool = True,
    precision: Precision = "highest",
    tiles: Form | None = None,
    choose: Choose = by_estimate,
    target: Processor | None = None,
) -> list[Step]:
    """Return the steps of a convolution, [N, C, *S] and [O, C/G, *K] to [N, O, *positions].

    The views may have any strides; N, S and the positions may be symbolic.

    Args:
        nodes: The nodes that are computed, for reports.
        op: The convolution's options; see `why_not`.
        x: The images: float32, float64, or a float of 16 bits, as matrix products.
        weight: The weights, of the same dtype; all sizes are known.
        product: The storage of the result, contiguous; None where only the epilogue needs it.
        epilogue: The function of its elements: rows are images and outputs, joined or not, columns
            positions.
        fixed_weight: Whether the weight stays the same from run to run: then it is laid out once.
        is_near: Whether caches hold the weights of all that runs until this does again.
        winograd: Whether Winograd's algorithms may be used.
        precision: The precision of a float32 convolution by tiles.
        tiles: The matrix tiles; None for none.
        choose: The function that chooses among the strategies that fit.
        target: The processor; this machine's by default.
    """
    it = convolution(nodes, op, x, weight, fixed_weight=fixed_weight, target=target)
    it = it._replace(is_near=is_near, is_whole=epilogue is not None and epilogue.is_whole)
    by_tiles = None if tiles is None else tiles_for(tiles, x.storage.dtype, precision)
    return choose(
        strategies_of(
            it,
            product,
            epilogue,
            fixed_weight=fixed_weight,
            winograd=winograd,
            tiles=by_tiles,
        )
    )


def convolution(
    nodes: tuple[Node, ...],
    op: Conv,
    x: View,
    weight: View,
    *,
    fixed_weight: bool = True,
    target: Processor | None = None,
) -> Convolution:
    """Return a convolution; arguments are those of `conv_steps`."""
    facts = zip(
        *(x.shape[2:], x.strides[2:], op.output_sizes, weight.shape[2:]),
        *(op.strides, op.dilations, op.before),
        strict=True,
    )
    dims = [SpatialDim(*fact) for fact in facts]
    assert isinstance(op.groups, int)
    likely = 1 if fixed_weight else _BATCH
    return Convolution(nodes, dims, x, weight, op.groups, x.shape[0], target or host(), likely)


def strategies_of(
    it: Convolution,
    product: Storage | None,
    epilogue: Epilogue | None,
    *,
    fixed_weight: bool,
    winograd: bool,
    tiles: Tiles | None,
) -> list[Strategy]:
    """Return the strategies that fit. Where sizes are symbolic, estimates are for assumed ones."""
    if it.is_depthwise:
        return [Strategy("direct-window", 0, lambda: [slide(it, product, epilogue)])]
    direct = partial(multiply, it, product, epilogue, fixed_weight)
    found = [Strategy("direct", multiply_seconds(it, fixed=fixed_weight), direct)]
    found += pixel_major_strategies(it, product, epilogue, fixed_weight)
    if winograd:
        found += winograd_strategies(it, product, epilogue, fixed_weight)
    if tiles is not None and not it.is_whole:
        found += amx_strategies(it, tiles, product, epilogue, fixed_weight)
    return found
