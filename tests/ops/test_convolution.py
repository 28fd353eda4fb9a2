"""Convolutions against PyTorch, each way of gf.vmap against a loop, sizes, dtypes, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, ShapeError
from graphfw.ops.nn import convolution_ops
from graphfw.ops.nn.convolution_ops import Conv, ConvWeight, tied
from tests.support.peers import check_like_torch, torch

TF = torch.nn.functional
CONV = {1: TF.conv1d, 2: TF.conv2d, 3: TF.conv3d}
TRANSPOSE = {1: TF.conv_transpose1d, 2: TF.conv_transpose2d, 3: TF.conv_transpose3d}


def arguments(rng: np.random.Generator, rank: int) -> dict[str, Any]:
    return {
        "stride": rng.integers(1, 4, rank).tolist(),
        "padding": rng.integers(0, 3, rank).tolist(),
        "dilation": rng.integers(1, 3, rank).tolist(),
        "groups": int(rng.choice([1, 1, 2, 3])),
    }


def sizes(rng: np.random.Generator, kernel: list[int], how: dict[str, Any]) -> list[int]:
    """Draw spatial sizes, some as small as they can be."""
    facts = zip(kernel, how["padding"], how["dilation"], strict=True)
    least = [max(d * (k - 1) + 1 - 2 * p, 1) for k, p, d in facts]
    return [size + int(rng.integers(0, 5)) for size in least]


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", range(8))
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_conv(rank: int, case: int, rng: np.random.Generator) -> None:
    how = arguments(rng, rank)
    kernel = rng.integers(1, 4, rank).tolist()
    inputs, outputs = rng.integers(1, 3, 2).tolist()
    groups, batch = how["groups"], case % 4
    x = rng.normal(size=(batch, inputs * groups, *sizes(rng, kernel, how)))
    w = rng.normal(size=(outputs * groups, inputs, *kernel))
    b = rng.normal(size=outputs * groups)
    check_like_torch(
        lambda x, w, b: gf.conv(x, w, b, **how), lambda x, w, b: CONV[rank](x, w, b, **how), x, w, b
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", range(8))
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_conv_transpose(rank: int, case: int, rng: np.random.Generator) -> None:
    how = arguments(rng, rank)
    kernel = rng.integers(1, 4, rank).tolist()
    reach = zip(how["stride"], how["dilation"], strict=True)
    how["output_padding"] = [int(rng.integers(0, max(pair))) for pair in reach]
    facts = zip(kernel, *[how[k] for k in ("stride", "padding", "dilation")], strict=True)
    space = [int(rng.integers(1, 4)) + -(-2 * p // s) for k, s, p, d in facts]
    inputs, outputs = rng.integers(1, 3, 2).tolist()
    groups, batch = how["groups"], case % 4
    x = rng.normal(size=(batch, inputs * groups, *space))
    w = rng.normal(size=(inputs * groups, outputs, *kernel))
    b = rng.normal(size=outputs * groups)
    check_like_torch(
        lambda x, w, b: gf.conv_transpose(x, w, b, **how),
        lambda x, w, b: TRANSPOSE[rank](x, w, b, **how),
        x,
        w,
        b,
    )


def test_depthwise(rng: np.random.Generator) -> None:
    x, w = rng.normal(size=(2, 5, 6, 7)), rng.normal(size=(10, 1, 3, 3))
    check_like_torch(
        lambda x, w: gf.conv(x, w, groups=5, padding=1),
        lambda x, w: TF.conv2d(x, w, groups=5, padding=1),
        x,
        w,
    )


def test_uneven_padding(rng: np.random.Generator) -> None:
    x, w = rng.normal(size=(2, 2, 4, 5)), rng.normal(size=(3, 2, 3, 2))
    check_like_torch(
        lambda x, w: gf.conv(x, w, padding=((0, 2), (3, 1))),
        lambda x, w: TF.conv2d(TF.pad(x, (3, 1, 0, 2)), w),
        x,
        w,
    )
    np.testing.assert_allclose(
        gf.conv_transpose(x, w.swapaxes(0, 1), padding=((0, 2), (1, 0))).numpy(),
        TF.conv_transpose2d(torch.tensor(x), torch.tensor(w.swapaxes(0, 1)))[:, :, :-2, 1:],
        rtol=1e-9,
    )


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("size", [1, 2, 5, 6])
@pytest.mark.parametrize(("kernel", "dilation"), [(1, 1), (2, 1), (3, 2), (4, 1)])
def test_same_and_valid(size: int, kernel: int, dilation: int, rng: np.random.Generator) -> None:
    x, w = rng.normal(size=(1, 2, size)), rng.normal(size=(2, 2, kernel))
    check_like_torch(
        lambda x, w: gf.conv(x, w, padding="same", dilation=dilation),
        lambda x, w: TF.conv1d(x, w, padding="same", dilation=dilation),
        x,
        w,
    )
    strided = gf.conv(x, w, padding="same", stride=2)
    assert strided.shape == (1, 2, (size + 1) // 2)
    if size >= dilation * (kernel - 1) + 1:
        valid = gf.conv(x, w, padding="valid", dilation=dilation)
        np.testing.assert_array_equal(valid.numpy(), gf.conv(x, w, dilation=dilation).numpy())


def test_every_pair_of_places_is_tied_once() -> None:
    for stride, spread, offset, results, sources in np.ndindex(5, 5, 9, 6, 6):
        stride, spread, offset = stride + 1, spread + 1, offset - 4
        p, i = tied(results, sources, offset, stride, spread)
        found = list(zip(range(results)[p], range(sources)[i], strict=True))
        wanted = [
            (a, b)
            for a in range(results)
            for b in range(sources)
            if a * stride + offset == b * spread
        ]
        assert found == wanted


@pytest.mark.parametrize("stride", [1, 2])
def test_blocks_don_t_change_results(
    stride: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, w = rng.normal(size=(5, 4, 6, 6)), rng.normal(size=(6, 2, 3, 2))
    small, large = rng.normal(size=(5, 6, 3, 3)), rng.normal(size=(5, 6, 12, 11))
    shrinking = ((1, 0), (stride, stride), (1, 1), (1, 1), 2)
    growing = ((2, 1), (1, 1), (1, 1), (stride, stride), 2)
    calls = [
        (Conv((3, 3), *shrinking), x, w),
        (Conv((12, 11), *growing), x, w),
        (ConvWeight((3, 2), *shrinking), x, small),
        (ConvWeight((3, 2), *growing), x, large),
    ]
    expected = [op.eval(np, *arrays) for op, *arrays in calls]
    for block in (1, 100, 700):
        monkeypatch.setattr(convolution_ops, "BLOCK", block)
        for (op, *arrays), value in zip(calls, expected, strict=True):
            np.testing.assert_allclose(op.eval(np, *arrays), value, rtol=1e-12, atol=1e-12)


def test_symbolic_sizes(rng: np.random.Generator) -> None:
    w = rng.normal(size=(4, 3, 3, 3)).astype(np.float32)
    with gf.Graph() as graph:
        x = gf.placeholder(("n", 3, "h", "w"), name="x")
        halved = gf.conv(x, w, stride=2, padding=1)
        kept = gf.conv(x, w, padding="same")
        same = gf.conv(x, w, padding="same", stride=2)
        grown = gf.conv_transpose(x, w.swapaxes(0, 1), stride=2, padding=1, output_padding=1)
        slope = gf.grad(gf.sum(halved * halved), x)
        assert str(halved.shape) == "(n, 4, (h + 1)//2, (w + 1)//2)"
        assert str(kept.shape) == "(n, 4, h, w)"
        assert str(same.shape) == "(n, 4, (h + 1)//2, (w + 1)//2)"
        assert str(grown.shape) == "(n, 4, 2*h, 2*w)"
        assert str(slope.shape) == "(n, 3, h, w)"
    with gf.Session(graph) as session:
        for shape in ((2, 3, 5, 8), (1, 3, 4, 1), (0, 3, 3, 3)):
            array = rng.normal(size=shape).astype(np.float32)
            leaf, kernel = torch.tensor(array, requires_grad=True), torch.tensor(w)
            values = session.run([halved, kept, same, grown, slope], {x: array})
            expected = TF.conv2d(leaf, kernel, stride=2, padding=1)
            (gradient,) = torch.autograd.grad((expected * expected).sum(), leaf)
            np.testing.assert_allclose(values[0], expected.detach(), rtol=1e-4, atol=1e-4)
            wanted = TF.conv2d(leaf, kernel, padding="same").detach()
            np.testing.assert_allclose(values[1], wanted, rtol=1e-4, atol=1e-4)
            # In the even case there is one zero less before than PyTorch's padding=1 has.
            starts = [1 - size % 2 for size in shape[2:]]
            wanted = wanted[:, :, starts[0] :: 2, starts[1] :: 2]
            np.testing.assert_allclose(values[2], wanted, rtol=1e-4, atol=1e-4)
            wanted = TF.conv_transpose2d(
                leaf, kernel.swapaxes(0, 1), stride=2, padding=1, output_padding=1
            )
            np.testing.assert_allclose(values[3], wanted.detach(), rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(values[4], gradient, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("lanes", [(0, None), (None, 0), (0, 0)])
@pytest.mark.parametrize("op", ["conv", "weight"])
def test_vmap(
    op: str, lanes: tuple[int | None, int | None], groups: int, rng: np.random.Generator
) -> None:
    if op == "conv":
        rule, shapes = (
            Conv((3, 4), (1, 0), (2, 1), (1, 1), (1, 1), groups),
            [(2, 4, 6, 5), (6, 4 // groups, 3, 2)],
        )
    else:
        rule, shapes = (
            ConvWeight((3, 2), (1, 0), (2, 1), (1, 1), (1, 1), groups),
            [(2, 4, 6, 5), (2, 6, 3, 4)],
        )
    xs = [
        rng.normal(size=shape if lane is None else (3, *shape))
        for shape, lane in zip(shapes, lanes, strict=True)
    ]
    together = gf.vmap(lambda a, b: gf.apply(rule, a, b), in_axes=lanes)(*map(gf.asarray, xs))
    for i in range(3):
        own = [x if lane is None else x[i] for x, lane in zip(xs, lanes, strict=True)]
        np.testing.assert_allclose(together.numpy()[i], rule.eval(np, *own), rtol=1e-9, atol=1e-9)


def test_as_many_lanes_as_there_are(rng: np.random.Generator) -> None:
    def rule(x: gf.Tensor, w: gf.Tensor) -> gf.Tensor:
        return gf.conv(x, w, groups=2, padding=1, stride=2)

    with gf.Graph() as graph:
        x = gf.placeholder(("lanes", "n", 4, "h"), name="x")
        w = gf.placeholder(("lanes", 6, 2, 3), name="w")
        y = gf.vmap(rule)(x, w)
        slope = gf.grad(gf.sum(y * y), w)
    with gf.Session(graph) as session:
        for shape in ((3, 2, 4, 5), (1, 1, 4, 4), (0, 2, 4, 3)):
            a = rng.normal(size=shape).astype(np.float32)
            b = rng.normal(size=(shape[0], 6, 2, 3)).astype(np.float32)
            value, gradient = session.run([y, slope], {x: a, w: b})
            assert gradient.shape == b.shape
            for mine, own, kernel in zip(value, a, b, strict=True):
                theirs = TF.conv1d(
                    torch.tensor(own), torch.tensor(kernel), groups=2, padding=1, stride=2
                )
                np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)


def test_gradient_of_each_element(rng: np.random.Generator) -> None:
    x, w = rng.normal(size=(3, 2, 5)), gf.asarray(rng.normal(size=(4, 2, 3)))

    def loss(x: gf.Tensor, w: gf.Tensor) -> gf.Tensor:
        return gf.sum(gf.conv(x[None], w, stride=2) ** 2)

    each = gf.vmap(lambda x, w: gf.grad(loss(x, w), w), in_axes=(0, None))(gf.asarray(x), w)
    for row, gradient in zip(x, each.numpy(), strict=True):
        np.testing.assert_allclose(gradient, gf.grad(loss(gf.asarray(row), w), w).numpy())


def test_forward_mode(rng: np.random.Generator) -> None:
    x, dx = rng.normal(size=(2, 1, 2, 6))
    w, dw = rng.normal(size=(2, 3, 2, 3))
    y, dy = gf.jvp(lambda x, w: gf.conv(x, w, padding=1), (x, w), (dx, dw))
    exact = gf.conv(dx, w, padding=1) + gf.conv(x, dw, padding=1)
    np.testing.assert_allclose(y.numpy(), gf.conv(x, w, padding=1).numpy(), rtol=1e-9)
    np.testing.assert_allclose(dy.numpy(), exact.numpy(), rtol=1e-9)


@pytest.mark.parametrize("dtype", [gf.float16, gf.bfloat16], ids=str)
def test_low_precision_is_added_up_in_float32(dtype: gf.DType, rng: np.random.Generator) -> None:
    x = gf.astype(rng.normal(size=(1, 500, 4)), dtype)
    w = gf.astype(rng.normal(size=(2, 500, 3)), dtype)
    y = gf.conv(x, w)
    assert y.dtype is dtype
    exact = gf.conv(gf.astype(x, gf.float32), gf.astype(w, gf.float32))
    np.testing.assert_array_equal(y.numpy(), gf.astype(exact, dtype).numpy())


def test_integers() -> None:
    y = gf.conv(np.array([[[1, 2, 3]]], np.int32), np.array([[[1, 10]]], np.int32))
    assert y.dtype is gf.int32
    assert y.numpy().tolist() == [[[21, 32]]]


X, W = np.ones((1, 4, 5, 5)), np.ones((6, 4, 3, 3))


@pytest.mark.parametrize(
    ("call", "error", "text", "fix"),
    [
        (lambda: gf.conv(X[0], W), ShapeError, "they have 3 and 4", "x[None] is [1, 4, 5, 5]"),
        (
            lambda: gf.conv(X, W[:, :3]),
            ShapeError,
            "conv: x has 4 channels, and the weight takes 3",
            "give x [N, 3, *S]",
        ),
        (
            lambda: gf.conv(np.moveaxis(X, 1, -1), W),
            ShapeError,
            "conv: x has 5 channels, and the weight takes 4",
            "channels come before the spatial dims: gf.moveaxis(x, -1, 1)",
        ),
        (
            lambda: gf.conv(X, W, groups=2),
            ShapeError,
            "the weight takes 8: 4 in each of 2 groups",
            "give x [N, 8, *S]",
        ),
        (lambda: gf.conv(X, W, groups=3), ShapeError, "4 channels of x don't divide", "divide 4"),
        (
            lambda: gf.conv(X, W[:5, :2], groups=2),
            ShapeError,
            "the weight's 5 kernels don't divide into 2 groups",
            "a multiple of 2",
        ),
        (lambda: gf.conv(X, W, np.ones(5)), ShapeError, "bias must have shape [6], not [5]", "one"),
        (
            lambda: gf.conv(X, W, dilation=3),
            ShapeError,
            "conv: the kernel 3, 7 wide by dilation, is larger than dim 2 of x: 5",
            "pad by 2 more",
        ),
        (
            lambda: gf.conv(X[..., :1, :1], W, padding=(1, 0)),
            ShapeError,
            "conv: the kernel 3 is larger than dim 3 of x: 1",
            "pad by 2 more",
        ),
        (lambda: gf.conv(X, W, stride=0), ArgumentError, "stride=0 must be 1 or more", "stride=1"),
        (lambda: gf.conv(X, W, stride=(1, 1, 1)), ArgumentError, "does not fit 2 spatial", "2"),
        (lambda: gf.conv(X, W, padding=-1), ArgumentError, "the padding -1 is negative", "slice"),
        (lambda: gf.conv(X, W, padding="full"), ArgumentError, "padding='full' is no", '"same"'),
        (lambda: gf.conv(X, W, padding=(1, 2, 3)), ArgumentError, "does not fit 2", "a pair"),
        (lambda: gf.conv(X, W, padding=0.5), ArgumentError, "the padding 0.5 is no int", "int"),
        (
            lambda: gf.conv_transpose(X, W),
            ShapeError,
            "conv_transpose: x has 4 channels, and the weight takes 6",
            "give x [N, 6, *S]",
        ),
        (
            lambda: gf.conv_transpose(X, W[:4], output_padding=1),
            ArgumentError,
            "output_padding=1 must be below stride=1 or dilation=1",
            "larger stride",
        ),
        (
            lambda: gf.conv_transpose(X, W[:4], padding=4),
            ShapeError,
            "of 7 elements, the padding (4, 4) leaves none",
            "cut off less",
        ),
        (
            lambda: gf.conv_transpose(X, W[:4], padding="same"),
            ArgumentError,
            "padding='same' does not say how much to cut off",
            "numbers",
        ),
    ],
)
def test_errors(call: Any, error: type[Exception], text: str, fix: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
    assert fix in caught.value.fix  # type: ignore[attr-defined]  # of a graphfw error
    assert len(str(caught.value).splitlines()) <= 6
