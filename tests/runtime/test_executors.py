"""Choosing an executor: names, defaults and their scopes, the environment, other packages' own."""

import importlib.util

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, ExecutorError
from graphfw.runtime.executor import Executor, executor_names, find_executor
from graphfw.runtime.numpy_executor import NumpyExecutor


@pytest.fixture
def graph():
    with gf.Graph() as g:
        x = gf.placeholder((2,), name="x")
        gf.identity(x + 1, name="y")
    return g


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    monkeypatch.delenv("GRAPHFW_EXECUTOR", raising=False)
    yield
    gf.reset_default_executor()


def used(graph, choice=None):
    return gf.Session(graph, choice).executor.name


def test_the_built_in_ones_are_known():
    assert {"numpy", "cupy", "meta"} <= set(executor_names())
    assert executor_names() == sorted(executor_names())


def test_the_choice_goes_from_the_argument_outwards(graph, monkeypatch):
    assert used(graph) == "numpy"
    monkeypatch.setenv("GRAPHFW_EXECUTOR", "meta")
    assert used(graph) == "meta"
    gf.set_default_executor("numpy")
    assert used(graph) == "numpy"
    with gf.default_executor("meta"):
        assert used(graph) == "meta"
        with gf.default_executor("numpy"):
            assert used(graph) == "numpy"
            assert used(graph, "meta") == "meta"
        assert used(graph) == "meta"
    assert used(graph) == "numpy"
    gf.reset_default_executor()
    assert used(graph) == "meta"
    monkeypatch.setenv("GRAPHFW_EXECUTOR", "")
    assert used(graph) == "numpy"


def test_a_session_keeps_its_executor(graph):
    with gf.default_executor("meta"):
        session = gf.Session(graph)
    assert str(session.run("y", {"x": (2,)})) == "float32[2]"


def test_a_context_is_restored_on_exceptions():
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), gf.default_executor("meta"):
            raise error
        assert gf.get_default_executor() == "numpy"


@pytest.mark.parametrize(
    ("choice", "match"),
    [
        ("nunpy", r'no executor named "nunpy"(.|\n)*did you mean "numpy"'),
        ("cpu", r'no executor named "cpu"(.|\n)*executor="numpy"'),
        ("GPU:1", r'no executor named "GPU"(.|\n)*executor="cupy:1"'),
        ("qqqqqq", r'no executor named "qqqqqq"(.|\n)*there are: .*numpy'),
        ("", 'no executor named ""'),
        ("numpy:0", "the NumPy executor has no devices"),
        ("meta:1", "the meta executor has no devices"),
        (3, "3 is no executor"),
        (NumpyExecutor, r"is no executor(.|\n)*make one: NumpyExecutor\(\)"),
    ],
)
def test_wrong_choices(graph, choice, match):
    with pytest.raises(ExecutorError, match=match):
        gf.Session(graph, choice)


def test_a_wrong_default_is_found_when_a_session_is_made(graph):
    with gf.default_executor("nunpy"), pytest.raises(ExecutorError, match='named "nunpy"'):
        gf.Session(graph)


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
def test_cupy_where_it_is_missing_says_what_to_install(graph):
    with pytest.raises(ExecutorError) as caught:
        gf.Session(graph, "cupy")
    text = str(caught.value)
    assert "the CuPy executor can't run here: No module named 'cupy'" in text
    assert 'pip install "cupy-cuda12x[ctk]"' in text
    assert 'executor="numpy"' in text


def test_an_instance_is_taken_as_it_is(graph):
    mine = NumpyExecutor()
    assert gf.Session(graph, mine).executor is mine
    assert find_executor(mine) is mine


# Other packages.

MODULE = '''
import numpy as np
from graphfw.ir.types import TensorType
from graphfw.runtime.array_executor import ArrayExecutable
from graphfw.runtime.executor import Executor
from graphfw.runtime import feeding


class Loud(Executor):
    """Runs with NumPy and counts; its arrays are of a type of their own."""

    name = "loud"

    def __init__(self, device=""):
        self.device = device
        self.runs = 0

    def load(self, program, options):
        inner = ArrayExecutable(program, np)

        class Counting(type(inner)):
            def __call__(this, inputs, sizes, *rest):
                self.runs += 1
                return super().__call__(inputs, sizes, *rest)

        return Counting(program, np)

    def feed(self, placeholder, value):
        return feeding.host_array(placeholder, value)

    def from_host(self, array):
        return np.array(array)

    def to_host(self, array):
        return np.array(array)


def not_one(device):
    return "a string"
'''


def install(folder, monkeypatch, points, module=MODULE, name="loud_executor"):
    """Make a distribution as pip would, without pip."""
    (folder / f"{name}.py").write_text(module)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[graphfw.executors]\n" + points)
    monkeypatch.syspath_prepend(str(folder))


def test_an_installed_package_brings_an_executor(graph, tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "loud = loud_executor:Loud\nbad = loud_executor:not_one\n")
    assert {"loud", "bad"} <= set(executor_names())
    with gf.Session(graph, "loud:3") as session:
        assert isinstance(session.executor, Executor)
        assert session.executor.device == "3"
        np.testing.assert_array_equal(session.run("y", {"x": [1.0, 2.0]}), [2, 3])
        assert session.executor.runs == 1
    with gf.default_executor("loud"):
        assert used(graph) == "loud"
    with pytest.raises(ExecutorError, match='did you mean "loud"'):
        gf.Session(graph, "lout")
    with pytest.raises(ExecutorError, match='the executor "bad" is a str, no Executor'):
        gf.Session(graph, "bad")


def test_a_package_whose_executor_does_not_load(graph, tmp_path, monkeypatch):
    install(
        tmp_path,
        monkeypatch,
        "broken = broken_executor:Nope\n",
        "import no_such_module_at_all\n",
        "broken_executor",
    )
    with pytest.raises(ExecutorError, match=r"can.t be loaded: .*no_such_module") as caught:
        gf.Session(graph, "broken")
    assert '"broken", broken_executor:Nope of broken_executor' in str(caught.value)
    assert isinstance(caught.value.__cause__, ImportError)


def test_two_packages_with_one_name_are_not_chosen_between(graph, tmp_path, monkeypatch):
    for name in ("first_one", "second_one"):
        (tmp_path / name).mkdir()
        install(tmp_path / name, monkeypatch, f"twin = {name}:Loud\n", name=name)
    with pytest.raises(ExecutorError, match="several installed packages") as caught:
        gf.Session(graph, "twin")
    assert "first_one:Loud of first_one" in str(caught.value)
    assert "second_one:Loud of second_one" in str(caught.value)


@pytest.mark.parametrize("name", ["", None, 3, ["numpy"]])
def test_a_default_that_is_no_name(name):
    with pytest.raises(ArgumentError, match=r"set_default_executor: .* is not the name of"):
        gf.set_default_executor(name)
    with pytest.raises(ArgumentError, match=r"default_executor: .* is not the name of"):
        gf.default_executor(name).__enter__()
    assert gf.get_default_executor() == "numpy"


def test_an_unknown_default_says_where_it_comes_from(graph, monkeypatch):
    monkeypatch.setenv("GRAPHFW_EXECUTOR", "tpu")
    for origin, choose in (
        ("GRAPHFW_EXECUTOR", lambda: None),
        ("gf.set_default_executor", lambda: gf.set_default_executor("tpu")),
    ):
        choose()
        with pytest.raises(ExecutorError, match='no executor named "tpu"') as caught:
            gf.Session(graph)
        assert caught.value.why == f"{origin} chose it"
    with gf.default_executor("tpu"), pytest.raises(ExecutorError) as caught:
        gf.Session(graph)
    assert caught.value.why == "gf.default_executor chose it"
    with pytest.raises(ExecutorError) as caught:
        gf.Session(graph, executor="tpu")
    assert caught.value.why == ""


@pytest.mark.parametrize("name", ["numpy", "meta"])
def test_an_executor_without_devices(graph, name):
    with pytest.raises(ExecutorError, match="has no devices") as caught:
        gf.Session(graph, executor=f"{name}:1")
    assert caught.value.fix == f'write "{name}"'


def test_what_an_executor_loads_is_checked(graph):
    class Empty(NumpyExecutor):
        name = "empty"

        def load(self, program, options):
            del program, options

    with pytest.raises(gf.ExecutorError, match="the executor 'empty' loads a NoneType"):
        gf.Session(graph, executor=Empty()).run(graph.outputs or [])
