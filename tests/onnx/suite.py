"""ONNX's own backend test suite through graphfw: `python -m tests.onnx.suite [NAMES]`."""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import pickle
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google import protobuf
from onnx import numpy_helper

import graphfw.onnx

KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted", "real")

PASSING = Path(__file__).with_name("passing.txt")
_SKIPS = Path(__file__).with_name("skips.txt")
_KEPT = Path(__file__).parents[2] / ".pytest_cache" / "onnx"


def reasons() -> dict[str, str]:
    """Return why cases that don't pass do not, by name."""
    found: dict[str, str] = {}
    reason = ""
    for line in _SKIPS.read_text("utf-8").splitlines():
        if line.startswith("#"):
            reason = line.lstrip("# ")
        elif line:
            found[line] = reason
    return found


@functools.cache
def cases(kind: str = "node") -> dict[str, Any]:
    """Return the suite's cases by name.

    ONNX computes those of operators anew, which takes six seconds, so that they are kept for the
    next process.
    """
    if kind != "node":
        return _made(kind)
    versions = f"{onnx.__version__}-{np.__version__}-{protobuf.__version__}"
    path = _KEPT / f"onnx-{versions}-{sys.version_info.major}.{sys.version_info.minor}.pickle"
    with contextlib.suppress(FileNotFoundError):
        kept: dict[str, Any] = pickle.loads(path.read_bytes())
        return kept
    made = _made(kind)
    _KEPT.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}.part")
    unfinished.write_bytes(pickle.dumps(made))
    unfinished.rename(path)
    return made


def _made(kind: str) -> dict[str, Any]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for case in load_model_tests(kind=kind)}


_TRANSFORMS = ("DFT", "STFT")
"""Each result is a sum of all numbers, with rounding errors of the largest; so are NumPy's, which
the suite expects."""


def outcome(case: Any) -> str:
    """Run one case; "" is a pass, else what was wrong."""
    model = case.model if case.model is not None else onnx.load(_path(case))
    try:
        for inputs, outputs in _data(case, model):
            weights = {tensor.name for tensor in model.graph.initializer}
            names = [info.name for info in model.graph.input if info.name not in weights]
            given = {n: as_array(v) for n, v in zip(names, inputs, strict=False) if v is not None}
            made = graphfw.onnx.run(model, given)
            transforms = any(node.op_type in _TRANSFORMS for node in model.graph.node)
            for (name, value), wanted in zip(made.items(), outputs, strict=True):
                largest = np.max(np.abs(as_array(wanted)), initial=1) if transforms else 1
                compare(name, value, wanted, case.rtol, case.atol * largest)
    except (graphfw.errors.GraphfwError, AssertionError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _data(case: Any, model: onnx.ModelProto) -> Any:
    if case.data_sets is not None:
        yield from case.data_sets
        return
    if case.model_dir is None:
        yield _ramps(model), [_read(_path(case, "_output_0.pb"), model.graph.output[0].type)]
        return
    for folder in sorted(Path(case.model_dir).glob("test_data_set_*")):
        yield tuple(
            [
                _read(folder / f"{what}_{i}.pb", info.type)
                for i, info in enumerate(infos)
                if (folder / f"{what}_{i}.pb").exists()
            ]
            for what, infos in (("input", model.graph.input), ("output", model.graph.output))
        )


def _path(case: Any, end: str = ".onnx") -> Path:
    """Return the file of a model, or with another end what belongs to it."""
    if case.model_dir is not None:
        return Path(case.model_dir, "model.onnx")
    light = Path(onnx.__file__).parents[1] / case.url
    return light.with_name(light.stem + end)


def _ramps(model: onnx.ModelProto) -> list[Any]:
    """Return the inputs that the outputs which come with the large models were made of."""
    weights = {tensor.name for tensor in model.graph.initializer}
    shapes = [
        [dim.dim_value or 1 for dim in info.type.tensor_type.shape.dim]
        for info in model.graph.input
        if info.name not in weights
    ]
    counts = [int(np.prod(shape)) for shape in shapes]
    return [
        (np.arange(n) / n).astype(np.float32).reshape(s)
        for n, s in zip(counts, shapes, strict=True)
    ]


def _read(path: Path, kind: onnx.TypeProto) -> Any:
    data = path.read_bytes()
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def as_array(value: Any) -> Any:
    """Return a value of the suite, an array or a tensor's protobuf, as an array."""
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def compare(name: str, value: Any, wanted: Any, rtol: float, atol: float) -> None:
    """Assert that an output is what it should be."""
    wanted = as_array(wanted)
    if isinstance(wanted, (list, tuple)) and isinstance(value, list):
        assert len(value) == len(wanted), f"{name}: {len(value)} items, not {len(wanted)}"
        for item, expected in zip(value, wanted, strict=True):
            compare(name, item, expected, rtol, atol)
        return
    if wanted is None or value is None:
        assert value is wanted, f"{name}: {value}, not {wanted}"
        return
    wanted = np.asarray(wanted)
    if type(value) is not np.ndarray and not isinstance(value, np.generic):  # it is on a GPU
        value = graphfw.to_numpy(value)
    assert value.shape == wanted.shape, f"{name}: shape {value.shape}, not {wanted.shape}"
    if wanted.dtype.kind in "OUS":
        assert [str(v) for v in value.ravel()] == [
            v.decode() if isinstance(v, bytes) else str(v) for v in wanted.ravel()
        ], f"{name} differs"
        return
    assert value.dtype == wanted.dtype, f"{name}: dtype {value.dtype}, not {wanted.dtype}"
    if wanted.dtype.kind == "V":
        value, wanted = value.astype(np.float32), wanted.astype(np.float32)
    np.testing.assert_allclose(value, wanted, rtol=rtol, atol=atol, err_msg=name)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def main() -> None:
    """Print what is wrong with each case that fails, and how often each reason occurs."""
    found = {name: case for kind in KINDS for name, case in cases(kind).items()}
    patterns = [a for a in sys.argv[1:] if a != "--update"]
    wanted = [n for n in found if not patterns or any(pattern in n for pattern in patterns)]
    wrong: dict[str, str] = {}
    for name in wanted:
        try:
            text = outcome(found[name])
        except Exception as error:  # a defect: shown with its type
            text = f"{type(error).__name__}, which is no error of graphfw: {error}"
        if text:
            wrong[name] = text.splitlines()[0][:160]
            _say(f"{name}: {wrong[name]}")
    for reason, count in collections.Counter(wrong.values()).most_common(40):
        _say(f"{count} {reason}")
    _say(f"{len(wanted) - len(wrong)} of {len(wanted)} pass")
    if "--update" in sys.argv:
        PASSING.write_text("".join(f"{n}\n" for n in wanted if n not in wrong), "utf-8")


if __name__ == "__main__":
    main()
