"""cuDNN, by NVIDIA's own Python package: graphs of a convolution and what is added to it.

`nvidia-cudnn-frontend` is asked for ways to compute a convolution of given sizes, of which those
are left that give the same results in each run and are as exact as a session wants them.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

from graphfw.errors import ArgumentError, ExecutorError
from graphfw.ir.graph import Graph
from graphfw.runtime.cupy_executor.convolution.described import (
    CONVOLUTIONS,
    MADE,
    CudnnCode,
    Described,
    Lying,
    Numerics,
    described,
)
from graphfw.runtime.executor import Options

WORKSPACE = 256 << 20
"""How much memory a convolution may be given besides its operands, in bytes."""

_OLDEST = 90100
"""cuDNN 9.1; before, it knows less of what graphs may be."""

_PLANS = 1024
"""So many plans are kept."""

_KINDS = {"float16": "HALF", "bfloat16": "BFLOAT16", "float32": "FLOAT", "float64": "DOUBLE"}

_NEVER = (
    "NONDETERMINISTIC",  # another order of sums in another run
    "DOWN_CONVERT_INPUTS",
    "REDUCED_PRECISION_REDUCTION",
    "FFT",  # its errors are those of the largest element
    "WINOGRAD_TILE_13x13",
)
_WINOGRAD = ("WINOGRAD", "WINOGRAD_TILE_4x4", "WINOGRAD_TILE_6x6")

_LEAVE = "GRAPHFW_CUDNN=0 has convolutions computed by graphfw's own kernels"
INSTALL = 'pip install "graphfw[cudnn12]" or "graphfw[cudnn13]"'


def switched_off() -> str:
    """Say that the environment wants no cuDNN; empty where it does not.

    Raises:
        ArgumentError: What it says is neither 0 nor 1.
    """
    wish = os.environ.get("GRAPHFW_CUDNN", "1")
    if wish not in ("0", "1"):
        raise ArgumentError(
            f"GRAPHFW_CUDNN={wish!r} is neither 0 nor 1", fix="unset it, or set it to 0"
        )
    return "" if wish == "1" else "GRAPHFW_CUDNN=0"


def why_not() -> str:
    """Say why cuDNN is not used; empty where it is."""
    off = switched_off()
    if off:
        return off
    try:
        import_module("cudnn")
    except ModuleNotFoundError:
        return "nvidia-cudnn-frontend is not installed"
    except Exception:  # what is wrong is said by `load`
        return ""
    return ""


def wanted(graph: Graph, options: Options) -> Numerics | None:
    """Return what convolutions may be computed by; None where cuDNN is not asked for any."""
    if not any([node.op.name in CONVOLUTIONS for node in graph.nodes]) or why_not():
        return None
    return Numerics(options.matmul_precision or "highest", options.may_use_winograd)


def load() -> Any:
    """Return NVIDIA's package, which is installed, with a library that it works with.

    Raises:
        ExecutorError: The library is missing or too old.
    """
    try:
        module = import_module("cudnn")
        version: int = module.backend_version()
    except Exception as error:
        raise ExecutorError(
            f"nvidia-cudnn-frontend is installed, but finds no cuDNN: {_first_line(error)}",
            fix=f"{INSTALL}; {_LEAVE}",
        ) from error
    if version < _OLDEST:
        raise ExecutorError(
            f"cuDNN {shown_version(version)} is installed, and convolutions need "
            f"{shown_version(_OLDEST)}",
            fix=f"{INSTALL}; {_LEAVE}",
        )
    return module


def shown_version(number: int) -> str:
    """Write a version for people.

    >>> shown_version(91002)
    '9.10.2'
    """
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


class CudnnPlan(NamedTuple):
    """A convolution that is ready to run.

    Attributes:
        graph: What cuDNN has made of it.
        offsets: Where each operand begins in its storage, in bytes.
        workspace: The bytes that it needs besides.
    """

    graph: Any
    offsets: tuple[int, ...]
    workspace: int


class Cudnn:
    """The library, for one GPU, which must be the current one.

    Args:
        module: What `load` returns.
        where: For which GPU: what graphs are made with besides; a handle where nothing is said.
    """

    def __init__(self, module: Any, **where: Any) -> None:
        self._cudnn = module
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[CudnnCode, tuple[int, ...]], CudnnPlan | str] = OrderedDict()
        self._where = where
        if not where:
            try:
                self._where = {"handle": module.create_handle()}
            except Exception as error:
                raise ExecutorError(
                    f"cuDNN refuses this GPU: {_first_line(error)}",
                    fix=f"python -m graphfw doctor; {_LEAVE}",
                ) from error

    def plan(self, code: CudnnCode, params: Sequence[int]) -> CudnnPlan | str:
        """Return how cuDNN computes a convolution of these sizes; or why it does not."""
        key = (code, tuple(params))
        with self._lock:
            if key not in self._known:
                self._known[key] = self._planned(code, params)
            self._known.move_to_end(key)
            while len(self._known) > _PLANS:
                self._known.popitem(last=False)
            return self._known[key]

    def run(self, plan: CudnnPlan, operands: Sequence[int], workspace: int, stream: int) -> None:
        """Launch a convolution; all memory is given by address."""
        handle = self._where["handle"]
        pointers = zip(operands, plan.offsets, strict=False)
        at = {number: address + offset for number, (address, offset) in enumerate(pointers, 1)}
        with self._lock:  # the handle's stream is the same for all who run something
            try:
                self._cudnn.set_stream(handle=handle, stream=stream)
                plan.graph.execute(at, workspace, handle=handle)
            except Exception as error:
                raise ExecutorError(
                    f"cuDNN does not compute a convolution that it has planned: "
                    f"{_first_line(error)}",
                    fix=f"python -m graphfw doctor; {_LEAVE}",
                ) from error

    def _planned(self, code: CudnnCode, params: Sequence[int]) -> CudnnPlan | str:
        told = described(code, params)
        if isinstance(told, str):
            return told
        cudnn, modes = self._cudnn, self._cudnn.heur_mode
        try:
            graph = self._graph(code, told)
            graph.validate()
            graph.build_operation_graph()
            graph.create_execution_plans([modes.A, modes.FALLBACK])
            graph.deselect_numeric_notes([getattr(cudnn.numerical_note, n) for n in _barred(code)])
            graph.deselect_workspace_greater_than(WORKSPACE)
            graph.check_support()
            graph.build_plans()
            workspace: int = graph.get_workspace_size()
        except (AttributeError, TypeError) as error:
            raise ExecutorError(
                f"nvidia-cudnn-frontend does not take what it is told: {_first_line(error)}",
                fix=_LEAVE,
            ) from error
        except Exception as error:
            return f"cuDNN has no way that is allowed: {_first_line(error)}"
        if getattr(graph, "selected_engine", None) is not None:  # one in Python
            return "the package has a kernel of its own for it, about which it says too little"
        item = code.dtype.itemsize
        offsets = [one.offset * item for one in (told.image, told.filter, told.response)]
        return CudnnPlan(graph, (*offsets, *[0 for _ in code.extras]), workspace)

    def _graph(self, code: CudnnCode, told: Described) -> Any:
        """Describe a convolution; the numbers of its operands are those of the code's, from 1."""
        kinds = self._cudnn.data_type
        kind = getattr(kinds, _KINDS[code.dtype.name])
        sums = kinds.DOUBLE if code.dtype.name == "float64" else kinds.FLOAT
        graph = self._cudnn.pygraph(
            io_data_type=kind,
            intermediate_data_type=sums,
            compute_data_type=sums,
            **self._where,
        )
        number = {name: n for n, name in enumerate(code.operands, 1)}
        lying = {"image": told.image, "filter": told.filter, "response": told.response}
        channels = told.response.shape[1]
        each = (1, channels, *[1 for _ in told.before])
        lying |= {"residual": told.response}
        lying |= {"bias": Lying(0, each, (channels, *[1 for _ in each[1:]]))}

        def given(name: str) -> Any:
            return graph.tensor(
                name=name,
                dim=list(lying[name].shape),
                stride=list(lying[name].strides),
                data_type=kind,
                uid=number[name],
            )

        window = {
            "pre_padding": told.before,
            "post_padding": told.behind,
            "stride": told.strides,
            "dilation": told.dilations,
        }
        if code.kind == "fprop":
            made = graph.conv_fprop(image=given("image"), weight=given("filter"), **window)
        elif code.kind == "dgrad":
            made = graph.conv_dgrad(loss=given("response"), filter=given("filter"), **window)
        else:
            made = graph.conv_wgrad(image=given("image"), loss=given("response"), **window)
        for extra in code.extras:
            made = graph.add(a=made, b=given(extra))
        name = MADE[code.kind]
        made.set_output(True).set_data_type(kind).set_uid(number[name])
        made.set_dim(list(lying[name].shape)).set_stride(list(lying[name].strides))
        return graph


def _barred(code: CudnnCode) -> list[str]:
    """Return the notes of ways that are not taken."""
    is_wide = not code.dtype.is_low_precision
    barred = [*_NEVER]
    if not (is_wide and code.numerics.winograd):
        barred += _WINOGRAD
    if code.dtype.name == "float32" and code.numerics.precision != "high":
        barred.append("TENSOR_CORE")  # they take TF32
    return barred


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200]
