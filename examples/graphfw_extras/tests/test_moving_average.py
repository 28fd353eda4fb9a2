"""`moving_average`: its native code beside its `eval`."""

import graphfw_extras as extras
import numpy as np
import pytest
from graphfw_extras.moving_average import MovingAverage

import graphfw as gf

LAYOUTS = {
    "rows": lambda x: x,
    "columns": gf.matrix_transpose,
    "from the end": lambda x: gf.flip(x, axis=1),
    "every other": lambda x: x[1:, ::2],
    "computed": lambda x: x * 2,
}


@pytest.fixture(params=["numpy", "cupy"])
def executor(request) -> str:
    if request.param == "cupy" and not pytest.importorskip("cupy").cuda.is_available():
        pytest.skip("there is no GPU")
    return request.param


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_like_the_reference(executor: str, layout: str, dtype: str):
    array = np.random.default_rng(0).normal(size=(5, 7)).astype(dtype)
    with gf.Graph() as g:
        x = gf.placeholder(("n", "t"), dtype, name="x")
        given = LAYOUTS[layout](x)
        y = extras.moving_average(given, decay=0.9)
    with gf.Session(g, executor=executor) as session:
        plan = session.compile([given, y], feeds=[x])
        said = plan.explain()
        if executor == "cupy":
            assert "0 operations by CuPy" in said
        else:
            assert "outside of native code" not in said
        taken, found = [session.executor.to_host(each) for each in plan(array)]
    np.testing.assert_allclose(found, MovingAverage(0.9).eval(np, taken), rtol=1e-5)


def test_no_rows_and_no_columns(executor: str):
    for shape in ((0, 3), (3, 0)):
        x = gf.zeros(shape)
        assert extras.moving_average(x, decay=0.5).numpy().shape == shape


def test_several_decays_in_one_program(executor: str):
    array = np.ones((2, 3), np.float32)
    with gf.Graph() as g:
        x = gf.placeholder((2, 3), name="x")
        ys = [extras.moving_average(x, decay=decay) for decay in (0.0, 0.5, 1.0)]
    with gf.Session(g, executor=executor) as session:
        first, second, third = session.run(ys, {x: array}, host=True)
    np.testing.assert_array_equal(first, array)
    np.testing.assert_array_equal(second, [[0.5, 0.75, 0.875]] * 2)
    np.testing.assert_array_equal(third, 0 * array)


def test_gradients_and_batches():
    with gf.Graph() as g:
        x = gf.placeholder((2, 4), gf.float64, name="x")
        slope = gf.grad(gf.sum(extras.moving_average(x, decay=0.5)[:, -1]), x)
    found = gf.Session(g).run(slope, {x: np.ones((2, 4))})
    np.testing.assert_allclose(found, [[1 / 16, 1 / 8, 1 / 4, 1 / 2]] * 2)
    xs = gf.asarray(np.arange(12.0).reshape(2, 3, 2))
    mapped = gf.vmap(lambda x: extras.moving_average(x, decay=0.5))(xs)
    np.testing.assert_allclose(mapped.numpy(), [MovingAverage(0.5).eval(np, x) for x in xs.numpy()])


def test_mistakes():
    with pytest.raises(gf.ArgumentError, match=r"decay=1\.5 is not between 0 and 1"):
        extras.moving_average([[1.0]], decay=1.5)
    with pytest.raises(gf.ShapeError, match="wants a matrix"):
        extras.moving_average([1.0], decay=0.5)
    with pytest.raises(gf.DTypeError, match="wants float32 or float64, not int64"):
        extras.moving_average([[1]], decay=0.5)
