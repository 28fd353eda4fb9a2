"""Saving: a graph is written to a model's file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper, numpy_helper

import graphfw as gf
from graphfw.errors import ArgumentError, FetchError, a_type
from graphfw.hints.calls import explained
from graphfw.ir.dim import is_symbol, substitute, symbols_of
from graphfw.ir.graph import Graph
from graphfw.ir.literal import Array
from graphfw.ir.op import MEASURES
from graphfw.ir.owners import owners
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import TensorType
from graphfw.ir.variable import Update, Variable
from graphfw.ir.walk import ancestors
from graphfw.onnx import rules
from graphfw.onnx.builder import Builder, Names, Problem, Val, described
from graphfw.onnx.errors import OnnxError, Unsupported
from graphfw.onnx.rewriting import ordered, pruned, read, rename
from graphfw.onnx.stored import OPSETS, check_dtype
from graphfw.runtime.lookup import fetched
from graphfw.runtime.program import Program, lower
from graphfw.runtime.session import Session
from graphfw.utils import nest

NEXT = ".next"
"""The suffix of the name of the output that has a variable's next value."""

_MOST_INSIDE = 3 << 29
"""Bytes of weights up to which they are in the model's own file: protobuf's limit is 2 GiB."""

_SMALLEST_OUTSIDE = 1024
"""Bytes from which on an array is kept in the file beside the model."""

_PAGE = 4096
"""Offsets in that file are multiples of this, so that arrays can be mapped into memory."""


@explained
def save(
    graph: Graph,
    fetches: Any,
    path: str | os.PathLike[str],
    *,
    session: Session | None = None,
    opset: int = 21,
    metadata: Mapping[str, str] | None = None,
    doc: str = "",
    draws: bool = False,
    external_data: bool | None = None,
) -> None:
    """Write what computes fetches as a model in ONNX's format.

    Its inputs are the placeholders that the fetches need, its outputs the fetches, by their names:
    a dict's keys, else the tensors' own, else output_0, output_1, …. Weights are initializers.
    A variable that a fetched update changes is an input, too, with its contents as the default;
    the output with its name and `.next` is what a run makes of it. To train, feed each such output
    to its input in the next run.

    The file is written beside the path and moved there: it is never half a file. A second one with
    weights is moved just before.

    Args:
        graph: What the fetches are in.
        fetches: Tensors, variables, updates, names, or lists, tuples and dicts of these, as
            `session.run` takes them.
        path: Where to write.
        session: Whose contents the variables have; without one, their initial values.
        opset: The version of ONNX's operators, 17 to 26. 21 is the newest of which ONNX Runtime has
            all the kernels; newer dtypes for storage need more.
        metadata: Text to keep with the model, by keys; the graph's own when there is none.
        doc: What the model is, for those who look at it.
        draws: Whether the runtime may draw random numbers, for dropout in a training step: they are
            others than the session's. Without it, drawing is among what ONNX has nothing for.
        external_data: Whether weights go to a file of their own, `path` and `.data`; by default
            they do where they are more than 1.5 GiB.

    Raises:
        OnnxError: ONNX has nothing for some of the operations: all are named. Or the file can't be
            written.
        FetchError: Something in `fetches` is no tensor or update of this graph.
        ArgumentError: The opset or the metadata is not what it has to be, or the session is that of
            another graph.
        GraphError: Two tensors or variables have one name; or the graph has mistakes that
            `collect_errors` has collected.
        SessionError: A variable has no initial value, and there is no session.
    """
    if not isinstance(graph, Graph):
        raise ArgumentError(
            f"save: {a_type(graph)} is no Graph",
            fix="write gf.onnx.save(graph, fetches, path); of a model, with model.session.graph: "
            "y = model(gf.placeholder(shape)), graph is model.session.graph, and session= as well",
        )
    target = _checked_path(path)
    metadata = graph.metadata if metadata is None else metadata
    made = Saving(graph, fetches, session, opset, metadata, doc, draws=draws)
    nbytes = sum(array.nbytes for array in made.arrays.values())
    is_large = nbytes > _MOST_INSIDE
    if is_large and external_data is False:
        raise OnnxError(
            f"the weights take {nbytes / 2**30:.1f} GiB, and one file holds 2 GiB",
            fix="leave external_data out, or pass external_data=True",
        )
    _write(made, target, is_large or bool(external_data))


class Saving:
    """The model of a graph.

    Attributes:
        proto: The model, without initializers.
        arrays: The initializers by name.
    """

    def __init__(
        self,
        graph: Graph,
        fetches: Any,
        session: Session | None,
        opset: int,
        metadata: Mapping[str, str],
        doc: str,
        *,
        draws: bool,
    ) -> None:
        _check_arguments(graph, session, opset, metadata, doc)
        graph.check()
        graph.check_names()
        self._session = session
        self._graph = graph
        tensors, updates, names = _leaves(graph, fetches)
        feeds = _placeholders(graph, tensors, updates)
        program = lower(tensors, updates, feeds, graph, None, passes=tuple)
        outputs = program.source.outputs
        self._fetches = outputs[: len(tensors)]
        self._next = outputs[len(outputs) - len(program.updated) :]
        self._program = program
        measuring = [node for node in program.source.nodes if MEASURES in node.op.traits]
        self._measured = [node.outputs[0] for node in measuring]
        ends_of_all = [*self._fetches, *self._next, *self._measured]
        needed = {*ancestors(ends_of_all), *[v.node for v in program.updated]}
        self._inputs = _named_inputs(program, needed)
        self._held = [v for v in program.variables if v.node in needed]
        ends = self._output_names(names)
        public = [*ends, *(t.name for t in program.feeds), *self._inputs.values()]
        public += [v.name for v in self._held]
        self._builder = Builder(opset, public, draws=draws)
        self.proto = self._model(ends, opset, metadata, doc)
        self.arrays = self._initializers()

    def _output_names(self, names: Sequence[str]) -> list[str]:
        """Return the outputs' names: one that an input or another output has gets ".out"."""
        taken = {*[t.name for t in self._program.feeds], *[v.name for v in self._held]}
        found: list[str] = []
        pairs = [*zip(names, self._fetches, strict=True)]
        pairs += [(v.name + NEXT, v) for v in self._program.updated]
        for number, (wanted, tensor) in enumerate(pairs):
            name = wanted or tensor.name or f"output_{number}"
            while name in taken:
                name += ".out"
            taken.add(name)
            found.append(name)
        return found

    def _model(
        self, ends: Sequence[str], opset: int, metadata: Mapping[str, str], doc: str
    ) -> onnx.ModelProto:
        b = self._builder
        self._add_symbols()
        sources: dict[Tensor, str] = {**self._inputs, **{v: v.name for v in self._held}}
        wanted = [*self._fetches, *self._next]
        parameters = [Val(name, t.dtype) for t, name in sources.items()]
        # Those that find out sizes, too: nodes whose inputs they are not may need the sizes.
        values = b.inline(list(sources), [*wanted, *self._measured], parameters)[: len(wanted)]
        _raise([*b.problems, *self._problems_at_ends([*sources, *wanted])])
        self._name_outputs(values, ends)
        kept = pruned(ordered([*b.sizes, *b.nodes]), set(ends))
        self._read = {name for node in kept for name in read(node)}
        inputs = [self._described(n, t) for t, n in self._inputs.items()]
        inputs += [self._described(v.name, v) for v in self._program.updated]
        graph = helper.make_graph(
            kept,
            self._graph.name or "graph",
            inputs,
            [self._described(n, t) for n, t in zip(ends, wanted, strict=True)],
        )
        opsets = [helper.make_opsetid("", opset)]
        proto = helper.make_model(
            graph,
            opset_imports=opsets,
            ir_version=helper.find_min_ir_version_for(opsets),
            producer_name="graphfw",
            producer_version=gf.__version__,
            doc_string=doc,
        )
        helper.set_model_props(proto, dict(metadata))
        return proto

    def _problems_at_ends(self, ends: Sequence[Tensor]) -> Iterator[Problem]:
        """Find the dtypes of inputs and outputs that no model has."""
        for end in ends:
            try:
                if end.dtype.is_complex:
                    raise Unsupported("complex numbers")
                check_dtype(end.dtype, self._builder.opset)
            except Unsupported as error:
                yield Problem.of(end.node, error)

    def _described(self, name: str, tensor: Tensor) -> onnx.ValueInfoProto:
        """Return a value's name and type; symbols that `assert_shape` calls equal become one."""
        promises = [c for c in self._program.shape_checks if c.node.op.name == "assert_shape"]
        checks = [(is_symbol(c.actual), c.said) for c in promises if not c.is_inside]
        said = {actual: said for actual, said in checks if actual is not None}
        shape = tuple([substitute(d, said) for d in tensor.shape])
        return described(name, TensorType(tensor.dtype, shape))

    def _add_symbols(self) -> None:
        """Say how the sizes of symbols are computed from the inputs' shapes."""
        b, program = self._builder, self._program
        for source in program.size_sources:
            feed = program.feeds[source.feed]

            def size(feed: Tensor = feed, source: Any = source) -> Val:
                if feed not in self._inputs:  # it is needed for its size only
                    self._inputs[feed] = feed.name or b.unique("input")
                x = Val(self._inputs[feed], feed.dtype)
                one = b("Shape", x, dtype=gf.int64, start=source.axis, end=source.axis + 1)
                if source.offset:
                    one = b("Sub", one, b.ints([source.offset]))
                return one if source.scale == 1 else b("Div", one, b.ints([source.scale]))

            b.symbol(source.symbol, size)
        known_symbols = {source.symbol for source in program.size_sources}
        known_symbols.update(
            *[t.node.op.symbols for t in self._measured]
        )  # their exporters say how
        for check in program.shape_checks:
            name = check.introduced
            if (
                name is not None
                and name not in known_symbols
                and symbols_of(check.actual) <= known_symbols
            ):
                known_symbols.add(name)
                b.symbol(name, partial(b.dim, check.actual))

    def _name_outputs(self, values: Sequence[Val], names: Sequence[str]) -> None:
        """Give values the outputs' names; copy what no node makes, and what is fetched twice."""
        b = self._builder
        made = {name for node in b.nodes for name in node.output}
        renamed: dict[str, str] = {}
        for value, name in zip(values, names, strict=True):
            own = value.name in made and value.name not in renamed
            renamed[value.name if own else b("Identity", value).name] = name
        rename([*b.sizes, *b.nodes], renamed)

    def _initializers(self) -> dict[str, Array]:
        contents = _contents(self._graph, self._session, self._held)
        read_or_updated = {*self._read, *[v.name for v in self._program.updated]}
        constants = self._builder.arrays
        return {
            name: array
            for name, array in {**contents, **constants}.items()
            if name in read_or_updated
        }


def _check_arguments(
    graph: Graph, session: Session | None, opset: Any, metadata: Any, doc: Any
) -> None:
    oldest, newest = OPSETS
    if not isinstance(opset, int) or not oldest <= opset <= newest:
        raise ArgumentError(f"save: opset={opset!r}", fix=f"use one from {oldest} to {newest}")
    if session is not None and not isinstance(session, Session):
        raise ArgumentError(
            f"save: session is {a_type(session)}, not a Session",
            fix="write session=gf.Session(graph)",
        )
    if session is not None and session.graph is not graph:
        raise ArgumentError(
            "save: the session is that of another graph",
            why=owners(session.graph, graph, "what is saved is"),
            fix="pass session.graph as the graph",
        )
    if session is not None and not session.executor.holds_values:
        raise ArgumentError("save: the session holds no values", fix="use a session that runs")
    if not isinstance(metadata, Mapping):
        raise ArgumentError(f"save: metadata is {a_type(metadata)}, not a dict", fix="give texts")
    for key, value in {**metadata, "doc": doc}.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise ArgumentError(f"save: {key!r} is {value!r}", fix="metadata and doc are text")


def _leaves(graph: Graph, fetches: Any) -> tuple[list[Tensor], list[Update], list[str]]:
    """Return the fetched tensors and updates, and the names that a dict gives them, else ""."""
    pairs = list(fetches.items()) if isinstance(fetches, Mapping) else [("", fetches)]
    tensors: list[Tensor] = []
    updates: list[Update] = []
    names: list[str] = []
    for key, value in pairs:
        leaves = list(nest.leaves(value))
        for number, leaf in enumerate(leaves):
            found = fetched(graph, leaf)
            if isinstance(found, Update):
                updates.append(found)
                continue
            tensors.append(found)
            names.append(f"{key}_{number}" if key != "" and len(leaves) > 1 else str(key))
    if not tensors and not updates:
        raise FetchError("save: there is nothing to fetch", fix="give tensors, updates or names")
    return tensors, updates, names


def _placeholders(
    graph: Graph, tensors: Sequence[Tensor], updates: Sequence[Update]
) -> list[Tensor]:
    """Return the graph's placeholders, those that are needed before the others."""
    values = [value for update in updates for _, value in update.pairs]
    needed = set(ancestors([*tensors, *values]))
    return sorted(graph.placeholders, key=lambda t: t.node not in needed)


def _named_inputs(program: Program, needed: set[Node]) -> dict[Tensor, str]:
    names = Names(t.name for t in (*program.feeds, *program.variables))
    return {t: t.name or names.free("input") for t in program.feeds if t.node in needed}


def _contents(
    graph: Graph, session: Session | None, variables: Sequence[Variable]
) -> dict[str, Array]:
    if not variables:
        return {}
    if session is None:
        with Session(graph, executor="numpy") as own:
            return {v.name: own[v] for v in variables}
    state = session.state_dict()  # all of one moment
    return {v.name: state[v.name] for v in variables}


def _raise(problems: Sequence[Problem]) -> None:
    """Raise one error that names everything which can't be said in ONNX."""
    if not problems:
        return
    found: dict[tuple[str, str], list[str]] = {}
    for problem in problems:
        locations = found.setdefault((problem.op, problem.reason), [])
        if problem.loc.short() not in locations:
            locations.append(problem.loc.short())
    texts = [
        f"{op}{f' ({reason})' if reason else ''} at {', '.join(locations[:3])}"
        + (f" and {len(locations) - 3} other locations" if len(locations) > 3 else "")
        for (op, reason), locations in sorted(found.items())
    ]
    fixes = {problem.fix for problem in problems}
    fix = fixes.pop() if len(fixes) == 1 else ""
    if any(op == "random_bits" for op, _ in found):
        fix = (
            "apply the model by model(x, training=False), so that it draws nothing; or let the "
            "runtime draw numbers of its own: save(…, draws=True)"
        )
    raise OnnxError(
        f"ONNX has nothing for these operations: {'; '.join(texts)}",
        at=problems[0].loc,
        fix=fix or "fetch what does not need them, or compute it by other operations",
    )


# Files


def _checked_path(path: str | os.PathLike[str]) -> Path:
    if not isinstance(path, (str, os.PathLike)):
        raise ArgumentError(f"save: the path is {a_type(path)}", fix="give a file's path")
    target = Path(path)
    if not target.parent.is_dir():
        raise OnnxError(f"{target} can't be written: there is no folder {target.parent}")
    if target.is_dir():
        raise OnnxError(f"{target} can't be written: it is a folder")
    return target


def _write(made: Saving, target: Path, outside: bool) -> None:
    """Write the model in a folder beside the target, check it there, and move it."""
    data = f"{target.name}.data"
    try:
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
            directory = Path(folder)
            if outside:
                _append_outside(made, directory / data)
            else:
                made.proto.graph.initializer.extend(
                    [numpy_helper.from_array(array, name) for name, array in made.arrays.items()]
                )
            _store(directory / target.name, made.proto.SerializeToString())
            _check(directory / target.name)
            if outside:
                os.replace(directory / data, target.with_name(data))
            os.replace(directory / target.name, target)
    except OSError as error:
        raise OnnxError(f"{target} can't be written: {error.strerror or error}") from None


def _append_outside(made: Saving, path: Path) -> None:
    """Write large arrays one after the other to a file, and say in the model where they are."""
    with path.open("wb") as file:
        for name, array in made.arrays.items():
            if array.nbytes < _SMALLEST_OUTSIDE:
                made.proto.graph.initializer.append(numpy_helper.from_array(array, name))
                continue
            data = numpy_helper.from_array(array, name)
            file.write(bytes(-file.tell() % _PAGE))
            offset = file.tell()
            file.write(data.raw_data)
            outer = TensorProto(name=name, dims=array.shape, data_type=data.data_type)
            outer.data_location = TensorProto.EXTERNAL
            for key, value in (
                ("location", path.name),
                ("offset", offset),
                ("length", len(data.raw_data)),
            ):
                outer.external_data.add(key=key, value=str(value))
            made.proto.graph.initializer.append(outer)
        _flush(file)


def _store(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        _flush(file)


def _flush(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def _check(path: Path) -> None:
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise OnnxError(f"ONNX's checker refuses the model: {error}") from None


__all__ = ["rules", "save"]
