"""Names of machines in other frameworks: the executor that computes there."""

from __future__ import annotations

_MEANT = {
    "numpy": ("cpu", "host", "xla_cpu"),
    "cupy": ("cuda", "gpu", "nvidia"),
    "": ("directml", "hip", "hpu", "metal", "mps", "rocm", "tpu", "xla", "xpu"),
}
_EXECUTORS = {device: name for name, devices in _MEANT.items() for device in devices}


def executor_for(device: str) -> str:
    """Return the fix for another framework's name of a device, or "".

    >>> executor_for("cuda:1"), executor_for("numpy")
    ('write gf.Session(g, executor="cupy:1")', '')
    """
    name, colon, number = device.lower().partition(":")
    if name not in _EXECUTORS:
        return ""
    if not _EXECUTORS[name]:
        return f'not in graphfw: "{name}" has no executor; write gf.Session(g, executor="numpy")'
    own = _EXECUTORS[name] + (colon + number if _EXECUTORS[name] == "cupy" else "")
    return f'write gf.Session(g, executor="{own}")'
