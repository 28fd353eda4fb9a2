"""Convolutions of images that are channels-last: the ops, and the pass that makes regions."""

import re

import ml_dtypes
import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError
from graphfw.ir.build import emit
from graphfw.ir.rebuild import derive
from graphfw.ops.nn.channels_last import PixelConv, PixelConvWeight
from graphfw.ops.nn.convolution_ops import Conv, ConvWeight
from graphfw.passes.fuse_views import contiguous
from graphfw.passes.manager import run_pipeline
from graphfw.passes.pipelines import SIMPLIFY
from graphfw.runtime.cupy_executor.convolution.channels_last import (
    ChannelsLastRegion,
    PropagateChannelsLast,
)
from graphfw.runtime.cupy_executor.convolution.channels_last_ops import is_asked
from tests.runtime.cupy_executor.test_convolution import check, drawn, facts, random_op


def last(x):
    """Return an array channels-last."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def by_pixel(op):
    return (PixelConvWeight if isinstance(op, ConvWeight) else PixelConv)(*op.values)


# The ops.


@pytest.mark.parametrize("weight", [False, True], ids=["conv", "conv_weight"])
@pytest.mark.parametrize(
    "dtype",
    [ml_dtypes.bfloat16, *[pytest.param(np.dtype(d), marks=pytest.mark.slow) for d in "efd"]],
    ids=str,
)
def test_random_arguments(dtype, weight, rng):
    for _ in range(8):
        op, first, second = random_op(rng, weight)
        a, b = drawn(rng, first, dtype), drawn(rng, second, dtype)
        there = by_pixel(op).eval(np, last(a), last(b)).astype(np.float64)
        wanted = np.moveaxis(op.eval(np, a, b), 1, -1).astype(np.float64)
        # The same sums, whose order NumPy takes from how the arrays lie.
        atol = 4 * float(ml_dtypes.finfo(dtype).eps) * np.abs(wanted).max(initial=0)
        np.testing.assert_allclose(there, wanted, rtol=0, atol=atol)
        check(by_pixel(op), last(a), last(b))


def test_sums_in_pieces(rng):
    op = Conv((4, 3), *facts(2, output_sizes=())[1:])
    x, w = drawn(rng, (1, 90, 4, 3), "e"), drawn(rng, (5, 90, 3, 3), "e")
    assert check(by_pixel(op), last(x), last(w), rtol=1e-2) == ["conv_pack", "conv", "conv_add"]
    x, y = drawn(rng, (3, 2, 15, 15)), drawn(rng, (3, 3, 15, 15))
    back = ConvWeight((3, 3), *op.values[1:])
    assert check(by_pixel(back), last(x), last(y))[-2:] == ["conv_weight", "conv_add"]


def test_the_ops_in_sessions(library, session, rng):
    """Also on the CPU, whose passes make none: node by node."""
    op = PixelConv((4, 5), *facts(2, output_sizes=())[1:])
    with gf.Graph() as g:
        x, w = given((2, 4, 5, 3)), given((6, 3, 3, 3))
        y = gf.tanh(emit(op, x, w))
        back = PixelConvWeight((3, 3), *op.values[1:])
        dw = emit(back, x, y)
    feeds = {x: drawn(rng, x.shape, "e"), w: drawn(rng, w.shape, "e") / 4}
    wanted = np.tanh(op.eval(np, *feeds.values()).astype(np.float32))
    np.testing.assert_allclose(gf.Session(g).run(y, feeds), wanted, atol=2e-3)
    compare(session, g, [y, dw], feeds)


# Regions.


class Net:
    """The layers of small networks, with weights that are drawn.

    Args:
        rng: What draws.
        trains: Whether batch norm does.
        rank: How many spatial dims there are.
    """

    def __init__(self, rng, trains=True, rank=2):
        self.rng, self.trains, self.rank = rng, trains, rank
        self.layers = 0

    def weight(self, *shape):
        self.layers += 1
        values = self.rng.normal(size=shape) * (2 / max(np.prod(shape[1:]), 1)) ** 0.5
        return gf.Variable(values.astype(np.float32), name=f"w{self.layers}")

    def conv(self, x, outputs, size=3, stride=1, groups=1):
        w = self.weight(outputs, x.shape[1] // groups, *[size] * self.rank)
        return gf.conv(x, w, stride=stride, padding=size // 2, groups=groups)

    def layer(self, x, *args, **options):
        kind = [gf.nn.BatchNorm1d, gf.nn.BatchNorm2d, gf.nn.BatchNorm3d][self.rank - 1]
        made = self.conv(x, *args, **options)
        return kind(made.shape[1]).train(self.trains)(made)

    def scores(self, x):
        return gf.mean(x, axis=tuple(range(2, x.ndim))) @ self.weight(x.shape[1], 5)


def resnet(net, x):
    x = gf.relu(net.layer(x, 8, 5, 2))
    x = gf.max_pool(x, 3, stride=2, padding=1)
    y = gf.relu(net.layer(x, 8, 1))
    y = net.layer(gf.relu(net.layer(y, 8, 3, 2)), 16, 1)
    x = gf.relu(y + net.layer(x, 16, 1, 2))
    return net.scores(gf.relu(x + net.layer(gf.relu(net.layer(x, 8, 1)), 16, 3)))


def unet(net, x):
    """Concatenations, transposed convolutions, slices of images, and channels that are odd."""
    a = gf.relu(net.conv(x, 7))
    b = gf.relu(net.conv(gf.avg_pool(a, 2), 9))
    b = gf.pad(b[:, :, 1:, :], ((0, 0), (0, 0), (0, 1), (0, 0)))
    b = gf.conv_transpose(b, net.weight(9, 7, 2, 2), stride=2)
    first, second = gf.split(gf.concat([a, b], axis=1), 2, axis=1)
    return net.scores(net.conv(gf.flip(gf.tanh(first * second), axis=1), 3))


def mobilenet(net, x):
    x = gf.relu6(net.layer(x, 8, 3, 2))
    for _ in range(2):
        y = gf.relu6(net.layer(x, 16, 1))
        y = gf.relu6(net.layer(y, 16, 3, groups=16))
        x = x + net.layer(y, 8, 1)
    return net.scores(x)


def grouped(net, x):
    x = gf.relu(net.layer(x, 8))
    return net.scores(gf.relu(net.layer(x, 8, 3, groups=2)))


def squeezed(net, x):
    """Return scores of a network with a gate, made of a mean over all places."""
    x = net.conv(x, 8)
    gate = gf.sigmoid(gf.mean(x, axis=tuple(range(2, x.ndim))) @ net.weight(8, 8))
    gate = gf.reshape(gate, (*gate.shape, *[1] * (x.ndim - 2)))
    return net.scores(gf.relu(net.conv(x * gate, 8)))


NETS = {
    "resnet": (resnet, 2, 12),
    "unet": (unet, 2, 8),
    "grouped": (grouped, 2, 6),
    "squeezed": (squeezed, 2, 6),
    "1d": (squeezed, 1, 9),
    "3d": (squeezed, 3, 4),
}
# How many convolutions are channels-last, and how many images change layout; forward, in training.
TAKEN = {
    "resnet": ((7, 1), (20, 1)),
    "unet": ((4, 1), (10, 5)),  # two each for the gradients of avg_pool, of transposed weights
    "grouped": ((2, 1), (5, 1)),
    "squeezed": ((2, 1), (5, 1)),
    "1d": ((2, 1), (5, 1)),
    "3d": ((2, 1), (5, 1)),
}


def described(network, rng, trains):
    """Return a network's graph, what is fetched, and what is fed."""
    build, rank, size = network
    with gf.Graph() as g:
        x, y = gf.placeholder(("n", 3, *[size] * rank)), gf.placeholder(("n",), np.int64)
        scores = build(Net(rng, trains, rank), x)
        feeds, fetches = {x: drawn(rng, (2, *x.shape[1:]))}, [scores]
        if trains:
            loss = gf.nn.cross_entropy(scores, y)
            feeds[y] = rng.integers(0, 5, 2)
            train = gf.optim.SGD(0.1, momentum=0.9).minimize(loss)
            fetches = [loss, scores, train]
    return g, fetches, feeds


def is_by_pixel(dim, stride):
    """Whether what cuDNN is told of is channels-last, without gaps."""
    order = [0, *range(2, len(dim)), 1]
    dense = contiguous([dim[axis] for axis in order])
    return [stride[axis] for axis in order] == [*dense]


def result(own, fetches, feeds, runs):
    """Return the fetched arrays of runs, and the variables behind them."""
    found = [own.run(fetches, feeds, host=True) for _ in range(runs)]
    arrays = [np.asarray(one) for row in found for one in row if one is not None]
    return [*arrays, *[np.asarray(own[v]) for v in own.graph.variables]]


def slowly(*names):
    return [pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize("trains", [False, True], ids=["forward", "training"])
@pytest.mark.parametrize("name", ["resnet", "grouped", "3d", *slowly("unet", "squeezed", "1d")])
def test_networks(name, trains, library, session, rng, monkeypatch):
    """Channels-last they give what they give channels-first, and on the CPU."""
    g, fetches, feeds = described(NETS[name], rng, trains)
    runs = 2 if trains else 1
    mixed = {"precision": "mixed-bf16"}
    wanted = result(gf.Session(g, seed=3, **mixed), fetches, feeds, runs)
    own = session(g, **mixed)
    found = result(own, fetches, feeds, runs)
    text = own.compile(fetches, feeds=[*feeds]).explain(*[np.shape(a) for a in feeds.values()])
    forms = {"conv_fprop", *(["conv_wgrad"] if trains else [])}
    if (trains and name != "grouped") or name == "unet":  # turned kernels of groups are copied
        forms.add("conv_dgrad")
    assert {one for names in library.runs for one in names} == forms
    assert all([is_by_pixel(*one) for graph in library.graphs for one in graph.lying])
    monkeypatch.setenv("GRAPHFW_CHANNELS_LAST", "0")
    first = result(session(g, **mixed), fetches, feeds, runs)
    for one, *others in zip(found, first, wanted, strict=True):
        scale = np.abs(one.astype(np.float64)).max(initial=1.0)
        for other, tolerance in zip(others, (1e-4, 0.03), strict=True):
            np.testing.assert_allclose(
                one.astype(np.float64),
                other.astype(np.float64),
                rtol=tolerance,
                atol=tolerance * scale,
            )
    assert permuted_in(text) == TAKEN[name][trains]
    assert " 0 operations by CuPy" in text


@pytest.mark.parametrize("trains", [False, True], ids=["forward", "training"])
def test_a_mobilenet_stays_as_it_is(trains, library, session, rng):
    """Depthwise convolutions would transpose images twice; the others have products."""
    g, fetches, feeds = described((mobilenet, 2, 8), rng, trains)
    text = session(g, precision="mixed-bf16").compile(fetches, feeds=[*feeds]).explain()
    assert permuted_in(text) == (0, 0)
    assert re.search(r"images are channels-first for \d+ convolutions: \d+ would change", text)


def compare(session, g, fetches, feeds, *, rtol=0.03, **options):
    """Compare a run with the CPU's; return what the plan says at these sizes."""
    wanted = gf.Session(g, **options).run(fetches, feeds)
    own = session(g, **options)
    for one, other in zip(own.run(fetches, feeds, host=True), wanted, strict=True):
        assert one.dtype == other.dtype
        one, other = one.astype(np.float64), other.astype(np.float64)
        scale = np.abs(other[np.isfinite(other)]).max(initial=1.0)
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol * scale)
    plan = own.compile(fetches, feeds=[*feeds])
    return plan.explain(*[np.shape(array) for array in feeds.values()])


def permuted_in(text):
    """Return how many convolutions are channels-last, and how many images are permuted."""
    found = re.search(r"propagate-channels-last .*convolutions (\d+), permuted (\d+)", text)
    return (0, 0) if found is None else tuple(map(int, found.groups()))


def given(shape, dtype="float16", **options):
    return gf.placeholder(shape, dtype, **options)


def test_endings(library, session, rng):
    """A bias and an image of the region are cuDNN's; a ReLU keeps NaN, so it is a kernel's."""
    with gf.Graph() as g:
        x, b = given(("n", 8, 6, 5)), given((8,))
        w = [gf.Variable(drawn(rng, (8, 8, 3, 3), "e") / 8, name=f"w{i}") for i in range(3)]
        first = gf.relu(gf.conv(x, w[0], b, padding=1))
        second = gf.conv(first, w[1], b, padding=1)
        y = gf.conv(second, w[2], b, padding=1) + first
    feeds = {x: drawn(rng, (2, 8, 6, 5), "e"), b: drawn(rng, (8,), "e")}
    feeds[x][0, 0, 2, 2] = np.nan
    text = compare(session, g, [y], feeds)
    assert permuted_in(text) == (3, 2)
    assert library.runs == [["conv_fprop"], ["conv_fprop", "add"], ["conv_fprop", "add", "add"]]
    assert "conv residual bias channels-last by cuDNN" in text
    made = text.partition("made once, again when one of 3 variables has changed")[2]
    assert made.count("astype") == 3, "kernels are laid out once"


def test_kernels_of_one_element_are_products_of_all_pixels(library, session, rng):
    """With what cuBLASLt takes up; where it could not read 16 bytes at once they are cuDNN's."""
    with gf.Graph() as g:
        x = given(("n", 8, 6, 5))
        w = [given(shape) for shape in ((16, 8, 1, 1), (8, 16, 1, 1), (12, 8, 1, 1), (9, 12, 3, 3))]
        b = [given((one.shape[0],)) for one in w]
        y = gf.gelu(gf.conv(x, w[0], b[0]), approximate="tanh")
        y = gf.conv(y, w[1], b[1]) + x
        y = gf.conv(gf.conv(gf.tanh(y), w[2], b[2], stride=2), w[3], padding=1)
        y = gf.max(y, axis=(2, 3))
        gradients = gf.grad(gf.sum(y * y), [*w, b[0]])
    feeds = {one: drawn(rng, one.shape, "e") / 3 for one in (*w, *b)}
    feeds[x] = drawn(rng, (2, 8, 6, 5), "e")
    text = compare(session, g, [y, *gradients], feeds)
    assert permuted_in(text) == (11, 1)
    assert "matmul bias gelu: by cuBLASLt" in text
    assert "matmul residual bias: by cuBLASLt" in text


def test_what_is_fetched_inside_keeps_its_order(library, session, rng):
    with gf.Graph() as g:
        x = given((2, 5, 6, 7))
        w = [given((5, 5, 3, 3)) for _ in range(4)]
        a = gf.conv(x, w[0], padding=1)
        b = gf.conv(gf.relu(a), w[1], padding=1)
        c = gf.max(gf.conv(gf.conv(b, w[2]), w[3]), axis=1)
        (dx,) = gf.grad(gf.sum(c), [x])
    feeds = {x: drawn(rng, x.shape, "e"), **{one: drawn(rng, one.shape, "e") / 6 for one in w}}
    assert permuted_in(compare(session, g, [a, b, c, dx], feeds)) == (8, 4)


def test_images_that_lie_so_already(library, session, rng):
    """Two permutations that meet cancel; so do those of what has one channel."""
    with gf.Graph() as g:
        x, w, v = given((2, 6, 5, 8)), given((8, 8, 3, 3)), given((1, 8, 3, 3))
        y = gf.permute_dims(gf.relu(gf.conv(gf.permute_dims(x, (0, 3, 1, 2)), w)), (0, 2, 3, 1))
        z = gf.conv(gf.permute_dims(x, (0, 3, 1, 2)), v)
    feeds = {one: drawn(rng, one.shape, "e") / 4 for one in (x, w, v)}
    text = compare(session, g, [y, z], feeds)
    assert permuted_in(text) == (2, 0)
    assert "permute_dims" not in text.partition("kernels of")[2]


def test_nodes_at_the_edge_are_left_out_where_that_saves_edges(library, session, rng):
    with gf.Graph() as g:
        a, b, w = given((2, 3, 6, 5)), given((2, 3, 6, 5)), given((3, 3, 3, 3))
        y = gf.max(gf.conv(gf.tanh(gf.conv(a + b, w)), w), axis=(2, 3))
    feeds = {one: drawn(rng, one.shape, "e") for one in (a, b, w)}
    assert permuted_in(compare(session, g, [y], feeds)) == (2, 1)


def test_checkpoints(library, session, rng):
    """Tensors computed again for gradients hang behind barriers, through which images pass."""
    with gf.Graph() as g:
        x, w = given((2, 3, 6, 5)), given((3, 3, 3, 3))
        block = gf.checkpoint(lambda x: gf.tanh(gf.conv(gf.tanh(gf.conv(x, w)), w, padding=1)))
        y = gf.max(block(x) * 2.0, axis=(2, 3))
        (dw,) = gf.grad(gf.sum(y * y), [w])
    feeds = {one: drawn(rng, one.shape, "e") / 2 for one in (x, w)}
    convolutions, transposes = permuted_in(compare(session, g, [y, dw], feeds))
    assert convolutions >= 7
    assert transposes <= 2


def test_bodies_of_loops(library, session, rng):
    with gf.Graph() as g:
        x, w = given((2, 4, 6, 5)), given((4, 4, 3, 3))

        def step(c, _):
            for _ in range(3):
                c = gf.tanh(gf.conv(c, w, padding=1))
            return c, gf.max(c, axis=(1, 2, 3))

        y, ys = gf.scan(step, x, None, length=3)
    feeds = {one: drawn(rng, one.shape, "e") / 2 for one in (x, w)}
    text = compare(session, g, [y, ys], feeds)
    assert text.count("conv channels-last by cuDNN") == 3
    assert all([is_by_pixel(*one) for graph in library.graphs for one in graph.lying])


def test_sums_of_channels_are_work_for_many_blocks(library, session, rng):
    """Behind them the rest of batch norm is a kernel of its own: else it had a block for 32."""
    with gf.Graph() as g:
        x = gf.placeholder((128, 3, 64, 64))
        net = Net(rng)
        y = gf.mean(gf.relu(net.layer(gf.relu(net.layer(x, 64)), 64)), axis=(2, 3))
        loss = gf.sum(y * y)
        train = gf.optim.SGD(0.1).minimize(loss)
    own = session(g, precision="mixed-bf16", verify="each")  # nothing is computed
    text = own.compile([loss, train], feeds=[x]).explain(x.shape)
    assert "images are channels-last for 5 convolutions" in text
    sums = re.findall(r"astype.* sum.*: (sums|apart|across|single), (\d+) blocks", text)
    assert len(sums) >= 8
    assert min([int(blocks) for _, blocks in sums]) >= 64


def test_why_images_stay_as_they_are(library, session, rng, monkeypatch):
    with gf.Graph() as g:
        x, w = given((2, 3, 6, 5)), given((4, 3, 3, 3))
        y = gf.conv(x, w)
    feeds = {one: drawn(rng, one.shape, "e") for one in (x, w)}
    text = compare(session, g, [y], feeds)
    assert "images are channels-first for 1 convolutions: 2 would change layout for 1" in text
    monkeypatch.setenv("GRAPHFW_CHANNELS_LAST", "0")
    assert "for 1 convolutions: GRAPHFW_CHANNELS_LAST=0" in compare(session, g, [y], feeds)
    monkeypatch.setenv("GRAPHFW_CUDNN", "0")
    assert "channels-first" not in compare(session, g, [y], feeds)
    monkeypatch.setenv("GRAPHFW_CHANNELS_LAST", "no")
    with pytest.raises(ArgumentError, match="GRAPHFW_CHANNELS_LAST='no' is neither 0 nor 1"):
        compare(session, g, [y], feeds)


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize("precision", ["mixed-bf16", "mixed-fp16"])
def test_without_a_way_kernels_do_it(precision, library, session, rng):
    """They take images as they lie, too."""
    library.refused = lambda names: True
    g, fetches, feeds = described(NETS["grouped"], rng, trains=True)
    own = session(g, precision=precision)
    wanted = result(gf.Session(g, precision=precision), fetches, feeds, 2)
    for one, other in zip(result(own, fetches, feeds, 2), wanted, strict=True):
        scale = np.abs(other.astype(np.float64)).max(initial=1.0)
        np.testing.assert_allclose(one, other, rtol=0.03, atol=0.03 * scale)
    assert not library.runs


def test_other_dtypes_are_left(library, session, rng):
    g, fetches, feeds = described(NETS["grouped"], rng, trains=False)
    text = compare(session, g, fetches, feeds, rtol=1e-5)
    assert permuted_in(text) == (0, 0)
    assert "images lie" not in text


# Graphs of all that images go through.


def random_conv(rng, x):
    """Return the result of a random convolution of images, or None, mostly."""
    if rng.random() > 0.4:
        return None
    c, rank, groups = x.shape[1], x.ndim - 2, 1
    if c > 1 and rng.random() < 0.2:
        groups = c
    size, stride = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    shape = (groups * int(rng.integers(1, 4)), c // groups, *[size] * rank)
    w = gf.astype(gf.Variable(drawn(rng, shape) / 3), "float16")
    if groups == 1 and rng.random() < 0.2:
        return gf.conv_transpose(x, gf.swapaxes(w, 0, 1), stride=stride)
    return gf.conv(x, w, stride=stride, padding=size // 2, groups=groups)


def random_step(rng, images):
    """Return the result of a random operation on images, of which there may be several."""
    x = images[rng.integers(len(images))]
    n, c, *space = x.shape
    like = [y for y in images if y.shape == x.shape]
    other, axis = like[rng.integers(len(like))], int(rng.integers(0, x.ndim))
    long = x.shape[axis] > 1
    ones, window = [1] * len(space), 2 if min(space) > 1 else 1
    shapes = [(), (c, *ones), (1, c, *ones), (n, c, *ones), space, (c, *space), (n, 1, *space)]
    shape = tuple(shapes[rng.integers(len(shapes))])
    gone = tuple(np.flatnonzero(rng.random(x.ndim) < 0.6).tolist()) or (1,)
    last, back = (0, *range(2, x.ndim), 1), (0, x.ndim - 1, *range(1, x.ndim - 1))
    steps = [
        lambda: gf.tanh(x),
        lambda: gf.where(x > 0, x, other * 0.5),
        lambda: x * gf.constant(drawn(rng, shape, "e")),
        lambda: x - gf.mean(x, axis=gone, keepdims=True),
        lambda: x * gf.sigmoid(gf.max(other, axis=gone, keepdims=True)),
        lambda: gf.concat([x, other], axis=axis)[tuple([slice(0, size) for size in x.shape])],
        lambda: gf.concat([*gf.split(x, [1], axis=axis)][::-1], axis=axis) if long else x,
        lambda: gf.flip(x, axis=axis),
        lambda: gf.astype(gf.astype(x, "float32") * 2.0, "float16"),
        lambda: gf.permute_dims(gf.tanh(gf.permute_dims(x, last)), back),
        lambda: gf.reshape(gf.reshape(x, (n, -1)) * 0.5, x.shape),
        lambda: gf.max_pool(x, window, stride=1),
        lambda: gf.avg_pool(x, window, stride=1),
        lambda: gf.pad(x, [(0, 0), (0, 1), *[(1, 0)] * len(space)]),
        lambda: gf.checkpoint(lambda x: gf.tanh(x) * 2.0)(x),
    ]
    made = random_conv(rng, x)
    return steps[rng.integers(len(steps))]() if made is None else made


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize("number", range(6))
def test_random_graphs(number, library, session, rng, monkeypatch):
    """Whatever is inside or outside, values stay what they are: by the passes, then by steps."""
    monkeypatch.setattr(ChannelsLastRegion, "is_worth", True)
    with gf.Graph() as g:
        size = [int(n) for n in rng.integers(1, 5, 1 + number % 3)]
        images = [given((2, int(rng.integers(1, 5)), *size)) for _ in range(2)]
        feeds = {x: drawn(rng, x.shape, "e") for x in images}
        for _ in range(10):
            images.append(random_step(rng, images))
        ends = [images[-1], gf.max(images[-2], axis=(0, 1)), images[rng.integers(len(images))]]
        loss = sum([gf.sum(gf.tanh(gf.astype(x, "float32"))) for x in images[-4:]])
        wanted = [*feeds, *g.variables]
        outputs = [*ends, *gf.grad(loss, wanted, missing="zeros")]
    made = run_pipeline(
        derive(g, outputs), [SIMPLIFY, PropagateChannelsLast()], verify="values"
    ).graph
    assert not any([node.op.name == "conv" and is_asked(node) for node in made.nodes])
    if number < 3:
        compare(session, g, outputs, feeds)
