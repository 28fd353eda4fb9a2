"""The tables of other frameworks' names, read: loaded by the first error that needs them.

`foreign_names.py` says what is called otherwise, `foreign_calls.py` what is written as an
expression, `foreign_texts.py`, `foreign_module_texts.py` and `foreign_training.py` what to do where
there is neither; `foreign_methods.py` has the same for methods and attributes of objects. `RULES`
are ways in which whole families of names differ.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphfw.hints import (
    foreign_arguments,
    foreign_calls,
    foreign_distributions,
    foreign_forms,
    foreign_methods,
    foreign_module_texts,
    foreign_names,
    foreign_texts,
    foreign_training,
)

Calls = dict[str, list[tuple[str, str]]]
"""Calls of each name, with the expressions to write for them."""


def _lines(table: str) -> Iterator[str]:
    """Yield the lines of a table, without comments."""
    for line in table.splitlines():
        if line and not line.startswith("#"):
            yield line


def _renamed(table: str) -> dict[str, str]:
    found: dict[str, str] = {}
    target = ""
    for line in _lines(table):
        head, _, names = line.rpartition(": ")
        target = head or target
        found.update(dict.fromkeys(names.split(), target))
    return found


def _calls(table: str) -> Calls:
    found: Calls = {}
    for line in _lines(table):
        call, _, expression = line.partition("): ")
        names, _, arguments = call.partition("(")
        for name in names.split("|"):
            found.setdefault(name, []).append((f"{name}({arguments})", expression))
    return found


def _texts(table: str) -> dict[str, str]:
    found: dict[str, str] = {}
    text = ""
    for line in _lines(table):
        if line.startswith(" "):
            found.update(dict.fromkeys(line.split(), text))
        else:
            text = line
    return found


RENAMED = _renamed(foreign_names.CALLED)
"""Another framework's name, and the public path of what graphfw calls otherwise."""

CALLS = _calls(foreign_calls.CALLS)

FORMS = _calls(foreign_forms.FORMS)
"""Calls of functions that graphfw has by the same name, as others call them."""

VALUES = _calls(foreign_methods.VALUE_CALLS)
"""Calls of attributes that are no methods here."""

ORDERS = {
    name: order.split()
    for names, _, order in [line.partition(": ") for line in _lines(foreign_arguments.ORDERS)]
    for name in names.split()
}
"""The order of arguments of another framework's function, where it is not that of graphfw's."""


def _patterns(texts: dict[str, str]) -> dict[str, str]:
    """Take the patterns out of a table."""
    return {name: texts.pop(name) for name in list(texts) if set("*[") & set(name)}


_OPTIM_CALLS = _calls(foreign_calls.OPTIM_CALLS)
_OPTIM_TEXTS = _texts(foreign_module_texts.OPTIM_TEXTS)
TEXTS = {
    **_OPTIM_TEXTS,
    **_texts(foreign_texts.TEXTS),
    **_texts(foreign_training.TRAINING_TEXTS),
}
"""Another framework's name, and what to do where there is no one function for it."""

PATTERNS = _patterns(TEXTS)
"""The same of patterns of names, in the order in which they are tried."""

BEYOND = {"gf.special": "special", "gf.linalg": "linalg"}
"""SciPy's modules for what users look for in one of graphfw's that has no answer to it."""

SET: dict[str, tuple[Calls, dict[str, str]]] = {
    "Tensor": (_calls(foreign_methods.SET_CALLS), {}),
    "Optimizer": ({}, _texts(foreign_methods.OPTIMIZER_SET_TEXTS)),
    "Config": ({}, _texts(foreign_methods.CONFIG_SET_TEXTS)),
    "Trainer": ({}, _texts(foreign_training.TRAINER_SET_TEXTS)),
}
"""Calls and texts for attributes that are set, by the kind of objects; "*" stands for any."""

OF_OWNERS: dict[str, tuple[Calls, dict[str, str]]] = {
    "gf": ({}, _texts(foreign_module_texts.TOP_TEXTS)),
    "gf.autograd": ({}, _texts(foreign_module_texts.AUTOGRAD_TEXTS)),
    "gf.nn": (_calls(foreign_calls.NN_CALLS), _texts(foreign_module_texts.NN_TEXTS)),
    "gf.special": (_calls(foreign_calls.SPECIAL_CALLS), {}),
    "gf.fft": (_calls(foreign_calls.FFT_CALLS), {}),
    "gf.onnx": ({}, _texts(foreign_module_texts.ONNX_TEXTS)),
    "gf.random": (_calls(foreign_calls.RANDOM_CALLS), _texts(foreign_module_texts.RANDOM_TEXTS)),
    "gf.linalg": (_calls(foreign_calls.LINALG_CALLS), _texts(foreign_module_texts.LINALG_TEXTS)),
    "gf.tree": ({}, _texts(foreign_module_texts.TREE_TEXTS)),
    "gf.optim": (_OPTIM_CALLS, _OPTIM_TEXTS),
    "gf.optim.schedules": (_OPTIM_CALLS, {}),
    "Tensor": (_calls(foreign_methods.TENSOR_CALLS), _texts(foreign_methods.TENSOR_TEXTS)),
    "Module": ({}, _texts(foreign_methods.MODULE_TEXTS)),
    "gf.distributed": ({}, _texts(foreign_module_texts.DISTRIBUTED_TEXTS)),
    "gf.distributions": ({}, _texts(foreign_distributions.DISTRIBUTIONS_TEXTS)),
    "Distribution": ({}, _texts(foreign_distributions.DISTRIBUTION_TEXTS)),
    "Optimizer": ({}, _texts(foreign_methods.OPTIMIZER_TEXTS)),
    "Selection": (_calls(foreign_methods.SELECTION_CALLS), _texts(foreign_methods.SELECTION_TEXTS)),
    "Session": ({}, _texts(foreign_methods.SESSION_TEXTS)),
    "Graph": ({}, _texts(foreign_methods.GRAPH_TEXTS)),
    "Plan": ({}, _texts(foreign_methods.PLAN_TEXTS)),
    "Report": ({}, _texts(foreign_methods.REPORT_TEXTS)),
    "Function": ({}, _texts(foreign_methods.FUNCTION_TEXTS)),
    "Schedule": ({}, _texts(foreign_methods.SCHEDULE_TEXTS)),
    "Trainer": ({}, _texts(foreign_training.TRAINER_TEXTS)),
    "Training": ({}, _texts(foreign_training.TRAINING_STATE_TEXTS)),
    "Checkpoints": ({}, _texts(foreign_training.CHECKPOINTS_TEXTS)),
    "Batches": ({}, _texts(foreign_training.BATCHES_TEXTS)),
}
"""Calls and texts that go before all others in one module, or for one kind of objects."""

RULES = (
    (r"(\w+[a-z0-9])_", r"\1"),  # PyTorch's functions that change a tensor
    (r"(\w+)_copy|(\w+)_physical|unsafe_(\w+)|native_(\w+)|safe_(\w+)", r"\1\2\3\4\5"),
    (r"reduce_(\w+)", r"\1"),
    (r"hard_(\w+)", r"hard\1"),
    (r"Convolution([123])D", r"Conv\1d"),
    (r"Convolution([123])DTranspose", r"ConvTranspose\1d"),
    (r"Conv([123])DTranspose", r"ConvTranspose\1d"),
    (r"SpatialDropout([123])D", r"Dropout\1d"),
    (r"Global(Avg|Max)Pool([123])D", r"Global\1Pooling\2D"),
    (r"GlobalAvgPooling([123])D", r"GlobalAveragePooling\1D"),
    (r"(Adaptive|)(Max)Pooling([123])D", r"\1\2Pool\3d"),
    (r"(Adaptive|)Average(?:Pooling|Pool)([123])D", r"\1AvgPool\2d"),
    (r"(\w+)Normalization", r"\1Norm"),
    (r"(\w+)Loss|(\w+)_loss", r"\1\2"),
    (r"([a-z_]+?)_?[123]d", r"\1"),
)
"""A form of names, and the name without it."""
