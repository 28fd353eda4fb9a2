"""The commands for models: info, check, run, bench."""

from __future__ import annotations

import argparse
import collections
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from graphfw.errors import ArgumentError, ExecutorError, counted, first_line
from graphfw.ir.dim import Dim, substitute, symbols_of
from graphfw.ir.graph import Graph
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.walk import ancestors
from graphfw.onnx.arguments import general, plain, prepared, sizes_of
from graphfw.onnx.errors import OnnxError, ValueNeeded
from graphfw.onnx.importer import Import
from graphfw.onnx.node import Chosen, Maps, Strings
from graphfw.onnx.reader import read_model
from graphfw.onnx.running import given
from graphfw.ops.data_dependent.measuring_ops import Measuring
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
        own.add_argument("model", type=Path, help="the model's file")
        own.set_defaults(command=command)
        if name == "check":
            continue
        own.add_argument(
            "--dim",
            action="append",
            default=[],
            metavar="NAME=SIZE",
            help="the size of a symbolic dim where inputs are made up; 1 by default",
        )
        own.add_argument(
            "--inputs",
            action="append",
            default=[],
            metavar="FILE.npz or NAME=FILE.npy",
            help="arrays to feed; random numbers for what is not given",
        )
        if name == "info":
            own.add_argument("--nodes", action="store_true", help="a line for each node")
        else:
            own.add_argument("--executor", default=None, help="numpy by default")
        if name == "run":
            own.add_argument("--output", type=Path, metavar="FILE.npz", help="where to save")
        if name == "bench":
            own.add_argument(
                "--seconds", type=_seconds, default=3.0, help="for each contender; 3 by default"
            )
    return parser


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no time that can be measured for")
    return seconds


def _say(line: str = "") -> None:
    sys.stdout.write(line + "\n")


@contextmanager
def _doing(what: str) -> Iterator[None]:
    """Say what takes its time, to whoever watches a terminal."""
    watched = sys.stderr.isatty()
    if watched:
        sys.stderr.write(f"{what} …")
        sys.stderr.flush()
    try:
        yield
    finally:
        if watched:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


# info


def _info(options: argparse.Namespace) -> None:
    with _doing("loading"):
        model = read_model(options.model)
        sizes = sizes_of(options.dim, model)
        imported = general(model, options.inputs, options.dim)
    graph = imported.graph
    made_by = " ".join((model.proto.producer_name, model.proto.producer_version)).strip()
    opsets = [f"{domain or 'ai.onnx'} {version}" for domain, version in model.opsets.items()]
    _say(f"{options.model.name}: {graph.name}{made_by and f', made by {made_by}'}")
    _say(f"opset {', '.join(opsets)}\n")
    _table("input", [(name, str(t.type)) for name, t in imported.inputs.items()])
    _table("output", [(name, _shown(value)) for name, value in imported.outputs.items()])
    open_ = [name for t in imported.inputs.values() for d in t.shape for name in symbols_of(d)]
    env = {name: sizes.get(plain(name), 1) for name in open_}
    _bound(graph, env)
    nodes = list(ancestors(list(graph.outputs)))
    if options.nodes:
        rows = [_row(node, _number(_flops(node), env)) for node in nodes]
        _table("node", rows, ("op", "result", "Mflop"))
    _operators(nodes, env)
    parameters = [t for n in nodes if n.op.name in ("constant", "variable") for t in n.outputs]
    amount = sum(_number(t.type.size, env) for t in parameters)
    nbytes = sum(_number(t.type.nbytes, env) for t in parameters)
    _say(f"parameters  {amount:,} in {nbytes / 2**20:,.1f} MiB")
    with Session(graph, executor="numpy") as session, _doing("compiling"):
        plan = session.compile(list(graph.outputs), feeds=list(imported.inputs.values()))
        shapes = [tuple([_number(d, env) for d in t.shape]) for t in imported.inputs.values()]
        try:
            peak = f"{plan.memory(*shapes).peak / 2**20:,.1f} MiB at the peak of a run"
        except ExecutorError as error:  # GRAPHFW_JIT=0, or it depends on values
            peak = f"is not known: {error.summary}"
    _say(f"memory      {peak}")


def _bound(graph: Graph, env: dict[str, int]) -> None:
    """Give the sizes that depend on values the largest that they may have, where that is known."""
    for made in graph.measured.values():
        op = made[0].node.op
        assert isinstance(op, Measuring)
        shapes = [tuple([_number(d, env) for d in t.shape]) for t in made[0].node.inputs]
        most = op.most(*shapes)
        for dim, size in zip(op.dims, most, strict=True):
            env[str(dim)] = 1 if size is None else _number(size, env)


def _row(node: Node, flops: int) -> tuple[str, ...]:
    types = ", ".join([str(kind) for kind in node.types])
    return node.loc.layer, node.op.name, types, f"{flops / 1e6:,.1f}"


def _operators(nodes: Sequence[Node], env: Mapping[str, int]) -> None:
    counts = collections.Counter(node.op.name for node in nodes)
    flops: collections.Counter[str] = collections.Counter()
    for node in nodes:
        flops[node.op.name] += _number(_flops(node), env)
    total = sum(flops.values()) or 1
    rows = [
        (name, str(counts[name]), f"{count / 1e6:,.1f}", f"{100 * count / total:.1f} %")
        for name, count in flops.most_common()
    ]
    _table("op", rows, ("nodes", "Mflop", "share"))


def _flops(node: Node) -> Any:
    return node.op.cost(node.types, *[t.type for t in node.inputs]).flops


def _number(count: Any, env: Mapping[str, int]) -> int:
    return int(substitute(count, env)) if isinstance(count, Dim) else int(count)


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        return str(value.type)
    if isinstance(value, Chosen):
        return f"{value.tensor.type}, indices of {counted(len(value.labels), 'string')}"
    if isinstance(value, Maps):
        return f"{value.tensor.type}, the values of maps with {counted(len(value.labels), 'key')}"
    if isinstance(value, Strings):
        return f"strings of shape {list(value.shape)}, which are known"
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
    wrong = None
    try:
        with _doing("checking"):
            onnx.checker.check_model(str(options.model), full_check=True)
        _say("ONNX's checker accepts it")
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        wrong = OnnxError(f"ONNX's checker: {error}")
        _say("ONNX's checker refuses it")
    try:
        with _doing("loading"):
            imported = Import(model, {}, {})
        _say(
            "graphfw loads it: "
            f"{counted(len(list(ancestors(list(imported.graph.outputs)))), 'node')}"
        )
    except ValueNeeded as error:
        _say(f"graphfw loads it, given the values of {', '.join(error.inputs) or 'its sizes'}")
    if wrong is not None:
        raise wrong


# run and bench


def _run(options: argparse.Namespace) -> None:
    if options.output:
        _check_output(options.output)
    with _doing("loading"):
        imported, feeds = prepared(read_model(options.model), options.inputs, options.dim)
    with Session(imported.graph, executor=options.executor) as session, _doing("running"):
        fed: Any = {name: feeds[name] for name in imported.inputs}
        arrays = iter(session.run(list(imported.graph.outputs), fed))
    found = {name: given(value, arrays) for name, value in imported.outputs.items()}
    if options.output:
        _save(options.output, found)
        _say(f"saved {', '.join(found)} to {options.output}")
        return
    for name, value in found.items():
        if isinstance(value, np.ndarray):
            kind = "strings" if value.dtype == object else value.dtype
            _say(f"{name}: {kind}{list(value.shape)}")
            _say(np.array2string(value, threshold=20, precision=5))
        elif isinstance(value, list):
            _say(f"{name}: a sequence of {len(value)}")
            _say("\n".join([*map(str, value[:3]), *(["…"] if len(value) > 3 else [])]))
        else:
            _say(f"{name}: {value}")


def _check_output(path: Path) -> None:
    """Refuse where nothing can be saved, before anything is computed."""
    if path.suffix != ".npz":
        raise ArgumentError(f"--output {path} does not end in .npz", fix=f"--output {path}.npz")
    if not path.parent.is_dir():
        raise ArgumentError(f"--output {path}: there is no folder {path.parent}")


def _save(path: Path, found: Mapping[str, Any]) -> None:
    """Save arrays under their names, all of them or, where that fails, nothing."""
    for name, value in found.items():
        if not isinstance(value, np.ndarray):
            raise ArgumentError(
                f"the output {name!r} is no array, which a file of arrays can't hold",
                fix="leave --output out, to see it",
            )
    # NumPy knows no numbers of ml_dtypes; as float32 they are the same.
    arrays = {n: v.astype(np.float32) if v.dtype.kind == "V" else v for n, v in found.items()}
    arrays = {n: v.astype(str) if v.dtype == object else v for n, v in arrays.items()}
    partial = path.with_name(f"{path.name}.part")
    try:
        with partial.open("wb") as file:
            np.savez(file, **arrays)
        partial.replace(path)
    except OSError as error:
        raise ArgumentError(f"{path} can't be written: {error.strerror or error}") from None
    finally:
        partial.unlink(missing_ok=True)


def _bench(options: argparse.Namespace) -> None:
    with _doing("loading"):
        imported, feeds = prepared(read_model(options.model), options.inputs, options.dim)
        contenders = {"graphfw": _graphfw_step(imported, feeds, options.executor)}
        other = _runtime_step(options.model, feeds)
        if other is not None:
            contenders["ONNX Runtime"] = other
    times: dict[str, list[float]] = {name: [] for name in contenders}
    with _doing(f"measuring for {options.seconds * len(contenders):g} s"):
        results = [step() for step in contenders.values()]
        end = time.perf_counter() + options.seconds * len(contenders)
        while not times["graphfw"] or time.perf_counter() < end:
            for name, step in contenders.items():  # in turn: a noisy moment meets all of them
                begin = time.perf_counter()
                step()
                times[name].append(time.perf_counter() - begin)
    medians = {name: statistics.median(found) for name, found in times.items()}
    rows = [
        (name, f"{1e3 * m:.3f}", f"{1e3 * min(times[name]):.3f}", f"{m / medians['graphfw']:.2f}")
        for name, m in medians.items()
    ]
    _table("contender", rows, ("median ms", "least ms", "x graphfw"))
    if len(results) == 2:
        _say(f"largest difference of their outputs: {_difference(*results):.2g} of their scale")


def _graphfw_step(
    imported: Import, feeds: Mapping[str, Any], executor: str | None
) -> Callable[[], Any]:
    session = Session(imported.graph, executor=executor)
    inputs = list(imported.inputs.values())
    plan = session.compile(list(imported.graph.outputs), feeds=inputs)
    arrays = [feeds[name] for name in imported.inputs]
    return lambda: plan(*arrays)


def _runtime_step(path: Path, feeds: Mapping[str, Any]) -> Callable[[], Any] | None:
    try:
        import onnxruntime
    except ModuleNotFoundError:
        _say("onnxruntime is not installed: graphfw alone")
        return None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what it refuses is said below
    try:
        started = onnxruntime.InferenceSession(str(path), options)
        started.run(None, dict(feeds))
    except Exception as error:  # it has no class of errors of its own
        _say(f"ONNX Runtime can't run it: {first_line(error)}\n")
        return None
    return lambda: started.run(None, dict(feeds))


def _difference(ours: Sequence[Any], theirs: Sequence[Any]) -> float:
    """Return by how much outputs of numbers differ, next to the largest of each."""
    most = 0.0
    for a, b in zip(ours, theirs, strict=False):
        if isinstance(b, np.ndarray) and b.dtype.kind in "fiub" and b.size and a.shape == b.shape:
            wide = b.astype(np.float64)
            scale = np.abs(wide).max() or 1.0
            most = max(most, float(np.abs(a.astype(np.float64) - wide).max() / scale))
    return most
