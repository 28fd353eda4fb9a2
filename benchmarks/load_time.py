"""A program that loads a model and runs it once: `python -m benchmarks.load_time FILE graphfw`.

It prints a JSON object: `seconds`, from the file to the first result, with what the library does
when it is first used, but without importing it; and `grown_mib`, how much the process's memory
grew at its highest above what it was when the library was loaded.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from typing import Any

import numpy as np

from benchmarks.first_result import grown_mib, resident_mib
from benchmarks.workloads.models import onnxruntime_session

CONTENDERS = ("graphfw", "onnxruntime")


def main() -> None:
    """Load the model and print what that took."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load_time")
    parser.add_argument("file", help="a model; its input is beside it, in .npy's format")
    parser.add_argument("contender", choices=CONTENDERS)
    options = parser.parse_args()
    image = np.load(f"{options.file}.npy")
    first = _graphfw if options.contender == "graphfw" else _onnxruntime
    seconds, grown, scores = first(options.file, image)
    found = [float(x) for x in scores.reshape(-1)[:5]]
    print(json.dumps({"seconds": seconds, "grown_mib": grown, "scores": found}), flush=True)


def _graphfw(file: str, image: Any) -> tuple[float, float, Any]:
    import graphfw as gf

    load = gf.onnx.load  # imports onnx
    importlib.import_module("llvmlite.binding")
    importlib.import_module("onnx").defs.has("Conv")  # its table, as ONNX Runtime makes its own
    before = resident_mib()
    begin = time.perf_counter()
    graph = load(file)
    plan = gf.Session(graph).compile(graph.outputs[0], feeds=graph.placeholders)
    scores = plan(image)
    return time.perf_counter() - begin, grown_mib(before), scores


def _onnxruntime(file: str, image: Any) -> tuple[float, float, Any]:
    importlib.import_module("onnxruntime")
    before = resident_mib()
    begin = time.perf_counter()
    session = onnxruntime_session(file)
    scores = session.run(None, {session.get_inputs()[0].name: image})[0]
    return time.perf_counter() - begin, grown_mib(before), scores


if __name__ == "__main__":
    main()
