"""`gf.extend.lowers`: native code of an op that is defined outside of the package."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import graphfw as gf
from graphfw.extend import NONDIFF, Step, lowers, require
from graphfw.ir.op import REGISTRY
from graphfw.ops.shape.gather_scatter import IndexAdd
from graphfw.runtime.cupy_executor.target import GpuTarget
from graphfw.runtime.kernels.lowerings import lowering_of
from graphfw.runtime.planning.draws import Draws

TEXT = """
define i32 @SYMBOL(ptr %operands, ptr %params, i64 %row, ptr %scratch) {
  %y = load ptr, ptr %operands
  %second = getelementptr ptr, ptr %operands, i64 1
  %x = load ptr, ptr %second
  %to = getelementptr double, ptr %y, i64 %row
  %from = getelementptr double, ptr %x, i64 %row
  %value = load double, ptr %from
  %result = fadd double %value, NUMBER
  store double %result, ptr %to
  ret i32 0
}"""


class AddingCode:
    """Adds a number: not what `eval` does, so that a test sees which of them was run."""

    def __init__(self, number):
        self.number = number

    @property
    def key(self):
        return f"adding {self.number}"

    def llvm(self, symbol):
        return TEXT.replace("SYMBOL", symbol).replace("NUMBER", repr(self.number))


@pytest.fixture(autouse=True)
def compiling(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    yield
    for name in [name for name in REGISTRY if name.startswith("lowerings.")]:
        del REGISTRY[name]


def defined(base=gf.Op):
    @gf.op("lowerings.adds")
    class Adds(base):
        """x + number, of vectors."""

        number: float
        vjp = NONDIFF

        def shape(self, x):
            require(len(x) == 1, "wants a vector")
            return x

        def dtype(self, x):
            return x

        def eval(self, xp, x):
            return x * 0

    return Adds


def steps(node, inputs, outputs, settings):
    (x,), (y,) = inputs, outputs
    if x.strides != (1,):
        return []
    code = AddingCode(node.op.number)
    return [Step((node,), code, (y.storage, x.storage), (True, False), (), x.shape[0])]


def run(op, value, of=lambda x: x):
    with gf.Graph() as g:
        x = gf.placeholder(("n",), gf.float64, name="x")
        y = gf.apply(op, of(x))
    with gf.Session(g, executor="numpy") as session:
        return session.run(y, {x: np.asarray(value, np.float64)}).tolist()


def test_native_code_is_found_by_class():
    adds = defined()
    lowers(adds, target="numpy")(steps)
    assert run(adds(2.0), [1, 2, 3]) == [3, 4, 5]
    assert run(adds(0.5), [1, 2, 3]) == [1.5, 2.5, 3.5]
    assert run(adds(2.0), [1, 2, 3], lambda x: x[::-1]) == [0, 0, 0]  # it returns no steps for it


def test_a_derived_class_and_one_defined_anew_have_none():
    adds = defined()
    lowers(adds, target="numpy")(steps)
    assert run(defined(adds)(2.0), [1]) == [0]
    assert run(defined()(2.0), [1]) == [0]


def test_targets_have_their_own():
    adds = defined()
    lowers(adds, target="cupy", fills=True)(steps)
    assert run(adds(2.0), [1]) == [0]
    with gf.Graph():
        node = gf.apply(adds(2.0), gf.placeholder((3,), gf.float64)).node
    assert GpuTarget(Draws(()), "highest").fills(node)
    assert lowering_of(node, "numpy") is None


def test_what_can_not_be_registered():
    adds = defined()
    with pytest.raises(gf.ArgumentError, match="there is no target 'numpi'") as caught:
        lowers(adds, target="numpi")(steps)
    assert caught.value.fix == 'did you mean "numpy"?'
    with pytest.raises(gf.ArgumentError, match="is no class of ops"):
        lowers(adds(2.0), target="numpy")(steps)
    with pytest.raises(gf.GraphError, match=r"'index_add' has native code for numpy already"):
        lowers(IndexAdd, target="numpy")(steps)
    lowers(adds, target="numpy")(steps)
    lowers(adds, target="numpy")(steps)  # as a notebook does


def test_an_entry_point_names_the_module(tmp_path, monkeypatch):
    adds = defined()
    (tmp_path / "some_lowerings.py").write_text(
        "from graphfw.extend import lowers\n"
        "from graphfw.ir.op import lookup\n"
        f"from {__name__} import steps\n"
        "lowers(lookup('lowerings.adds'), target='numpy')(steps)\n"
    )
    info = tmp_path / "some_lowerings-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-lowerings\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[graphfw.lowerings]\nlowerings.adds = some_lowerings\n")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert run(adds(2.0), [1]) == [3]
    finally:
        sys.modules.pop("some_lowerings", None)


def test_lowering_knows_no_family_of_layers():
    """Fusion, lowering and planning ask for bases and facts: convolution is one op among others."""
    root = Path(gf.__file__).parent
    files = [*root.glob("passes/fuse*.py"), *root.glob("runtime/kernels/*.py")]
    files += root.glob("runtime/planning/*.py")
    assert len(files) > 40
    assert not [file.name for file in files if "graphfw.ops.nn" in file.read_text("utf-8")]


def test_names_of_ops_decide_nothing():
    """A misspelt name is unequal for ever; a misspelt class is an error of import."""
    root = Path(gf.__file__).parent
    by_name = re.compile(
        r"\bop\.name (?:[!=]=|(?:not )?in) "
        r"|(?<!hits)\[(?:\w+\.)*op\.name\]"
        r"|\.get\((?:\w+\.)*op\.name\b"
    )
    found = [
        f"{file.relative_to(root)}: {match[0]}"
        for folder in ("passes", "runtime")
        for file in root.joinpath(folder).rglob("*.py")
        for match in by_name.finditer(file.read_text("utf-8"))
    ]
    assert not found, "ask for classes or traits:\n" + "\n".join(found)
