"""Native code for GPUs that another package brings: that of `examples/graphfw_extras`."""

import sys
from pathlib import Path

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.op import REGISTRY
from tests.strict_xp import plain_array
from tests.support.cuda_compilers import compiled

SOURCE = Path(__file__).parents[3] / "examples" / "graphfw_extras" / "src"

LAYOUTS = {
    "rows": lambda x: x,
    "columns": gf.matrix_transpose,
    "from the end": lambda x: gf.flip(x, axis=1),
    "every other": lambda x: x[1:, ::2],
}


@pytest.fixture
def extras(monkeypatch):
    """The package, and its native code."""
    monkeypatch.syspath_prepend(SOURCE)
    import graphfw_extras
    import graphfw_extras.native

    yield graphfw_extras
    for name in [name for name in sys.modules if name.partition(".")[0] == "graphfw_extras"]:
        del sys.modules[name]
    for name in [name for name in REGISTRY if name.startswith("extras.")]:
        del REGISTRY[name]


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(5, 7), (300, 3), (0, 4), (4, 0)])
def test_a_moving_average(fake, extras, rng, shape, layout, dtype):
    array = rng.normal(size=shape).astype(dtype)
    with gf.Graph() as g:
        x = gf.placeholder(("n", "t"), dtype, name="x")
        given = LAYOUTS[layout](x)
        y = extras.moving_average(given, decay=0.9)
    with gf.Session(g, executor="cupy") as session:
        plan = session.compile([given, y], [x])
        assert "0 operations by CuPy" in plan.explain(shape)
        taken, found = map(plain_array, plan(array))
    np.testing.assert_allclose(found, y.node.op.eval(np, taken), rtol=1e-5)


@pytest.mark.slow
def test_gpus_compilers_take_it(fake, extras):
    with gf.Graph() as g:
        x = gf.placeholder(("n", "t"), name="x")
        ys = [extras.moving_average(x, decay=decay) for decay in (0.5, 0.9, 1e-7)]
        ys.append(extras.moving_average(gf.astype(x, gf.float64), decay=0.5))
    with gf.Session(g, executor="cupy") as session:
        source = session.compile(ys, [x]).source()
    assert source.count("GF void moving_average_") == 4
    assert compiled(source, "sm_80")
