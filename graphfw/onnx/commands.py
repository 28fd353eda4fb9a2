"""What the command line does with models: info, check, run, bench."""

from __future__ import annotations

import argparse
import collections
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import graphfw as gf
from graphfw.errors import ArgumentError, ExecutorError, FeedError, did_you_mean
from graphfw.ir.dim import Dim, substitute, symbols_of
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.walk import ancestors
from graphfw.onnx.errors import OnnxError
from graphfw.onnx.importer import Import
from graphfw.onnx.reader import Model, read_model
from graphfw.onnx.running import specialised
from graphfw.runtime.session import Session


def main(arguments: Sequence[str]) -> None:
    """Do what follows `python -m graphfw onnx`.

    Raises:
        OnnxError: The model can't be loaded.
        ArgumentError, FeedError: What is given for an input does not fit.
    """
    options = _parser().parse_args(arguments)
    options.command(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m graphfw onnx")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, command, text in (
        ("info", _info, "its inputs and outputs, operators, parameters, work and memory"),
        ("check", _check, "whether ONNX's checker and graphfw accept it"),
        ("run", _run, "run it once, and show or save the outputs"),
        ("bench", _bench, "how long a run takes, beside ONNX Runtime if it is installed"),
    ):
        own = commands.add_parser(name, help=text, description=text)
        own.add_argument("model", type=Path)
        own.add_argument(
            "--dim",
            action="append",
            default=[],
            metavar="NAME=SIZE",
            help="the size of a symbolic dim where inputs are made up; 1 by default",
        )
        own.set_defaults(command=command)
        if name in ("run", "bench"):
            own.add_argument(
                "--inputs",
                action="append",
                default=[],
                metavar="FILE.npz or NAME=FILE.npy",
                help="arrays to feed; random numbers for what is not given",
            )
            own.add_argument("--executor", default=None, help="numpy by default")
        if name == "run":
            own.add_argument("--output", type=Path, metavar="FILE.npz", help="where to save")
        if name == "bench":
            own.add_argument("--seconds", type=float, default=3.0, help="for each contender")
    return parser


def _say(line: str = "") -> None:
    sys.stdout.write(line + "\n")


# info


def _info(options: argparse.Namespace) -> None:
    imported = Import(read_model(options.model), {}, {})
    sizes = _sizes(options.dim, imported)
    graph = imported.graph
    _say(f"{options.model.name}: {graph.name}")
    _table("input", [(name, str(t.type)) for name, t in imported.inputs.items()])
    _table("output", [(name, _shown(value)) for name, value in imported.outputs.items()])
    nodes = _needed(graph)
    counts = collections.Counter(node.op.name for node in nodes)
    flops: collections.Counter[str] = collections.Counter()
    for node in nodes:
        flops[node.op.name] += _number(_flops(node), sizes)
    total = sum(flops.values()) or 1
    rows = [
        (name, str(counts[name]), f"{count / 1e6:,.1f}", f"{100 * count / total:.1f} %")
        for name, count in flops.most_common()
    ]
    _table("op", rows, ("nodes", "Mflop", "share"))
    parameters = [t for n in nodes if n.op.name in ("constant", "variable") for t in n.outputs]
    amount = sum(_number(t.type.size, sizes) for t in parameters)
    nbytes = sum(_number(t.type.nbytes, sizes) for t in parameters)
    _say(f"parameters  {amount:,} in {nbytes / 2**20:,.1f} MiB")
    with Session(graph, executor="numpy") as session:
        plan = session.compile(list(graph.outputs), feeds=list(imported.inputs.values()))
        shapes = [_static(t, sizes) for t in imported.inputs.values()]
        try:
            peak = f"{plan.memory(*shapes).peak / 2**20:,.1f} MiB at the peak of a run"
        except ExecutorError:  # GRAPHFW_JIT=0
            peak = "is not planned: nothing is compiled"
        _say(f"memory      {peak}")


def _needed(graph: gf.Graph) -> list[Node]:
    return list(ancestors(list(graph.outputs)))


def _flops(node: Node) -> Any:
    return node.op.cost(node.types, *[t.type for t in node.inputs]).flops


def _number(count: Any, sizes: Mapping[str, int]) -> int:
    return int(substitute(count, sizes)) if isinstance(count, Dim) else int(count)


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        return str(value.type)
    return f"a sequence of {len(value)}" if isinstance(value, list) else str(value)


def _table(title: str, rows: Sequence[Sequence[str]], others: Sequence[str] = ()) -> None:
    lines = [(title, *others), *rows] if others else [(title, *row) for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))] if lines else []
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        _say("  ".join(cells).rstrip())
    _say()


# check


def _check(options: argparse.Namespace) -> None:
    model = read_model(options.model)
    try:
        onnx.checker.check_model(str(options.model), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise OnnxError(f"ONNX's checker: {error}") from None
    imported = Import(model, {}, {})
    _say(f"{options.model.name} is right: {len(_needed(imported.graph))} nodes")


# run and bench


def _run(options: argparse.Namespace) -> None:
    imported, feeds = _prepared(options)
    with Session(imported.graph, executor=options.executor) as session:
        tensors = [t for t in imported.outputs.values() if isinstance(t, Tensor)]
        arrays = session.run(tensors, {n: feeds[n] for n in imported.inputs})
    names = [n for n, t in imported.outputs.items() if isinstance(t, Tensor)]
    found = dict(zip(names, arrays, strict=True))
    if options.output:
        np.savez(options.output, **found)
        _say(f"saved {', '.join(found)} to {options.output}")
        return
    for name, array in found.items():
        _say(f"{name}: {array.dtype}{list(array.shape)}")
        _say(np.array2string(array, threshold=20, precision=5))


def _bench(options: argparse.Namespace) -> None:
    imported, feeds = _prepared(options)
    contenders = {"graphfw": _graphfw_step(imported, feeds, options.executor)}
    try:
        import onnxruntime  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        _say("onnxruntime is not installed: graphfw alone")
    else:
        try:
            started = onnxruntime.InferenceSession(str(options.model))
        except Exception as error:  # it has no class of errors of its own
            _say(f"ONNX Runtime refuses the model: {error}")
        else:
            contenders["ONNX Runtime"] = lambda: started.run(None, dict(feeds))
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for step in contenders.values():
        step()
    end = time.perf_counter() + options.seconds * len(contenders)
    while time.perf_counter() < end:  # in turn, so that a noisy moment meets all of them
        for name, step in contenders.items():
            begin = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - begin)
    medians = {name: statistics.median(found) for name, found in times.items()}
    rows = [
        (name, f"{1e3 * m:.3f}", f"{1e3 * min(times[name]):.3f}", f"{m / medians['graphfw']:.2f}")
        for name, m in medians.items()
    ]
    _table("contender", rows, ("median ms", "least ms", "x graphfw"))


def _graphfw_step(
    imported: Import, feeds: Mapping[str, Any], executor: str | None
) -> Callable[[], Any]:
    session = Session(imported.graph, executor=executor)
    inputs = list(imported.inputs.values())
    plan = session.compile(list(imported.graph.outputs), feeds=inputs)
    arrays = [feeds[name] for name in imported.inputs]
    return lambda: plan(*arrays)


def _prepared(options: argparse.Namespace) -> tuple[Import, dict[str, Any]]:
    """Load the model, with arrays for all its inputs."""
    model = read_model(options.model)
    feeds = _given(options.inputs, model)
    made = _made_up(model, feeds, _pairs(options.dim))
    return specialised(model, {**made, **feeds}), {**made, **feeds}


def _given(texts: Sequence[str], model: Model) -> dict[str, Any]:
    names = [info.name for info in model.proto.graph.input]
    found: dict[str, Any] = {}
    for text in texts:
        name, _, path = text.rpartition("=")
        try:
            loaded = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise FeedError(f"{path} can't be read: {error}", fix="save it by numpy.save") from None
        found.update(loaded if isinstance(loaded, np.lib.npyio.NpzFile) else {name: loaded})
    for name in found:
        if name not in names:
            raise FeedError(
                f"{name!r} is no input of the model",
                fix=did_you_mean(name, names) or f"its inputs are {', '.join(names)}",
            )
    return found


def _made_up(model: Model, feeds: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return random numbers for the inputs that are not given."""
    rng = np.random.default_rng(0)
    weights = {tensor.name for tensor in model.proto.graph.initializer}
    made: dict[str, Any] = {}
    for info in model.proto.graph.input:
        kind = info.type.tensor_type
        if info.name in feeds or info.name in weights or not info.type.HasField("tensor_type"):
            continue
        shape = [
            d.dim_value if d.HasField("dim_value") else sizes.get(d.dim_param, 1)
            for d in kind.shape.dim
        ]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        is_float = dtype.kind in "fV"
        numbers = rng.standard_normal(shape) if is_float else rng.integers(0, 2, shape)
        made[info.name] = np.asarray(numbers).astype(dtype)
    return made


def _pairs(texts: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in texts:
        name, _, size = text.partition("=")
        if not size.isdigit():
            raise ArgumentError(f"--dim {text}: that is no size", fix="write --dim batch=8")
        found[name] = int(size)
    return found


def _sizes(texts: Sequence[str], imported: Import) -> dict[str, int]:
    """Return a size for each symbol of the inputs: 1 where none is given."""
    given = _pairs(texts)
    symbols = {
        name for t in imported.inputs.values() for dim in t.shape for name in symbols_of(dim)
    }
    for name in given:
        if name not in symbols:
            raise ArgumentError(
                f"--dim {name}: the inputs have no such dim",
                fix=f"they have {', '.join(sorted(symbols)) or 'none'}",
            )
    return {name: given.get(name, 1) for name in symbols}


def _static(tensor: Tensor, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple([_number(dim, sizes) for dim in tensor.shape])
