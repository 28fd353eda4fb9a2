"""`Module`, the base of all layers: it knows its variables and submodules, and names them."""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Self, TypeGuard, TypeVar, overload

from graphfw.errors import ArgumentError, GraphError, did_you_mean
from graphfw.hints.calls import explained
from graphfw.ir import ambient
from graphfw.ir.graph import Graph, current_graph
from graphfw.ir.model_graph import ModelGraph, joined, variable_graph
from graphfw.ir.training_modes import TrainingModes
from graphfw.ir.variable import Variable
from graphfw.nn import calls, text
from graphfw.nn.checks import check_mode, refuse_freezing
from graphfw.nn.deferred import DeferredVariables, refuse_attribute
from graphfw.nn.hooks import ForwardHook, Hook, OutputChange, set_hooks
from graphfw.nn.interface import HasForward, P, ResultT_co
from graphfw.nn.module_contents import ModuleContents
from graphfw.nn.module_variables import ModuleVariables
from graphfw.nn.names import AttributeName, ModuleNames, names_of, snake_case
from graphfw.nn.registration import (
    ModuleBase,
    ModuleType,
    checked_module,
    refuse_hidden,
    refuse_loss,
)
from graphfw.nn.summary import ModuleSummary, summarised
from graphfw.ops.composed import callback

M = TypeVar("M", bound="Module")

_OWN = ("_parent", "_attribute", "_is_named", "_names", "_functions")
"""The attributes that say where a module stands, and what runs it outside of graphs."""

_ATOMS = frozenset({bool, int, float, str, type(None)})  # types of values that hold no submodules


@explained
class Module(ModuleBase, ModuleVariables, ModuleContents, metaclass=ModuleType):
    """A layer, or a model made of layers: variables, and a function `forward` that uses them.

    Variables and modules that are assigned to attributes belong to the module. They are named by
    where they stand: `mlp.fc1.weight`. The first name is that of the class, numbered where a graph
    has several; what is assigned to two modules is named by the first. Calling a module calls its
    `forward` with `path` as the name scope; it may be called any number of times, with the same
    variables.

    Make and call modules inside `with graph:`, where calls add nodes. Outside of any graph a module
    is called with arrays, returns arrays, and has its weights in itself: see `docs/outside.md`.

    Args:
        name: What to call the module instead of by its class, until it is part of another.

    >>> import graphfw as gf
    >>> class MLP(gf.nn.Module):
    ...     def __init__(self):
    ...         self.fc1 = gf.nn.Linear(64, 128)
    ...         self.fc2 = gf.nn.Linear(128, 10)
    ...
    ...     def forward(self, x):
    ...         return self.fc2(gf.relu(self.fc1(x)))
    >>> with gf.Graph():
    ...     model = MLP()
    ...     model(gf.placeholder(("batch", 64))).shape
    (batch, 10)
    >>> model
    MLP(
      (fc1): Linear(64 -> 128, bias=True)  # 8,320 parameters
      (fc2): Linear(128 -> 10, bias=True)  # 1,290 parameters
    )  # 9,610 parameters
    >>> [v.name for v in model.parameters()]
    ['mlp.fc1.weight', 'mlp.fc1.bias', 'mlp.fc2.weight', 'mlp.fc2.bias']
    """

    _answers_as = "Module"
    _training: bool
    _children: dict[str, Module]
    _variables: dict[str, Variable]
    _parent: Module | None
    _attribute: str
    _is_named: bool
    _names: ModuleNames
    _deferred: DeferredVariables | None = None
    """The variables that the first call makes."""
    _forward_hooks: tuple[OutputChange, ...] = ()

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Make what registration needs: for a forgotten super().__init__() to do no harm."""
        self = super().__new__(cls)
        self.__dict__.update(
            _training=True,
            _children={},
            _variables={},
            _parent=None,
            _attribute="",
            _is_named=False,
            _names=names_of(variable_graph()),
        )
        self._become_root()
        return self

    def __init__(self, *, name: str | None = None) -> None:
        if name is None or self._parent is not None:
            return
        if not name or "." in name or any(c.isspace() for c in name):
            raise ArgumentError(
                f"{type(self).__name__}: name={name!r} is empty or has dots or spaces",
                fix='use letters, digits and _, as in name="encoder"',
            )
        self._names.free(self._attribute)
        scope = self._attribute.rpartition(".")[0]
        full = ambient.join_scope(scope, name)
        if self._names.is_taken(full):
            message = f'a module named "{full}" exists already'
            raise GraphError(message, fix="give each its own name")
        self.__dict__.update(_attribute=self._names.take(self, full), _is_named=True)

    # Names.

    @property
    def path(self) -> str:
        """The module's path, as `model.encoder.fc1`: the prefix of its variables' names."""
        if self._parent is None:
            return self._attribute
        return f"{self._parent.path}.{self._attribute}"

    def _become_root(self) -> None:
        full = ambient.join_scope(ambient.current_scope.get(), snake_case(type(self).__name__))
        self.__dict__.update(_parent=None, _attribute=self._names.take(self, full))

    def _attach(self, parent: Module, attribute: str) -> None:
        self._names.free(self._attribute)
        self.__dict__.update(_parent=parent, _attribute=attribute)

    # Copies.

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # Where a graph is open, the copy has new variables in it. Elsewhere the graph is copied.
        is_apart = isinstance(self._names.graph, ModelGraph)  # each variable copies itself
        if not is_apart and (id(self._names.graph) in memo or current_graph().is_ambient):
            copied = memo[id(self)] = object.__new__(type(self))
            copied.__setstate__(copy.deepcopy(self.__getstate__(), memo))
            return copied
        copied = memo[id(self)] = type(self).__new__(type(self))
        for name, value in vars(self).items():
            if name not in _OWN:
                copied.__dict__[name] = copy.deepcopy(value, memo)
        copied._take_contents(self._attached())
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        is_apart = isinstance(self._names.graph, ModelGraph)
        make = _without_state if is_apart else object.__new__
        return make, (type(self),), self.__getstate__()

    def __getstate__(self) -> dict[str, Any]:
        if isinstance(self._names.graph, ModelGraph):
            state = {name: value for name, value in vars(self).items() if name not in _OWN}
            return {**state, "_attached": self._attached()}
        named = [n for n, v in self._variables.items() if v.name == f"{self.path}.{n}"]
        return {**vars(self), "_names": self._names.graph, "_named": named}

    def __setstate__(self, state: dict[str, Any]) -> None:
        attached = state.pop("_attached", None)
        if attached is not None:
            self.__dict__.update(state)
            self._take_contents(attached)
            return
        named = state.pop("_named")
        self.__dict__.update(state, _names=names_of(state["_names"]))
        for name in named:
            self._own(name, self._variables[name])
        if self._parent is None:
            self._names.restore(self._attribute, self)

    def _attached(self) -> list[str]:
        """Return the names of the submodules that are named after this module."""
        children = self._children.items()
        return [name for name, m in children if m._parent is self and m._attribute == name]

    def _take_contents(self, attached: Collection[str]) -> None:
        """Make a copy's submodules and variables its own.

        Args:
            attached: The submodules that are named after the copied module.
        """
        for name, child in self._children.items():
            self._join(child._names.graph)
            if name in attached:
                child._attach(self, name)
        for name, variable in self._variables.items():
            self._join(variable.graph)
            self._own(name, variable)

    # Variables that wait for the first call: see `nn/deferred.py`.

    def _find_size(self, x: Any) -> None:
        """Set the size that was not given, from the first argument of the first call."""
        raise NotImplementedError

    def _make(self, *options: Any) -> None:
        """Make the variables."""
        raise NotImplementedError

    if not TYPE_CHECKING:  # which reports unknown attributes only where this is hidden from it

        def __getattr__(self, name):
            refuse_attribute(self, name)
            return super().__getattr__(name)

    # Registration.

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Variable) or is_module(value):
            self._register(name, value)
        else:
            refuse_freezing(self, name)
            if type(value) not in _ATOMS:
                refuse_hidden(self, name, value)
            if name in self._children or name in self._variables:
                refuse_loss(self, name, value)
                self._release(name)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        self._release(name)
        super().__delattr__(name)

    def add_module(self, name: str, module: Module) -> None:
        """Attach a module under a name that is computed; else assign it to an attribute.

        Raises:
            ArgumentError: It is no Module, or the name can't be used.
        """
        checked_module(type(self).__name__, name, module)
        if not name.isalnum() and (not name or "." in name or any(c.isspace() for c in name)):
            raise ArgumentError(
                f"{type(self).__name__}: {name!r} is no name for a submodule: "
                "it is empty or has dots or spaces",
                fix='use letters, digits and _, as in "encoder"',
            )
        setattr(self, name, module)

    def _register(self, name: str, value: Module | Variable) -> None:
        kind = type(self)
        if hasattr(kind, name) and (hasattr(Module, name) or callable(getattr(kind, name))):
            raise ArgumentError(
                f"{type(self).__name__}.{name} is a method or the like, no name for a submodule",
                fix=f"choose another name, such as {name}_",
            )
        child, variable = self._children.get(name), self._variables.get(name)
        if value is child or value is variable:
            return
        if not isinstance(value, Variable):
            self._refuse_cycle(name, value)
            self._join(value._names.graph)
            self._variables.pop(name, None)
            self._children[name] = value  # where the one before stood: the order matters to some
            if value._parent is None:
                value._attach(self, name)
        else:
            self._join(value.graph)
            self._children.pop(name, None)
            self._variables[name] = value
            self._own(name, value)
        self._rename_former(name, child, variable)

    def _own(self, name: str, variable: Variable) -> None:
        owned = names_of(variable.graph).owned
        if id(variable) not in owned:
            owned.add(id(variable))
            variable.rename(AttributeName(self, name))

    def _join(self, graph: Graph) -> None:
        """Let what is made outside of graphs, and is part of one model, have one graph."""
        own = self._names.graph
        if isinstance(own, ModelGraph) and isinstance(graph, ModelGraph):
            joined(own, graph)

    def _refuse_cycle(self, name: str, module: Module) -> None:
        if any(submodule is self for submodule in module.modules()):
            raise ArgumentError(
                f"{type(self).__name__}.{name}: a module can't contain itself",
                fix="to refer back to the owner, pass what is needed to forward",
            )

    def _release(self, name: str) -> None:
        """Forget what an attribute held."""
        self._rename_former(name, self._children.pop(name, None), self._variables.pop(name, None))

    def _rename_former(self, name: str, child: Module | None, variable: Variable | None) -> None:
        """Give what an attribute held another name, for the attribute's is free again."""
        if child is not None and child._parent is self and child._attribute == name:
            child._become_root()
        if variable is not None and variable.name == f"{self.path}.{name}":
            former = variable.graph.unique(f"{variable.name}.former")
            variable.rename(lambda: former)

    # Calling.

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Add the module's nodes to the graph; subclasses say how.

        Raises:
            GraphError: The class has no `forward`.
        """
        own = [n for n in dir(type(self)) if not hasattr(Module, n)]
        fix = did_you_mean("forward", own) or "define a method forward(self, x)"
        fix = "name its method forward, in place of call" if "call" in own else fix
        raise GraphError(f"{type(self).__name__} does not say what it computes", fix=fix)

    __signature__ = property(calls.signature_of)

    @overload
    def __call__(
        self: HasForward[P, ResultT_co], *args: P.args, **kwargs: P.kwargs
    ) -> ResultT_co: ...
    @overload
    def __call__(
        self: HasForward[..., ResultT_co], *args: Any, training: bool | None, **kwargs: Any
    ) -> ResultT_co: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call `forward`, with the module's path as the name scope.

        Inside `gf.name_scope("eval")` the scope is `eval.<path>`. Where `forward` gives tensors
        names, a second call needs that.

        The argument `training=False` makes this call one for evaluation, as `gf.training(False)`
        does a block. Where `forward` has a parameter `training` it gets the mode of the call, also
        of one that does not say it.

        Raises:
            ArgumentError: `forward` takes other arguments, or training is True after `eval`.
        """
        return calls.call(self, args, kwargs)

    def register_forward_hook(self, fn: Hook) -> ForwardHook:
        """Call a function after `forward` in calls from now on, to see outputs or to change them.

        Hooks are called in the order in which they were registered, in the module's name scope; so
        those of submodules come before. Copies of the module have the same functions.

        Args:
            fn: Called as `fn(module, args, output)`, with the call's arguments, but for those that
                are passed by name alone. It returns another output, or None to leave that as it is.

        Returns:
            A handle: `handle.remove()` ends it, and so does the end of `with handle:`.

        Raises:
            ArgumentError: `fn` is no function.

        >>> import graphfw as gf
        >>> with gf.Graph():
        ...     layer = gf.nn.Linear(4, 3)
        ...     with layer.register_forward_hook(lambda module, args, output: gf.relu(output)):
        ...         y = layer(gf.placeholder((2, 4)))
        >>> y.node.op.name
        'relu'
        """
        callback("register_forward_hook", "fn", fn, "fn(module, args, output)")
        hook = ForwardHook(fn)
        kept = [one for one in self._forward_hooks if not one.is_removed]
        set_hooks(self, (*kept, hook))
        return hook

    def train(self, mode: bool = True) -> Self:
        """Set `training` here and in all submodules, for calls from now on; return the module."""
        check_mode("train: mode", mode)
        for module in self.modules():
            module._training = mode
        TrainingModes.changes += 1
        return self

    def eval(self) -> Self:
        """Say that calls from now on, until `train()`, are not for training: `train(False)`."""
        return self.train(False)

    @property
    def training(self) -> bool:
        """Whether a call now is for training: neither `gf.training` nor `eval` says no.

        A layer's `forward` asks, where the answer makes a difference. Assigning a bool is `train`
        or `eval` of this module without its submodules.
        """
        return ambient.asks_for_training(self)

    @training.setter
    def training(self, mode: bool) -> None:
        check_mode("training", mode)
        self._training = mode
        TrainingModes.changes += 1

    # What it has.

    def named_children(self) -> list[tuple[str, Module]]:
        """Return the submodules with the names of their attributes."""
        return list(self._children.items())

    def children(self) -> list[Module]:
        """Return the submodules."""
        return list(self._children.values())

    def named_modules(self) -> list[tuple[str, Module]]:
        """Return the module (as ""), its submodules, theirs, …, each once, with their paths."""
        found: dict[int, tuple[str, Module]] = {}
        todo: list[tuple[str, Module]] = [("", self)]
        while todo:
            name, module = todo.pop()
            if id(module) in found:
                continue
            found[id(module)] = (name, module)
            submodules = [(ambient.join_scope(name, n), m) for n, m in module._children.items()]
            todo.extend(reversed(submodules))
        return list(found.values())

    def modules(self) -> list[Module]:
        """Return the module itself, its submodules, their submodules, …, each once."""
        return [module for _, module in self.named_modules()]

    # Text.

    def summary(self, *args: Any, **kwargs: Any) -> ModuleSummary:
        """Return a table of the layers: what each returns in a call, and its parameters.

        The call is described in a graph of its own: it leaves the module's graph as it is, and
        nothing is computed.

        Args:
            args: The arguments of the call. A shape such as `("batch", 64)`, with a dtype as
                `((32, 8), "int64")`, a `gf.TensorType` or an array stands for a tensor of the type.
            kwargs: The same by name.

        Raises:
            ShapeError, ArgumentError, …: As the call.

        >>> import graphfw as gf
        >>> with gf.Graph():
        ...     model = gf.nn.Sequential(gf.nn.Linear(64, 128), gf.nn.ReLU(), gf.nn.Linear(128, 10))
        >>> model.summary(("batch", 64))
        layer         class       output               parameters  trained
        sequential    Sequential  float32[batch, 10]            0        0
        sequential.0  Linear      float32[batch, 128]       8,320    8,320
        sequential.1  ReLU        float32[batch, 128]           0        0
        sequential.2  Linear      float32[batch, 10]        1,290    1,290
        total                                               9,610    9,610
        """
        return summarised(self, self._names.graph, args, kwargs)

    def extra_repr(self) -> str:
        """Say what stands in the text's parentheses; subclasses give their sizes and options."""
        return ", ".join(f"{name}: {v.type}" for name, v in self._variables.items())

    def __repr__(self) -> str:
        submodules = [(name, repr(child)) for name, child in self._children.items()]
        sizes = [(v.is_trained, v.type.size) for _, v in self._held_variables()]
        inside = self.extra_repr() if self._deferred is None else f"{self._deferred.argument}=None"
        return text.module_text(type(self).__name__, inside, submodules, sizes)


def _without_state(kind: type[M]) -> M:
    """Return a module whose attributes are still to be set."""
    return kind.__new__(kind)


def is_module(value: object) -> TypeGuard[Module]:
    """Return whether a value is a module; `isinstance` with `ABCMeta` takes ten times as long."""
    return isinstance(value, ModuleBase)
