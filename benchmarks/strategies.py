"""The layers of networks that can be computed in several ways: what each way takes.

For each layer: how often the network has it, then by strategy what was estimated and what was
measured, in µs. `<` marks what the estimates choose, `*` what is the fastest.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from benchmarks import machine
from benchmarks.workloads.models import NETWORKS, model


class Layer(NamedTuple):
    """A layer and its strategies, each with its seconds: estimated, of a core, and measured."""

    shapes: str
    estimates: tuple[tuple[str, float], ...]
    times: tuple[tuple[str, float], ...]


def main(arguments: list[str]) -> None:
    """Measure the layers of some networks, and print a table for each."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks strategies",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("networks", nargs="*", metavar="network", help=", ".join(NETWORKS))
    parser.add_argument("--threads", type=machine.threads, default="2", help="of a run (2)")
    options = parser.parse_args(arguments)
    for name in options.networks:
        if name not in NETWORKS:
            parser.error(f"no network is named {name!r}: there are {', '.join(NETWORKS)}")
    os.environ["GRAPHFW_CACHE"] = "off"  # measure, whatever was measured before
    for name in options.networks or NETWORKS:
        print(f"\n{NETWORKS[name]}, {options.threads} threads")
        for line in _table(_layers(name, options.threads), options.threads):
            print(line, flush=True)


def _layers(name: str, threads: int) -> Iterator[Layer]:
    import graphfw as gf

    proto = model(name)
    graph = gf.onnx.load(proto)
    feeds = [graph.find(proto.graph.input[0].name)]
    session = gf.Session(graph, threads=threads, tune=True)
    compiled: Any = session.compile(graph.outputs[0], feeds)._run
    for step in compiled.build.steps:
        if step.choice is not None and step.choice.times:
            node = next(node for node in step.nodes if node.op.name == "conv")
            shapes = " ".join([str(list(tensor.shape)) for tensor in node.inputs])
            estimates, times = step.choice.estimates, step.choice.times
            yield Layer(f"{shapes} /{node.op.strides[0]}", (*estimates.items(),), (*times.items(),))


def _table(layers: Iterator[Layer], threads: int) -> Iterator[str]:
    totals = dict.fromkeys(("direct", "estimates", "measured"), 0.0)
    for layer, count in Counter(layers).items():
        times, estimates = dict(layer.times), dict(layer.estimates)
        rule = min(estimates, key=estimates.__getitem__)
        best = min(times, key=times.__getitem__)
        shown = [
            f"{name}{'<' * (name == rule)}{'*' * (name == best)} "
            f"{estimates[name] / threads * 1e6:.0f} {seconds * 1e6:.0f}"
            for name, seconds in layer.times
        ]
        yield f"{count:>3} × {layer.shapes:44} {'   '.join(shown)}"
        for total, name in zip(totals, ("direct", rule, best), strict=True):
            totals[total] += count * times[name] * 1e3
    yield "in all: " + ", ".join([f"{total} {ms:.2f} ms" for total, ms in totals.items()])
