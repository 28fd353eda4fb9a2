"""einops with tensors whose sizes are known in the run alone, next to einops with arrays."""

import numpy as np
import pytest

import graphfw as gf

einops = pytest.importorskip("einops")
pytest.importorskip("graphfw_extras.for_einops")

USES = {
    "split": lambda x: einops.rearrange(x, "n (a b) -> a n b", a=2),
    "merge": lambda x: einops.rearrange(x, "n d -> (d n)"),
    "mean": lambda x: einops.reduce(x, "n d -> d", "mean"),
    "pool": lambda x: einops.reduce(x, "n (d two) -> n d", "max", two=2),
    "repeat": lambda x: einops.repeat(x, "n d -> n r d", r=3),
    "stack": lambda x: einops.rearrange([x, x], "s n d -> n d s"),
    "pack": lambda x: einops.pack([x, x], "n *")[0],
    "unpack": lambda x: einops.unpack(x, [(1,), (3,)], "n *")[1],
    "einsum": lambda x: einops.einsum(x, x, "n d, m d -> n m"),
}


@pytest.mark.parametrize("name", USES)
@pytest.mark.parametrize("rows", ["n", 6])
def test_like_arrays(name: str, rows: str | int):
    array = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    with gf.Graph() as g:
        x = gf.placeholder((rows, 4), name="x")
        y = USES[name](x)
    with gf.Session(g) as session:
        np.testing.assert_allclose(session.run(y, {x: array}), USES[name](array), rtol=1e-5)


def test_sizes_that_do_not_fit():
    with gf.Graph(), pytest.raises(einops.EinopsError, match="can't divide axis of length 3"):
        einops.rearrange(gf.placeholder(("n", 3)), "n (a b) -> n a b", a=2)
