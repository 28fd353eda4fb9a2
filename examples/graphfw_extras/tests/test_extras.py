"""The tests that a package which adds to graphfw should have of what it adds."""

import graphfw_extras as extras
import numpy as np
import pytest

import graphfw as gf
from graphfw.extend import derive, run_pipeline


def capped(x: np.ndarray, cap: float) -> np.ndarray:
    return np.tanh(x / cap) * cap


@pytest.fixture(params=["numpy", "counting"])
def executor(request) -> str:
    return request.param


def test_values_and_gradients(executor: str):
    array = np.linspace(-90, 90, 77, dtype=np.float32)
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        y = gf.sum(extras.softcap(x * 2, cap=30.0) + 1)
        slope = gf.grad(y, x)
    with gf.Session(g, executor=executor) as session:
        value, gradient = session.run([y, slope], {x: array})
    np.testing.assert_allclose(value, np.sum(capped(2 * array, 30) + 1), rtol=1e-5)
    np.testing.assert_allclose(gradient, 2 / np.cosh(array / 15) ** 2, rtol=2e-3, atol=1e-6)


def test_it_is_one_kernel_with_its_neighbours():
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        y = gf.exp(extras.softcap(x + 1, cap=2.0))
    with gf.Session(g, executor="numpy") as session:
        assert "add extras.softcap exp" in session.compile(y, feeds=[x]).explain()


def test_a_batch_of_it():
    xs = gf.asarray(np.arange(6.0).reshape(3, 2))
    rows = gf.vmap(lambda x: extras.softcap(x, cap=2.0))(xs)
    np.testing.assert_allclose(rows.numpy(), capped(xs.numpy(), 2.0))


def test_its_text_is_read_back():
    with gf.Graph("capped") as g:
        g.outputs = (extras.softcap(gf.placeholder(("n",), name="x"), cap=2.0),)
    assert "extras.softcap(%0, cap=2.0)" in str(g)
    assert str(gf.parse(str(g))) == str(g)


def test_mistakes():
    with pytest.raises(gf.DTypeError, match="wants floats, not int64"):
        extras.softcap([1, 2], cap=1.0)
    with pytest.raises(gf.ArgumentError, match=r"cap=-1\.0 is not above 0"):
        extras.softcap([1.0], cap=-1.0)


def test_the_pass_takes_it_apart():
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        y = extras.softcap(x, cap=3.0)
    result = run_pipeline(derive(g, [y]), [extras.SplitSoftcap()], verify="values")
    assert [node.op.name for node in result.graph.nodes if node.inputs] == [
        "divide",
        "tanh",
        "multiply",
    ]
    assert result.reports[0].hits == {"split": 1}


def test_the_executor_counts():
    executor = extras.CountingExecutor()
    with gf.Graph() as g:
        x = gf.placeholder((2,), name="x")
        y = extras.softcap(gf.exp(x) * gf.exp(x + 1), cap=3.0)
    with gf.Session(g, executor=executor) as session:
        session.run(y, {x: [0.0, 1.0]})
        session.run(y, {x: [2.0, 3.0]})
    assert executor.counts["exp"] == 4
    assert executor.counts["extras.softcap"] == 2


def test_the_executor_refuses_what_it_can_not_do():
    with gf.Graph() as g:
        y = gf.placeholder((), name="x") * 2
    with pytest.raises(gf.ExecutorError, match='there is no device "1" to count on'):
        gf.Session(g, executor="counting:1")
    with gf.Session(g, executor="counting", memory_limit="1MB") as session:
        with pytest.raises(gf.ExecutorError, match="can't keep a memory_limit"):
            session.run(y, {"x": 1.0})
