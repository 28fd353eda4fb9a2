"""Plans of convolutions and what pools them, for tests of how these are computed together."""

import numpy as np

import graphfw as gf
from graphfw.ir.dtype import as_dtype
from tests.runtime.numpy_executor.special_runs import assert_native


def drawn(rng, shape, dtype="float32"):
    return rng.standard_normal(shape).astype(as_dtype(dtype).dtype)


def agree(
    monkeypatch, g, fetches, feeds, *, fused, pool="window_max", threads=(1, 2), rtol=3e-5, **how
):
    """See that plans give what the evaluation node by node does, and what they have fused.

    With several numbers of threads to the last bit the same.
    """
    with monkeypatch.context() as context, gf.Session(g, **how) as session:
        context.setenv("GRAPHFW_JIT", "0")
        wanted = session.compile(fetches, list(feeds))(*feeds.values())
    first = None
    for count in threads:
        with gf.Session(g, threads=count, **how) as session:
            plan = session.compile(fetches, list(feeds))
            assert_native(plan)
            steps = [[node.op.name for node in step.nodes] for step in plan._run.build.steps]
            assert any("conv" in names and pool in names for names in steps) == fused
            found = plan(*feeds.values())
        first = first or found
        for a, b, same in zip(found, wanted, first, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, same)
            np.testing.assert_allclose(
                a.astype("float64"), b.astype("float64"), rtol=rtol, atol=rtol
            )
