"""The names of a graph's modules, and of what their attributes hold."""

from __future__ import annotations

import re
import warnings
import weakref
from functools import lru_cache

from graphfw.ir.graph import Graph
from graphfw.loc import capture, running_cell
from graphfw.nn.interface import ModuleInterface

_LOOKED_AT = 8
"""The most numbers that are tried one by one: a model that is gone frees its own. The search goes
on where the last one ended, so that thousands of layers take no longer each than a few."""


class ModuleNames:
    """The names of one graph's root modules, and which of its variables belong to a module."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        # No callbacks, as weak dictionaries have them: a Ctrl-C that comes inside of one is lost.
        self._roots: dict[str, weakref.ref[ModuleInterface]] = {}
        self._begin: dict[str, int] = {}
        """The number after which the search for a free one begins, beyond the first."""
        # By id, because a tensor compares elementwise; the graph keeps its variables alive.
        self.owned: set[int] = set()
        self.changed = 0
        """The number of times that a name was taken or freed."""
        self._made: dict[tuple[str, type], tuple[int, weakref.ref[ModuleInterface]]] = {}
        """In notebooks, the last module of a class that a line made, and the cell that ran then."""

    def take(self, module: ModuleInterface, wanted: str) -> str:
        """Give a root module a name: the wanted one, numbered where it is taken."""
        name, count, roots = wanted, 0, self._roots
        while (known := roots.get(name)) is not None and known() is not None:
            count = count + 1 if count < _LOOKED_AT else max(count + 1, self._begin.get(wanted, 0))
            name = f"{wanted}_{count}"
        if count > _LOOKED_AT:
            self._begin[wanted] = count + 1
        roots[name] = weakref.ref(module)
        self.changed += 1
        return name

    def is_taken(self, name: str) -> bool:
        """Return whether a root module that is still there has a name."""
        return self._root(name) is not None

    def _root(self, name: str) -> ModuleInterface | None:
        known = self._roots.get(name)
        return None if known is None else known()

    def note_made(self, module: ModuleInterface) -> None:
        """Warn in a notebook where a line that is run again makes one more model in the graph."""
        cell = running_cell()
        if cell is None or self.graph.is_ambient:
            return
        here = capture()
        key = here.source(), type(module)
        number, known = self._made.get(key, (cell, None))
        self._made[key] = cell, weakref.ref(module)
        former = None if known is None else known()
        if number == cell or former is None or former is not self._root(former.path):
            return
        if former._held_variables():
            warnings.warn_explicit(
                f'this line has made "{former.path}" before, which stays in the graph with its '
                f'variables; "{module.path}" is another one. A cell that makes a model and is run '
                "again should make the graph, too: with gf.Graph() as g",
                UserWarning,
                here.file,
                here.line,
            )

    def restore(self, name: str, module: ModuleInterface) -> None:
        """Give a root module of a graph that was copied or unpickled the name that it has."""
        self._roots[name] = weakref.ref(module)

    def move_to(self, names: ModuleNames) -> None:
        """Give all modules names of another graph, which this one becomes a part of."""
        for name, known in self._roots.items():
            module = known()
            if module is None or module._names is names:
                continue
            vars(module)["_attribute"] = names.take(module, name)
            for one in reversed(module.modules()):  # the root last, which says that it is done
                vars(one)["_names"] = names
        names.owned |= self.owned

    def free(self, name: str) -> None:
        """Take a name back, if it is one of a root module."""
        self._roots.pop(name, None)
        self.changed += 1
        wanted, _, number = name.rpartition("_")
        if wanted in self._begin and number.isdecimal():
            self._begin[wanted] = min(self._begin[wanted], int(number))


def names_of(graph: Graph) -> ModuleNames:
    """Return the names of a graph's modules."""
    names: ModuleNames = graph.layers or ModuleNames(graph)
    graph.layers = names
    return names


@lru_cache
def snake_case(name: str) -> str:
    """Return `multi_head_attention` for `MultiHeadAttention`, `mlp` for `MLP`, `relu` for ReLU."""
    words = r"(?<=[a-z0-9])(?=[A-Z])(?!LU)|(?<=[A-Z])(?=[A-Z][a-z])"
    return re.sub(words, "_", name.lstrip("_")).lower()


class AttributeName:
    """The name of what an attribute of a module holds, wherever that stands."""

    __slots__ = ("_attribute", "_module")

    def __init__(self, module: ModuleInterface, attribute: str) -> None:
        """Note whose attribute it is."""
        self._module = module
        self._attribute = attribute

    def __call__(self) -> str:
        """Return the name."""
        return f"{self._module.path}.{self._attribute}"
