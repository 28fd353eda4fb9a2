"""The entries of a saved state that fit a module, and the errors for those that don't."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np

from graphfw.errors import ArgumentError, CheckpointError, GraphError, a_type, did_you_mean
from graphfw.ir.arrays import entry_array
from graphfw.ir.dtype import as_dtype, bfloat16
from graphfw.ir.literal import Array
from graphfw.ir.model_graph import ModelGraph
from graphfw.ir.state_dict import StateDict, is_torch_tensor
from graphfw.ir.types import TensorType
from graphfw.ir.variable import Variable
from graphfw.nn.interface import ModuleInterface

_SHOWN = 6


def own_session(module: ModuleInterface, what: str) -> Any:
    """Return the session of a module that was made outside of any graph.

    Raises:
        GraphError: It was made in a graph.
    """
    graph = module._names.graph
    variables = [variable for _, variable in module._held_variables()]
    if variables:
        graph = variables[0].graph
    if isinstance(graph, ModelGraph):
        return graph.session
    raise GraphError(
        f"{what}: the module is one of a graph, whose variables have their contents in sessions",
        fix="pass the session first; a module that is made outside of any graph needs none",
    )


def placed(module: ModuleInterface, what: str, session: Any, value: Any) -> tuple[Any, Any]:
    """Return the session and the value of a call, in which the session may have been left out."""
    if value is not None or hasattr(session, "graph"):
        return session, value
    return own_session(module, what), session


def check_arguments(what: str, session: Any, state: Any) -> None:
    """See that what is to be loaded is a dict, and that the session stands before it.

    Raises:
        ArgumentError: It is none, or they are the wrong way round.
    """
    if isinstance(session, Mapping):
        raise ArgumentError(
            f"{what}: the session is {a_type(session)}",
            fix="the session comes first: load_state_dict(session, state)",
        )
    if not isinstance(state, Mapping):
        raise ArgumentError(
            f"{what}: the state is {a_type(state)}, not a dict of arrays",
            fix="load() reads a file of save(), and load_pytorch() one of PyTorch's"
            if isinstance(state, (str, PathLike))
            else "pass what state_dict(session) returned",
        )


def check_session(what: str, session: Any, variables: Iterable[Variable]) -> None:
    """See that a session has the variables of a module.

    Raises:
        ArgumentError: It has not, or is no session.
    """
    graph = getattr(session, "graph", None)
    if graph is None:
        raise ArgumentError(
            f"{what}: the session is {a_type(session)}", fix="pass gf.Session(graph)"
        )
    known = {variable.name for variable in graph.variables}
    unknown = [variable.name for variable in variables if variable.name not in known]
    if unknown:
        raise ArgumentError(
            f'{what}: the session has no variable "{unknown[0]}"',
            fix="pass a session of the graph that the module is made in",
        )


def laid_out(
    what: str, module: ModuleInterface, state: Mapping[str, Any], format: str | None
) -> tuple[Mapping[str, Any], bool]:
    """Return a state with graphfw's names and layouts, and whether PyTorch's were converted.

    Entries that are known to be graphfw's stay as they are: see `StateDict`.

    Raises:
        ArgumentError: There is no such format.
        CheckpointError: No format is given, and arrays have names that only PyTorch has, or would
            fit the module in both layouts and mean something else, or stand beside PyTorch's
            tensors.
    """
    if format not in (None, "graphfw", "torch"):
        raise ArgumentError(
            f"{what}: there is no format {format!r}", fix='write format="torch" or "graphfw"'
        )
    own = state.known() if isinstance(state, StateDict) else set()
    others = {name: value for name, value in state.items() if name not in own}
    is_theirs = _is_of_torch(what, module, others) if format is None else format == "torch"
    if not is_theirs:
        return state, False
    converted = untied(what, module, from_torch(module, others))
    return {name: state[name] for name in own} | converted, True


def _is_of_torch(what: str, module: ModuleInterface, state: Mapping[str, Any]) -> bool:
    """Return whether entries have PyTorch's names and layouts, of which no format is given."""
    tensors = [name for name, value in state.items() if is_torch_tensor(value)]
    if tensors:
        unclear = [n for n, v in state.items() if not is_torch_tensor(v) and np.ndim(v) > 1]
        if unclear:
            raise CheckpointError(
                f'{what}: "{tensors[0]}" is a PyTorch tensor and "{unclear[0]}" is not: nothing '
                "says whether the latter is transposed, as in PyTorch",
                fix="load them in two calls with strict=False; or " + _FORMAT_FIX,
            )
        return True
    theirs = [name for name in state if str(name).rpartition(".")[2] in _TORCH_NAMES]
    if theirs:
        raise CheckpointError(
            f'{what}: "{theirs[0]}" is a name that PyTorch gives, and matrices may be transposed',
            fix=_FORMAT_FIX,
        )
    square = _fitting_both_ways(module, state)
    if square:
        raise CheckpointError(
            f'{what}: "{square}" is square, and nothing says whether it is transposed, as in '
            "PyTorch",
            fix=_FORMAT_FIX,
        )
    return False


_FORMAT_FIX = 'pass format="torch", or format="graphfw" if the layouts are graphfw\'s'


def _fitting_both_ways(module: ModuleInterface, state: Mapping[str, Any]) -> str:
    """Return the name of an entry that differs in PyTorch's layout, where all entries fit in both.

    Returns an empty string if there is none: the shapes say which layout it is.
    """
    variables = dict(module.named_variables())
    plain = {name: entry_array(name, array) for name, array in state.items() if name in variables}
    converted = from_torch(module, plain)
    read = [*plain.items(), *converted.items()]
    if any(array.shape != variables[name].shape for name, array in read if name in variables):
        return ""
    changed = (n for n in plain if n in converted and not np.array_equal(plain[n], converted[n]))
    return next(changed, "")


_TORCH_NAMES = (
    *("in_proj_weight", "in_proj_bias"),
    *("weight_g", "weight_v", "weight_orig", "original", "original0", "original1"),
)


def from_torch(module: ModuleInterface, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a PyTorch state dict with the names and layouts of a module and its children."""
    own = module.from_torch({name: _torch_array(name, value) for name, value in state.items()})
    for name, child in module.named_children():
        prefix = f"{name}."
        inner = {n.removeprefix(prefix): a for n, a in own.items() if n.startswith(prefix)}
        own = {n: a for n, a in own.items() if not n.startswith(prefix)}
        own |= {prefix + n: a for n, a in from_torch(child, inner).items()}
    return own


def to_torch(
    module: ModuleInterface, state: Mapping[str, Any], depth: Callable[[str], int], path: str = ""
) -> dict[str, Any]:
    """Return a state of a module with the names and layouts of PyTorch: undo `from_torch`.

    Args:
        module: The module.
        state: Its arrays by its own names.
        depth: Returns how many components of a name are named by the user; entries that are named
            inside of a layer keep their own names there, as in models that split PyTorch's.
        path: Where the module is in the whole, with a dot behind it.
    """
    own = dict(state)
    for name, child in module.named_children():
        prefix = f"{name}."
        inner = {n.removeprefix(prefix): a for n, a in own.items() if n.startswith(prefix)}
        own = {n: a for n, a in own.items() if not n.startswith(prefix)}
        made = to_torch(child, inner, depth, path + prefix)
        own |= {prefix + n: a for n, a in made.items()}
    moved = dict.fromkeys(n for rule in module._torch_rules() for n in rule.moved(own))
    kept = {n: own.pop(n) for n in moved if depth(path + n) > path.count(".")}
    return module.to_torch(own) | kept


def every_name(module: ModuleInterface) -> dict[str, Variable]:
    """Return the variables by all their names: a variable of two modules has two, as in PyTorch."""
    found = dict(module._variables)
    for name, child in module.named_children():
        found |= {f"{name}.{inner}": variable for inner, variable in every_name(child).items()}
    return found


def untied(what: str, module: ModuleInterface, state: dict[str, Any]) -> dict[str, Any]:
    """Return a converted state with one entry for a variable of several names, as graphfw has it.

    Raises:
        CheckpointError: Such a variable has different entries.
    """
    first = {id(variable): name for name, variable in module.named_variables()}
    for name, variable in every_name(module).items():
        own = first[id(variable)]
        if name == own or name not in state:
            continue
        array = state.pop(name)
        if not _is_same(state.setdefault(own, array), array):
            raise CheckpointError(
                f'{what}: "{own}" and "{name}" are one variable, and their entries differ',
                fix="leave one of them out of the state, or build a model in which they are two",
            )
    return state


def _is_same(a: Array, b: Array) -> bool:
    """Return whether arrays have the same bits."""
    if a is b or (a.dtype, a.shape) != (b.dtype, b.shape):
        return a is b
    return (a.ctypes.data, a.strides) == (b.ctypes.data, b.strides) or a.tobytes() == b.tobytes()


def _torch_array(name: str, value: Any) -> Array:
    """Return a PyTorch tensor, or an array, as an array on the host."""
    if not is_torch_tensor(value):
        return entry_array(name, value)
    torch = sys.modules["torch"]
    tensor = value.detach().cpu()
    if tensor.dtype == torch.bfloat16:  # which NumPy has not
        bits: Array = tensor.contiguous().view(torch.int16).numpy()
        return bits.view(bfloat16.dtype)
    return np.asarray(tensor.numpy())


def differing(
    what: str,
    wanted: Iterable[str],
    state: Mapping[str, Any],
    strict: bool,
    ignore_extra: bool,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names that a state lacks, and those that it has besides, each in order.

    Raises:
        CheckpointError: There are some that `strict` and `ignore_extra` don't permit.
    """
    names = set(wanted)
    missing = tuple(sorted(names - state.keys()))
    extra = tuple(sorted(state.keys() - names))
    if strict and (missing or (extra and not ignore_extra)):
        hints = [(name, did_you_mean(name, missing)) for name in extra[:_SHOWN]]
        near = [f'"{name}": {hint}' for name, hint in hints if hint]
        flag = "strict=False" if missing else "ignore_extra=True"
        raise CheckpointError(
            f"{what}: missing {_listed(missing)}, extra {_listed(extra)}",
            fix=near[0] if near else f"pass {flag} to leave these out",
        )
    return missing, extra


def check_fit(
    what: str, variables: Mapping[str, Variable], state: Mapping[str, Any], of_torch: bool
) -> None:
    """See that those arrays of a state that are a module's fit its variables.

    Args:
        what: The function that was called.
        variables: The module's.
        state: The arrays.
        of_torch: Whether they had PyTorch's layout.

    Raises:
        CheckpointError: Shapes or dtypes differ; says how to mend the first.
    """
    arrays = {name: entry_array(name, state[name]) for name in variables if name in state}
    wrong = [
        f'"{name}" is {found}, not {variables[name].type}'
        for name, array in arrays.items()
        if (found := TensorType(as_dtype(array.dtype), array.shape)) != variables[name].type
    ]
    if wrong:
        shown = "; ".join(wrong[:_SHOWN]) + ("; …" if len(wrong) > _SHOWN else "")
        fix = (
            _fitting_fix(variables, arrays, of_torch)
            or "build the model with the shapes and dtypes of the state, or load another one"
        )
        raise CheckpointError(f"{what}: {len(wrong)} mismatched: {shown}", fix=fix)


def _fitting_fix(
    variables: Mapping[str, Variable], arrays: Mapping[str, Array], of_torch: bool
) -> str:
    """Return the fix for the first array that does not fit its variable, or nothing."""
    for name, array in arrays.items():
        variable, kind = variables[name], variables[name].dtype
        is_kind = as_dtype(array.dtype) is kind
        if array.shape == variable.shape and not is_kind:
            return f'convert "{name}": pass array.astype("{kind.name}")'
        if array.shape != variable.shape:
            is_transposed = is_kind and array.shape[::-1] == variable.shape
            hint = f'"{name}" is transposed, as in PyTorch: pass format="torch"'
            if of_torch:
                hint = (
                    f'"{name}" is not transposed, as it would be in PyTorch: pass format="graphfw"'
                )
            return hint if is_transposed else ""
    return ""


def _listed(names: Sequence[str]) -> str:
    if not names:
        return "none"
    return ", ".join(f'"{n}"' for n in names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
