"""The layers of the package: who may import whom, read from the source and not from a running one.

`ALLOWED` is the rule. A new folder or module directly under graphfw/ needs a line in it.
"""

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "graphfw").rglob("*.py"))
OTHERS = [
    path for top in ("tests", "benchmarks", "examples") for path in (ROOT / top).rglob("*.py")
]
MAX_LINES = 500
TYPE_CHECKING = ("TYPE_CHECKING", "typing.TYPE_CHECKING")
IN_FUNCTION = "def f():\n    import {}\n"
IF_TYPING = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {}\n"

CORE = {"utils", "errors", "hints", "loc", "ir", "ops", "transforms"}

# layer -> the layers it may import besides itself, lowest layer first.
ALLOWED = {
    "loc": set(),
    "errors": {"loc"},
    "utils": {"errors"},
    "hints": {"errors", "loc"},
    "ir": {"utils", "errors", "hints", "loc"},
    "ops": {"utils", "errors", "hints", "loc", "ir"},
    "linalg": {"hints", "ops"},
    "fft": {"hints", "ops"},
    "special": {"hints", "ops"},
    "tree": {"errors", "hints", "ops", "utils"},
    "extend": {"ir", "ops", "passes", "runtime"},
    "transforms": {"utils", "errors", "hints", "loc", "ir", "ops"},
    "passes": {"utils", "errors", "loc", "ir", "ops"},
    "runtime": {
        "utils",
        "errors",
        "hints",
        "loc",
        "ir",
        "ops",
        "passes",
        "io",
    },  # io: see test_runtime_and_io
    "nn": CORE | {"io"},  # layers read and write files of weights
    "models": CORE | {"nn", "io"},
    "optim": CORE,
    "distributions": CORE,
    "data": CORE | {"runtime"},
    "distributed": CORE | {"passes", "runtime"},
    "train": CORE | {"runtime", "data"},
    "testing": CORE | {"runtime"},
    "io": CORE,
    "onnx": CORE | {"__init__", "runtime"},  # a library on top of the public names
    "cli": {"errors"},  # each command is a module of its own, imported when it is called
    "_modules": {"utils"},  # imports all that `__init__` does, by name
    "__init__": CORE
    | {
        "_modules",
        "extend",
        "fft",
        "linalg",
        "passes",
        "runtime",
        "nn",
        "optim",
        "data",
        "distributed",
        "train",
        "io",
        "special",
        "testing",
        "tree",
    },
    "__main__": {"cli"},
}

# An import for the type checker alone never runs, so it only has to point downward in this order.
ORDER = (
    {"loc"},
    {"errors"},
    {"utils"},
    {"hints"},
    {"ir"},
    {"ops"},
    {"transforms", "linalg", "fft", "special", "tree"},
    {"passes"},
    {"runtime"},
    {"optim", "distributions", "data", "distributed", "io", "extend"},
    {"nn"},
    {"models", "testing", "train"},
    {"cli"},
    {"__init__", "__main__", "_modules"},
    {"onnx"},
)
# What imports a layer over it when that is first used, and tells the type checker so.
LAZY = {("__init__", "onnx")}

RANK = {layer: rank for rank, layers in enumerate(ORDER) for layer in layers}

# Files whose classes hold each other by nature, and why, by what they are. No other files know each
# other's types in circles, and no circle runs.
RECURSIVE = {
    "sizes": (
        "a size is a polynomial over atoms, atoms have sizes as operands, and both have a text",
        "graphfw.ir",
        {"dim", "dim_writer", "polynomial"},
    ),
    "graphs": (
        "a graph has nodes and variables, which have their graph; a tensor has its node, which has "
        "tensors; a variable is a tensor. Files beside theirs have what their methods are made of",
        "graphfw.ir",
        {
            "arrays",
            "at",
            "concrete",
            "evaluation",
            "functions",
            "graph",
            "in_place",
            "model_graph",
            "numpy_calls",
            "operators",
            "pickled",
            "printer",
            "tensor",
            "unset",
            "variable",
            "views",
            "walk",
        },
    ),
    "layouts on a GPU": (
        "a layout has parts, of which some are loops, whose bodies have layouts; what runs the "
        "parts is given to a loop, to run the parts of its body",
        "graphfw.runtime.cupy_executor",
        {"bound_plan", "layouts", "regions.common", "runs"},
    ),
}

CUPY_FOLDERS = (
    "graphfw/runtime/cupy_executor/",
    "graphfw/runtime/executors.py",
    "graphfw/runtime/executors/",
)


@dataclass(frozen=True)
class Import:
    """One imported module, with where the statement stands."""

    module: str
    line: int
    in_function: bool
    type_checking: bool
    names: tuple[str, ...] = ()  # of `from module import names`


@functools.cache
def imports(source: str, package: str) -> list[Import]:
    """Every import in `source`, a module of `package`; relative ones made absolute."""
    found = []
    # A stack instead of recursion; each entry carries what encloses the node.
    stack: list[tuple[ast.AST, bool, bool]] = [(ast.parse(source), False, False)]
    while stack:
        node, in_function, type_checking = stack.pop()
        if isinstance(node, ast.Import):
            found += [
                Import(alias.name, node.lineno, in_function, type_checking) for alias in node.names
            ]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                base = ".".join([*parents[: len(parents) - node.level + 1], *filter(None, [base])])
            # `from graphfw import ir` imports the layer ir, not the public names.
            names = [a.name for a in node.names if base == "graphfw" and a.name in ALLOWED]
            rest = len(names) < len(node.names)
            modules = [*(f"graphfw.{name}" for name in names), *([base] if rest else [])]
            of = tuple(alias.name for alias in node.names)
            found += [Import(name, node.lineno, in_function, type_checking, of) for name in modules]
        if isinstance(node, ast.If) and ast.unparse(node.test) in TYPE_CHECKING:
            stack += [(child, in_function, True) for child in node.body]
            stack += [(child, in_function, type_checking) for child in node.orelse]
            continue
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        stack += [
            (child, in_function or inside, type_checking)
            for child in ast.iter_child_nodes(node)
            if not isinstance(child, ast.expr)  # an import is a statement, and lies in others
        ]
    return found


def package_of(path: PurePosixPath) -> str:
    return ".".join(path.parent.parts)


def layer_of(module: str) -> str:
    """'graphfw.ir.dim' -> 'ir'; 'graphfw' -> '__init__'."""
    names = module.split(".")
    return names[1] if len(names) > 1 else "__init__"


def violations(path: PurePosixPath, source: str) -> Iterator[str]:
    """One line for each import in the file `path` (relative to the root) that breaks a rule."""
    layer = layer_of(".".join(path.with_suffix("").parts))
    if layer not in ALLOWED:
        yield f"{path}:1: layer {layer!r} is not in the table of tests/test_layering.py"
        return
    for found in imports(source, package_of(path)):
        where = f"{path}:{found.line}: imports {found.module}"
        top = found.module.split(".")[0]
        if top in ("cupy", "cupyx"):
            if not str(path).startswith(CUPY_FOLDERS):
                yield f"{where}: cupy belongs in graphfw/runtime/cupy_executor/ alone"
            elif not found.in_function:
                yield f"{where}: cupy is never imported at module level"
        if top != "graphfw":
            continue
        target = layer_of(found.module)
        if found.in_function:
            yield f"{where}: no import of graphfw inside a function"
        elif target not in ALLOWED:
            yield f"{where}: layer {target!r} is not in the table of tests/test_layering.py"
        elif target == layer:
            continue
        elif found.type_checking:
            if (layer, target) in LAZY:
                continue
            if RANK[target] >= RANK[layer]:
                yield f"{where}: TYPE_CHECKING imports go downward; {layer} is not over {target}"
        elif target not in ALLOWED[layer]:
            allowed = ", ".join(sorted(ALLOWED[layer])) or "no other layer"
            yield f"{where}: {layer} may import {allowed}; not {target}"


def relative(path: Path) -> PurePosixPath:
    return PurePosixPath(path.relative_to(ROOT).as_posix())


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_imports_go_downward():
    assert SOURCES
    found = [line for path in SOURCES for line in violations(relative(path), read(path))]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.smoke
def test_runtime_and_io():
    """The runtime may lean on io only while io is file-format code that knows errors alone."""
    targets = {"runtime": set(), "io": set()}
    for path in map(relative, SOURCES):
        layer = layer_of(".".join(path.with_suffix("").parts))
        if layer in targets:
            targets[layer] |= {
                layer_of(found.module)
                for found in imports(read(ROOT / path), package_of(path))
                if found.module.split(".")[0] == "graphfw" and not found.type_checking
            }
    knows = targets["io"] - {"errors", "io"}
    assert "io" not in targets["runtime"] or not knows, (
        f"graphfw/runtime imports io, so io may import errors alone; it imports {sorted(knows)}"
    )


def module_of(path: PurePosixPath) -> str:
    names = path.with_suffix("").parts
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


def imported(sources: Mapping[PurePosixPath, str], *, types: bool) -> dict[str, set[str]]:
    """Return the modules that each module imports before it is ready, or for its types as well."""
    modules = {module_of(path) for path in sources}
    found: dict[str, set[str]] = {}
    for path, source in sources.items():
        targets = found.setdefault(module_of(path), set())
        for line in imports(source, package_of(path)):
            if line.in_function or (line.type_checking and not types):
                continue
            if line.type_checking and (layer_of(module_of(path)), layer_of(line.module)) in LAZY:
                continue  # it names a module, and needs none of its types
            # `from package import module` imports the module, another name the package's file.
            full = [f"{line.module}.{name}" for name in line.names] or [line.module]
            targets |= {name if name in modules else line.module for name in full}
        targets -= {module_of(path)}
    return found


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return the sets of modules that import each other, directly or through others."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            new = set(graph.get(waiting.pop(), ())) - seen
            seen |= new
            waiting += new
        return seen

    reach = {module: reached(module) for module in graph}
    found = {
        tuple(sorted(other for other in ahead if module in reach.get(other, ())))
        for module, ahead in reach.items()
        if module in ahead
    }
    return [list(circle) for circle in sorted(found)]


def test_no_circles_of_imports():
    graph = imported({relative(path): read(path) for path in SOURCES}, types=False)
    assert circles(graph) == []


def test_circles_of_types_are_known():
    graph = imported({relative(path): read(path) for path in SOURCES}, types=True)
    known = [{f"{package}.{name}" for name in files} for _, package, files in RECURSIVE.values()]
    found = [*map(set, circles(graph))]
    new = [circle for circle in found if circle not in known]
    assert not new, "move what they share to a file below both:\n" + "\n".join(
        " <-> ".join(sorted(circle)) for circle in new
    )
    assert all(group in found for group in known), "a group has fewer files now"


@pytest.mark.parametrize(
    ("a", "b", "types", "expected"),
    [
        ("import graphfw.ops.b", "import graphfw.ops.a", False, True),
        ("from . import b", "from graphfw.ops import a", False, True),
        ("from .b import x", "from graphfw.ops.a import y", False, True),
        ("import graphfw.ops.b", "import graphfw.ir", False, False),
        ("import graphfw.ops.b", IN_FUNCTION.format("graphfw.ops.a"), False, False),
        ("import graphfw.ops.b", IF_TYPING.format("import graphfw.ops.a"), False, False),
        ("import graphfw.ops.b", IF_TYPING.format("import graphfw.ops.a"), True, True),
    ],
)
def test_what_a_circle_is(a: str, b: str, types: bool, expected: bool):
    sources = {
        PurePosixPath("graphfw/ops/__init__.py"): "",
        PurePosixPath("graphfw/ops/a.py"): a,
        PurePosixPath("graphfw/ops/b.py"): b,
    }
    found = circles(imported(sources, types=types))
    assert found == ([["graphfw.ops.a", "graphfw.ops.b"]] if expected else [])


def test_importing_graphfw_imports_nothing_slow():
    """Modules that numpy has not imported are imported by those who need them."""
    program = (
        "import sys, numpy; before = set(sys.modules); import graphfw\n"
        "print(*{'_hashlib', 'fractions', 'json', 'llvmlite'} & (sys.modules.keys() - before))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout == "\n", ran.stdout + ran.stderr


def test_files_are_short():
    long = [
        f"{relative(path)}: {lines} lines (more than {MAX_LINES}): split it, or give the reason in "
        "the module docstring after 'Long:', or in a comment where users read the docstring"
        for path in [*SOURCES, *OTHERS]
        if (lines := len(read(path).splitlines())) > MAX_LINES
        and "Long:" not in (ast.get_docstring(ast.parse(read(path))) or "")
        and not re.search(r"^# Long: ", read(path), re.MULTILINE)
    ]
    assert not long, "\n" + "\n".join(long)


@pytest.mark.parametrize(
    ("path", "source", "rule"),
    [
        ("ir/a.py", "import graphfw.errors", None),
        ("ir/a.py", "from . import b", None),
        ("ir/a.py", "from .. import errors", None),
        (
            "ir/a.py",
            "from .. import Graph",
            "ir may import errors, hints, loc, utils; not __init__",
        ),
        (
            "ir/a.py",
            "from graphfw.ops import add",
            "ir may import errors, hints, loc, utils; not ops",
        ),
        ("ir/__init__.py", "from .a import b", None),
        (
            "ir/__init__.py",
            "from ..ops import add",
            "ir may import errors, hints, loc, utils; not ops",
        ),
        ("ir/a.py", "try:\n    import graphfw.ops\nfinally:\n    pass", "not ops"),
        ("errors.py", "import graphfw.ir", "errors may import loc; not ir"),
        ("passes/a.py", "from graphfw import transforms, ir", "not transforms"),
        ("passes/a.py", "from graphfw.runtime.plan import Plan", "not runtime"),
        ("runtime/a.py", "import graphfw.io.npy, graphfw.passes.cse", None),
        ("optim/a.py", "from graphfw.nn import Linear", "not nn"),
        ("cli.py", "import graphfw", "not __init__"),
        ("__init__.py", "from graphfw.nn import Linear", None),
        ("extra.py", "", "'extra' is not in the table"),
        ("__init__.py", "import graphfw.extra", "'extra' is not in the table"),
        ("ops/a.py", IN_FUNCTION.format("graphfw.ir"), ":2: imports graphfw.ir: no import"),
        ("ops/a.py", IN_FUNCTION.format("math"), None),
        ("passes/a.py", IF_TYPING.format("from graphfw.transforms import grad"), None),
        ("passes/a.py", IF_TYPING.format("from graphfw.passes import cse"), None),
        ("passes/a.py", IF_TYPING.format("from graphfw.runtime import Plan"), "not over runtime"),
        ("optim/a.py", IF_TYPING.format("from graphfw.nn import Linear"), "not over nn"),
        ("runtime/cupy_executor/a.py", IN_FUNCTION.format("cupy"), None),
        ("runtime/executors.py", IN_FUNCTION.format("cupy"), None),
        ("runtime/cupy_executor/a.py", "import cupy.cuda", "never imported at module level"),
        ("runtime/cupy_executor/a.py", IF_TYPING.format("import cupy"), "never imported at module"),
        ("runtime/session.py", IN_FUNCTION.format("cupy"), "cupy_executor/ alone"),
    ],
)
def test_the_rules_themselves(path: str, source: str, rule: str | None):
    found = list(violations(PurePosixPath("graphfw", path), source))
    if rule is None:
        assert found == []
    else:
        assert len(found) == 1
        assert rule in found[0]
        assert found[0].startswith(f"graphfw/{path}:")
