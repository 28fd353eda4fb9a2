"""Plans in mixed precision, from the disk."""

import numpy as np

import graphfw as gf
from graphfw.runtime.cache import Cache
from graphfw.runtime.numpy_executor.compiled import CompiledExecutable
from graphfw.runtime.numpy_executor.executables import RecalledExecutable
from tests.runtime.numpy_executor.test_recipe import kept, use  # noqa: F401  fixtures


def test_a_plan_is_recalled_in_the_precision_that_it_has(kept, monkeypatch, rng):  # noqa: F811  a fixture
    array = rng.standard_normal((9, 5)).astype(np.float32)
    contents = rng.standard_normal((5, 3)).astype(np.float32)

    def run(precision, kind, overrides=None):
        with gf.Graph() as g:
            x = gf.placeholder(("n", 5), name="x")
            y = gf.exp(x @ gf.Variable(contents, name="w"))
        options = {"precision": precision, "precision_overrides": overrides, "verify": "off"}
        with gf.Session(g, **options) as session:
            plan = session.compile(y, [x])
            assert type(plan._run) is kind
            return plan(array), plan.casts()

    exact, none = run(None, CompiledExecutable)
    low, casts = run("mixed-bf16", CompiledExecutable)
    assert np.abs(exact - low).max() > 1e-4
    assert (len(none), len(casts)) == (0, 3)
    use(Cache(kept), monkeypatch)
    for precision, wanted, count in ((None, exact, 0), ("mixed-bf16", low, 3)):
        found, casts = run(precision, RecalledExecutable)
        np.testing.assert_array_equal(found, wanted)
        assert len(casts) == count
    found, _ = run("mixed-bf16", RecalledExecutable, {"*": "float32"})  # it is the first program
    np.testing.assert_array_equal(found, exact)
