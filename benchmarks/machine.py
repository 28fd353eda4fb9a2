"""The machine of the figures: the processor and the versions, and nothing that tells whose."""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import shutil
import subprocess
from pathlib import Path

CONTENDERS = {
    "graphfw": "graphfw",
    "numpy": "numpy",
    "torch": "torch",
    "torch.compile": "torch",
    "jax": "jax",
    "numexpr": "numexpr",
    "pytensor": "pytensor",
    "onnxruntime": "onnxruntime",
    "numba": "numba",
    "keras": "keras",
    "torch+copy": "torch",
    "torch.compile+copy": "torch",
    "jax+copy": "jax",
}
"""Who takes part, with the package that each needs; all but the first are peers.

"+copy": of arrays that lie in memory as the library cannot take them, with the copy it needs."""

FLOORS = {"copy": "numpy"}
"""Programs timed beside the contenders to compare with, which are no peers."""

_VECTORS = {"avx512f": "AVX-512", "avx2": "AVX2"}
"""What processors say that they have, the widest first."""

PEERS = (*tuple(CONTENDERS)[1:], "cudnn")

ON_GPU = {
    "graphfw": ("cupy",),
    "copy": ("cupy",),
    "torch": ("torch",),
    "torch.compile": ("torch",),
    "cudnn": ("torch",),
    "jax": ("jax_cuda12_plugin", "jax_cuda13_plugin"),
}
"""Those who can compute on a GPU, with the packages of which they need one there."""


def installed(contender: str, device: str = "cpu") -> bool:
    """Return whether a package that a contender needs on a device can be imported."""
    on_cpu = {name: (package,) for name, package in {**CONTENDERS, **FLOORS}.items()}
    packages = (on_cpu if device == "cpu" else ON_GPU).get(contender, ())
    if contender.startswith("torch.compile") and device == "cpu" and not _has_compiler():
        return False
    return any([importlib.util.find_spec(package) is not None for package in packages])


def _has_compiler() -> bool:
    """Return whether there is a compiler of C++, which torch.compile calls on CPUs."""
    return any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++", "cl")))


def processor() -> str:
    """Return the processor's name, its widest vectors, and how many of its cores may be used."""
    name, vectors = platform.processor() or platform.machine(), ""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        found = {key.strip(): value for key, _, value in (line.partition(":") for line in lines)}
        name = found["model name"].strip()
        flags = found["flags"].split()
        vectors = next((f"{text}, " for flag, text in _VECTORS.items() if flag in flags), "")
    except (OSError, KeyError):
        pass
    return f"{name}, {vectors}{len(cores())} cores"


def gpu() -> str:
    """Return the first GPU's name, its memory and its driver's version."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "no GPU"
    return answer.splitlines()[0]


def device(kind: str) -> str:
    """Return what computes, given "cpu" or "cuda"."""
    return gpu() if kind == "cuda" else "cpu"


def cores() -> list[int]:
    """Return the numbers of the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def threads(text: str) -> int:
    """Return a number of threads from the command line.

    Raises:
        argparse.ArgumentTypeError: It is none, or there are fewer cores.
    """
    most = len(cores())
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of threads from 1 to {most}")
    return int(text)


def in_a_folder(text: str) -> Path:
    """Return a file's name from the command line; measuring takes long, writing comes last.

    Raises:
        argparse.ArgumentTypeError: Its folder does not exist.
    """
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path.parent}")
    return path


def versions() -> dict[str, str]:
    """Return the version of Python and of each package that takes part and is installed."""
    found = {"Python": platform.python_version()}
    for package in dict.fromkeys([*CONTENDERS.values(), "cupy", "cudnn"]):
        if importlib.util.find_spec(package) is not None:
            found[package] = _version(package)
    return found


def _version(package: str) -> str:
    # Not at the top: programs that are timed from Python's start import this module.
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # imported by another name, as CuPy is, or not installed
        others = metadata.packages_distributions().get(package)
        return metadata.version(others[0]) if others else "from source"


def facts() -> str:
    """Describe the machine and the software in one line."""
    listed = ", ".join(f"{name} {version}" for name, version in versions().items())
    return f"{processor()}; {platform.system()}; {listed}"


def load() -> str:
    """Say whether others were at work on the machine: figures are worth little then."""
    if not hasattr(os, "getloadavg"):
        return "load unknown"
    return f"load {os.getloadavg()[0]:.1f} at the start"
