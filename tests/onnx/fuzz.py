"""Broken models by the thousand: `python -m tests.onnx.fuzz SEED COUNT`.

Each is a good one with bytes or fields of its protobuf changed at random. Loading must end soon, in
a graph or in an error of graphfw; so must a run of the graph on zeros. What doesn't is printed.
"""

from __future__ import annotations

import random
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np
import onnx
from google.protobuf.message import Message
from onnx import TensorProto, helper, numpy_helper

import graphfw as gf
from graphfw.ir.dim import Dim
from graphfw.ir.sources import Placeholder
from tests.onnx.models import classifier, model

SECONDS = 20
"""In which a model must be loaded and run, on a machine that is busy."""

MEMORY = 2 << 30
"""Bytes of address space that a model may take beyond those of the process."""

_MOST_FED = 1 << 16
_ENDLESS = ("loop", "while")
"""Models that may be made to run for ever, as they say."""

_NUMBERS = (0, 1, -1, 2, 3, 7, 64, 255, -128, 1 << 20, (1 << 31) - 1, 1 << 40, (1 << 63) - 1)
_REALS = (0.0, 1.0, -1.0, 0.5, 1e-30, 3e38, float("inf"), float("nan"))


def node(kind: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """Return a node; names are separated by spaces, and "-" is one that is left out."""
    names = [[n.replace("-", "") for n in text.split()] for text in (inputs, outputs)]
    return helper.make_node(kind, *names, f"the_{kind}", **attributes)


def body(
    nodes: list[onnx.NodeProto], inputs: dict[str, tuple[int, tuple[int, ...]]], outputs: str
) -> onnx.GraphProto:
    """Return a graph for an attribute."""
    return helper.make_graph(
        nodes,
        "body",
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [helper.make_empty_tensor_value_info(n) for n in outputs.split()],
    )


def zoo(rng: np.random.Generator) -> dict[str, onnx.ModelProto]:
    """Return a model of each kind."""

    def f(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    number, truth, real = TensorProto.INT64, TensorProto.BOOL, TensorProto.FLOAT
    step = [node("Add", "t x", "next"), node("Identity", "on", "still")]
    adds = body(step, {"i": (number, ()), "on": (truth, ()), "t": (real, (2,))}, "still next")
    until = [node("Add", "t x", "next"), node("ReduceMax", "next", "top", keepdims=0)]
    until.append(node("Less", "top bound", "still"))
    grows = body(until, {"i": (number, ()), "on": (truth, ()), "t": (real, (2,))}, "still next")
    each = body([node("Add", "s e", "sum")], {"s": (real, (2,)), "e": (real, (2,))}, "sum sum")
    branches = [body([node(kind, "x", kind)], {}, kind) for kind in ("Neg", "Abs")]
    scale = helper.make_function(
        "own", "Twice", ["x"], ["y"], [node("Add", "x x", "y")], [helper.make_opsetid("", 21)]
    )
    made = {
        "classifier": classifier(rng),
        "loop": model(
            [node("Loop", "n - x", "y", body=adds)], {"x": (2,)}, ["y"], {"n": np.array(3)}
        ),
        "while": model(
            [node("Loop", "- - x", "y", body=grows)],
            {"x": (2,)},
            ["y"],
            {"bound": np.float32(-9)},
        ),
        "scan": model(
            [node("Scan", "s x", "last all", body=each, num_scan_inputs=1)],
            {"s": (2,), "x": ("t", 2)},
            ["last", "all"],
        ),
        "if": model(
            [
                node("ReduceSum", "x", "total", keepdims=0),
                node("Greater", "total zero", "c"),
                node("If", "c", "y", then_branch=branches[0], else_branch=branches[1]),
            ],
            {"x": (3,)},
            ["y"],
            {"zero": np.float32(0)},
        ),
        "quantised": model(
            [
                node("QuantizeLinear", "x s z", "q"),
                node("DequantizeLinear", "q s z", "d"),
                node("DequantizeLinear", "w ws wz", "dw", axis=1),
                node("MatMul", "d dw", "p"),
                node("DynamicQuantizeLinear", "p", "dq ds dz"),
                node("MatMulInteger", "dq w dz", "y"),
            ],
            {"x": ("n", 4)},
            ["y"],
            {
                "s": np.float32(0.1),
                "z": np.uint8(3),
                "w": rng.integers(-9, 9, (4, 4)).astype(np.int8),
                "ws": np.abs(f(4)),
                "wz": np.zeros(4, np.int8),
            },
        ),
        "function": model(
            [helper.make_node("Twice", ["x"], ["y"], domain="own")],
            {"x": (2,)},
            ["y"],
            functions=[scale],
        ),
        "strings": model(
            [
                node("StringSplit", "s", "parts count"),
                node("Cast", "count", "c", to=1),
                node("Add", "x c", "y"),
                node("TfIdfVectorizer", "s", "t", **_GRAMS),
            ],
            {"x": (2,)},
            ["y", "t"],
            {"s": np.array(["a b", "c"], object)},
        ),
        "recurrent": model(
            [node("LSTM", "x w r", "y h", hidden_size=3), node("GRU", "x gw gr", "z")],
            {"x": ("t", 2, 4)},
            ["y", "z"],
            {"w": f(1, 12, 4), "r": f(1, 12, 3), "gw": f(1, 9, 4), "gr": f(1, 9, 3)},
        ),
        "vision": model(
            [
                node("ConvTranspose", "x w", "c", strides=[2, 2], pads=[1, 1, 1, 1]),
                node("Resize", "c - scales", "r", mode="linear"),
                node("Pad", "r pads", "p", mode="edge"),
                node("AveragePool", "p", "a", kernel_shape=[2, 2], strides=[2, 2]),
                node("LRN", "a", "l", size=3),
                node("NonZero", "pads", "nz"),
                node("DepthToSpace", "l", "y", blocksize=2),
            ],
            {"x": (1, 2, 4, 4)},
            ["y", "nz"],
            {
                "w": f(2, 4, 3, 3),
                "scales": np.float32([1, 1, 2, 2]),
                "pads": np.array([0, 0, 1, 1] * 2),
            },
        ),
        "places": model(
            [
                node("TopK", "x k", "v i"),
                node("GatherElements", "x i", "g", axis=1),
                node("Shape", "x", "s"),
                node("Slice", "s zero two", "rows"),
                node("Expand", "g rows", "e"),
                node("OneHot", "i depth values", "h"),
                node("Split", "x", "left right", axis=1, num_outputs=2),
                node("ScatterND", "x at row", "u"),
                node("Einsum", "left right", "y", equation="ij,kj->ik"),
                node("Softmax", "y", "z", axis=0),
                node("Tile", "z reps", "w"),
            ],
            {"x": ("n", 4)},
            ["e", "h", "u", "w"],
            {
                "k": np.array([2]),
                "zero": np.array([0]),
                "two": np.array([2]),
                "depth": np.array(5),
                "values": np.float32([0, 1]),
                "at": np.array([[[0, 1], [0, 2]]]),
                "reps": np.array([1, 2]),
                "row": np.float32([[5, 6]]),
            },
        ),
        "trees": model(
            [helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", **_TREE)],
            {"x": ("n", 2)},
            ["y"],
        ),
        "labels": model(
            [
                helper.make_node("SVMClassifier", ["x"], ["l", "s"], domain="ai.onnx.ml", **_SVM),
                helper.make_node(
                    "ZipMap", ["s"], ["m"], domain="ai.onnx.ml", classlabels_int64s=[1, 2, 3]
                ),
                helper.make_node(
                    "LabelEncoder",
                    ["l"],
                    ["e"],
                    domain="ai.onnx.ml",
                    keys_strings=["b", "c"],
                    values_floats=[1.0, 2.0],
                ),
                node("Constant", "", "t", value_strings=["ab", "b"]),
                node("RegexFullMatch", "t", "r", pattern="(a+|[[:alpha:]]{2,9})*b?"),
                node("Concat", "l t", "j", axis=0),
                node("Reshape", "j rows", "y"),
                node("MaxRoiPool", "image rois", "p", pooled_shape=[2, 1]),
            ],
            {"x": (3, 2)},
            ["y", "m", "e", "r", "p"],
            {
                "rows": np.array([-1, 1]),
                "image": f(1, 2, 4, 4),
                "rois": np.float32([[0, 1, 1, 3, 2]]),
            },
        ),
        "attention": model(
            [
                helper.make_node(
                    "Attention", ["x", "w"], ["a"], domain="com.microsoft", num_heads=2
                ),
                node("LayerNormalization", "a g", "y"),
            ],
            {"x": (1, "t", 4)},
            ["y"],
            {"w": f(4, 12), "g": f(4)},
        ),
    }
    for domain, version, name in (
        ("ai.onnx.ml", 1, "trees"),
        ("ai.onnx.ml", 2, "labels"),
        ("com.microsoft", 1, "attention"),
    ):
        made[name].opset_import.append(helper.make_opsetid(domain, version))
    sparse = model([node("Add", "x w", "y")], {"x": (2, 3)}, ["y"])
    values = numpy_helper.from_array(np.array([2, 3], np.float32), "w")
    indices = numpy_helper.from_array(np.array([1, 5]), "places")
    sparse.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2, 3]))
    return {**made, "sparse": sparse}


_GRAMS = {
    "mode": "TF",
    "min_gram_length": 1,
    "max_gram_length": 2,
    "max_skip_count": 1,
    "ngram_counts": [0, 1],
    "ngram_indexes": [0, 1],
    "pool_strings": ["c", "a b", "c"],
}
_TREE = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [1, 0, 0],
    "nodes_values": [0.5, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
    "target_treeids": [0, 0],
    "target_nodeids": [1, 2],
    "target_ids": [0, 0],
    "target_weights": [1.0, 2.0],
    "n_targets": 1,
}
_SVM = {
    "kernel_type": "RBF",
    "kernel_params": [0.5, 0.0, 0.0],
    "support_vectors": [0.0, 1.0, 1.0, 0.0, 1.0, 1.0],
    "vectors_per_class": [1, 1, 1],
    "coefficients": [1.0, -1.0, 0.5, 1.0, 2.0, -0.5],
    "rho": [0.1, 0.2, 0.3],
    "prob_a": [-1.0, -2.0, -1.0],
    "prob_b": [0.0, 0.1, 0.0],
    "classlabels_strings": ["a", "b", "c"],
}


# Damage to bytes


def _flip(chance: random.Random, data: bytearray) -> None:
    for _ in range(chance.randint(1, 6)):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _cut(chance: random.Random, data: bytearray) -> None:
    del data[chance.randrange(len(data)) :]


def _overwrite(chance: random.Random, data: bytearray) -> None:
    start = chance.randrange(len(data))
    data[start : start + chance.randint(1, 16)] = chance.randbytes(chance.randint(1, 16))


def _swap(chance: random.Random, data: bytearray) -> None:
    a, b, c = sorted(chance.randrange(len(data) + 1) for _ in range(3))
    data[a:c] = data[b:c] + data[a:b]


# Damage to fields


def _messages(message: Message) -> Iterator[Message]:
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for item in value if field.is_repeated else [value]:
                yield from _messages(item)


def _change(chance: random.Random, proto: onnx.ModelProto) -> None:
    """Change one field of one of a model's messages."""
    messages = list(_messages(proto))
    message = chance.choice(messages)
    fields = list(message.DESCRIPTOR.fields)
    filled = [field for field, _ in message.ListFields()]
    field = chance.choice(filled if filled and chance.random() < 0.9 else fields)
    alike = [m for m in messages if m.DESCRIPTOR is field.message_type]
    if field.is_repeated:
        items = getattr(message, field.name)
        what = chance.random()
        if items and what < 0.3:
            del items[chance.randrange(len(items))]
        elif items and what < 0.6 and field.message_type is None:
            items[chance.randrange(len(items))] = _scalar(chance, field, messages)
        elif field.message_type is None:
            items.append(_scalar(chance, field, messages))
        elif items and what < 0.8:
            _copy(chance.choice(alike or list(items)), chance.choice(items))
        elif alike:
            _copy(chance.choice(alike), items.add())
    elif field.message_type is None:
        setattr(message, field.name, _scalar(chance, field, messages))
    elif alike:
        _copy(chance.choice(alike), getattr(message, field.name))


def _copy(source: Message, target: Message) -> None:
    """Overwrite a message by another, which may lie in it."""
    target.ParseFromString(source.SerializeToString())


def _scalar(chance: random.Random, field: Any, messages: list[Message]) -> Any:
    """Return a value for a field: an odd one, or one that another message has there."""
    if field.cpp_type == field.CPPTYPE_STRING:
        words = [m.name for m in messages if isinstance(m, (onnx.NodeProto, onnx.ValueInfoProto))]
        words += [name for m in messages if isinstance(m, onnx.NodeProto) for name in m.input]
        word = chance.choice([*words, "", "x", "²", "a/../b", "Softmax", "Loop", "-1", "n" * 300])
        return word if field.type == field.TYPE_STRING else word.encode()
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return chance.choice(_REALS)
    if field.cpp_type == field.CPPTYPE_ENUM:
        return chance.choice(list(field.enum_type.values_by_number))
    bits = 31 if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32) else 63
    number = chance.choice((*_NUMBERS, chance.randrange(-5, 20))) & ((1 << bits) - 1)
    return number if chance.random() < 0.9 or "U" in str(field.cpp_type) else -number


def damaged(chance: random.Random, proto: onnx.ModelProto) -> bytes:
    """Return a model's bytes with a few changes."""
    if chance.random() < 0.6:
        changed = onnx.ModelProto.FromString(proto.SerializeToString())
        for _ in range(chance.choice((1, 1, 1, 2, 5))):
            try:
                _change(chance, changed)
            except (ValueError, TypeError, UnicodeError):  # protobuf doesn't take it
                continue
        return changed.SerializeToString()
    data = bytearray(proto.SerializeToString())
    change: Callable[[random.Random, bytearray], None] = chance.choice(
        (_flip, _flip, _cut, _overwrite, _swap)
    )
    change(chance, data)
    return bytes(data)


def tried(data: bytes, runs: bool) -> str:
    """Load a model, and compile or run what comes out, on zeros; return how it ended."""
    try:
        graph = gf.onnx.load(data)
    except gf.errors.GraphfwError as error:
        if error.__cause__ is not None and not isinstance(error.__cause__, gf.errors.GraphfwError):
            return f"raw {type(error.__cause__).__name__}"
        return "refused"
    inputs = [n.outputs[0] for n in graph.nodes if isinstance(n.op, Placeholder)]
    shapes = [tuple(2 if isinstance(d, Dim) else d for d in x.shape) for x in inputs]
    # An array without elements can be too large, too: NumPy multiplies the other dims.
    if any(np.prod([d for d in s if d], dtype=object) > _MOST_FED for s in shapes):
        return "large"
    feeds = {x: np.zeros(s, x.dtype.dtype) for x, s in zip(inputs, shapes, strict=True)}
    try:
        with gf.Session(graph, memory_limit="256MiB") as session:
            plan = session.compile(list(graph.outputs), feeds=inputs)
            if runs:
                plan(*feeds.values())
    except gf.errors.GraphfwError:
        return "stopped"
    return "run"


class _Late(BaseException):
    """A model took too long."""


def main() -> NoReturn:
    """Try models, and print those that end in no error of graphfw."""
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    pages = int(open("/proc/self/statm").read().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    def late(*_: Any) -> None:
        raise _Late

    signal.signal(signal.SIGALRM, late)
    models = zoo(np.random.default_rng(0))
    for proto in models.values():
        assert tried(proto.SerializeToString(), True) == "run", proto.graph.name
    names = list(models)
    ends: dict[str, int] = {}
    bad = 0
    for number in range(seed, seed + count):
        chance = random.Random(number)
        name = chance.choice(names)
        data = damaged(chance, models[name])
        signal.alarm(SECONDS)
        try:
            end = tried(data, name not in _ENDLESS)
        except _Late:
            end = "LATE"
            traceback.print_exc(limit=-8)
        except BaseException:
            end = "CRASH"
            traceback.print_exc(limit=-6)
        signal.alarm(0)
        ends[end] = ends.get(end, 0) + 1
        if end in ("LATE", "CRASH") or end.startswith("raw"):
            bad += 1
            sys.stdout.write(f"{end} {name} {number}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{ends}\n")
    sys.exit(min(bad, 1))


if __name__ == "__main__":
    main()
