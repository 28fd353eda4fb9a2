"""Errors of the CuPy executor where something is missing or fails."""

import re
import sys
import types
from contextlib import contextmanager

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, ExecutionError, ExecutorError, FeedError
from graphfw.extend import NONDIFF
from graphfw.ir.op import REGISTRY
from graphfw.ops.linalg.matrix_rules import attempt
from graphfw.runtime.cupy_executor.device import Device
from tests.strict_xp import strict_array


@pytest.fixture
def graph():
    with gf.Graph() as g:
        x = gf.placeholder(("n", 1000), name="x")
        gf.identity(gf.sin(gf.sort(gf.exp(x), axis=1) * 2.0), name="y")
    return g


@pytest.mark.parametrize(
    ("status", "driver", "match"),
    [
        (35, 0, r"there is no NVIDIA driver(.|\n)*install the NVIDIA driver"),
        (35, 11080, r"driver knows CUDA 11\.8 and CuPy needs 12\.9(.|\n)*update the driver"),
        (100, 12040, r"finds no GPU(.|\n)*CUDA_VISIBLE_DEVICES"),
        (999, 12040, r"CUDA says: cudaErrorThatThisIs"),
    ],
)
def test_no_device(fake, graph, status, driver, match):
    fake.devices = -status
    fake.cuda.runtime.driverGetVersion = lambda: driver
    with pytest.raises(ExecutorError, match=match):
        gf.Session(graph, "cupy")


@pytest.mark.parametrize(
    ("choice", "match"),
    [
        ("cupy:2", r'there is no GPU 2: this machine has 2(.|\n)*"cupy:0" to "cupy:1"'),
        ("cupy:x", '"cupy:x" names no device'),
    ],
)
def test_wrong_devices(fake, graph, choice, match):
    fake.devices = 2
    with pytest.raises(ExecutorError, match=match):
        gf.Session(graph, choice)


def test_an_array_of_another_device(fake, graph):
    fake.devices = 2
    with gf.Session(graph, "cupy:1") as session:
        fed = strict_array(np.zeros((2, 1000), np.float32))
        with pytest.raises(FeedError, match=r"GPU 0, and the session runs on GPU 1(.|\n)*cupy:0"):
            session.run("y", {"x": fed})


def test_all_work_goes_to_the_gpu_that_was_chosen(fake):
    fake.devices = 2
    g, v, grow = counting()
    with gf.Session(g, "cupy:1") as session:
        for _ in range(4):
            session.run([grow, "twice"], host=True)
        session.compile("twice").profile()
        np.testing.assert_array_equal(session[v], [4, 4, 4])
    assert fake.used == {1}
    assert fake.streams.graphs


def test_an_array_of_a_gpu_where_one_of_the_host_is_needed():
    class OnGpu:
        """As CuPy's and PyTorch's arrays."""

        def __array__(self, dtype=None, copy=None):
            raise TypeError("Implicit conversion to a NumPy array is not allowed")

    g, v, grow = counting()
    with g:
        x = gf.placeholder((3,), name="x")
        y = x + 1.0
    with gf.Session(g, "numpy") as session:
        with pytest.raises(FeedError, match=r'"x": an OnGpu stays where it is(.|\n)*gf.to_numpy'):
            session.run(y, {x: OnGpu()})
        with pytest.raises(ArgumentError, match=r"Implicit conversion(.|\n)*gf.to_numpy"):
            session[v] = OnGpu()
        with pytest.raises(ArgumentError, match="to_numpy: an OnGpu can't be made"):
            gf.to_numpy(OnGpu())


def test_a_gpu_that_is_too_old(fake, graph, monkeypatch):
    monkeypatch.setattr(Device, "capability", "75")
    with gf.Session(graph, "cupy") as session:
        with pytest.raises(ExecutorError, match=r"8\.0 or newer, and this one has 7\.5"):
            session.compile("y", graph.placeholders)
        monkeypatch.setenv("GRAPHFW_JIT", "0")
        session.compile("y", graph.placeholders)


@pytest.mark.parametrize(("version", "numpys"), [("13.6.0", "2.4.0"), ("14.0", "2.1.1")])
def test_bfloat16_that_cupy_lacks(fake, monkeypatch, version, numpys):
    monkeypatch.setattr(np, "__version__", numpys)
    fake.__version__ = version
    with gf.Graph() as g:
        x = gf.placeholder((3,), gf.bfloat16, name="narrow")
        y = gf.astype(x, gf.float32)
    with gf.Session(g, executor="cupy") as session:
        match = rf"CuPy {version} has no bfloat16, which narrow is, made at test_failures.py:\d+"
        with pytest.raises(ExecutorError, match=match):
            session.compile(y, feeds=[x])


class DynamicLibNotFoundError(RuntimeError):
    """The error of `cuda.pathfinder`, by which CuPy 14 looks for libraries."""


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CuPy failed to load libnvrtc.so.12: OSError: no such file"),
        DynamicLibNotFoundError('Failure finding "libnvrtc.so.12": No such file'),
    ],
    ids=["CuPy", "pathfinder"],
)
def test_a_missing_library(fake, graph, error):
    def missing():
        raise error

    fake.cuda.nvrtc.getVersion = missing
    with gf.Session(graph, "cupy") as session:
        with pytest.raises(ExecutorError, match=r"libnvrtc(.|\n)*cupy-cuda12x\[ctk\]"):
            session.run("y", {"x": np.zeros((2, 1000), np.float32)})


def test_a_missing_library_of_cupys(fake, graph, monkeypatch):
    def missing(*_, **__):
        raise ImportError('Failure finding "libcusolver.so.11": No such file')

    monkeypatch.setattr(fake, "sort", missing, raising=False)
    with gf.Session(graph, "cupy") as session:
        with pytest.raises(ExecutorError, match=r"can't compute sort: .*cusolver(.|\n)*\[ctk\]"):
            session.run("y", {"x": np.zeros((2, 1000), np.float32)})


def test_what_an_op_of_others_can_not_load_is_its_own(fake, request, monkeypatch):
    monkeypatch.setenv("GRAPHFW_VERIFY", "each")  # values would be computed before

    @gf.op("tests.loads")
    class Loads(gf.Op):
        vjp = NONDIFF

        def shape(self, x):
            return x

        def dtype(self, x):
            return x

        def eval(self, xp, x):
            raise RuntimeError("weights.bin failed to load")

    request.addfinalizer(lambda: REGISTRY.pop("tests.loads"))
    with gf.Graph() as g:
        y = gf.apply(Loads(), gf.placeholder((3,), name="x"))
    with gf.Session(g, "cupy") as session:
        with pytest.raises(ExecutionError, match=r"tests\.loads failed: (.|\n)*weights\.bin"):
            session.run(y, {"x": np.zeros(3, np.float32)})


def test_a_kernel_that_is_refused(fake, graph, monkeypatch):
    monkeypatch.setenv("GRAPHFW_CACHE", "off")
    with gf.Session(graph, "cupy") as session:
        plan = session.compile("y", graph.placeholders)
        symbol = plan._run.build.codes[1].symbol
        fake.compiler_log = f"graphfw.cu(7): error in {symbol}_elements: nonsense"
        with pytest.raises(ExecutorError) as caught, gf.Session(graph, "cupy") as session:
            session.compile("y", graph.placeholders)
    text = str(caught.value)
    assert "CUDA refuses a kernel that was generated for sm_90" in text
    assert "nonsense" in text
    assert "kernel rows" in text
    assert "sin made at test_failures.py" in text
    assert "exp made at" not in text


def test_a_gpu_that_is_too_new(fake, graph):
    fake.compiler_log = "nvrtc: error: invalid value for --gpu-architecture (-arch)"
    with gf.Session(graph, "cupy") as session, pytest.raises(ExecutorError, match="too old"):
        session.compile("y", graph.placeholders)


def test_too_little_memory(fake, graph):
    with gf.Session(graph, "cupy") as session:
        fake.limit = 10_000
        with pytest.raises(ExecutionError) as caught:
            session.run("y", {"x": np.zeros((100, 1000), np.float32)})
    text = str(caught.value)
    assert "too little memory: a run at n = 100 takes" in text
    assert "3.00 GiB of 8.00 GiB are free" in text
    assert "made at test_failures.py" in text
    assert "smaller n" in text
    assert "would fit" not in text, "there is enough, in pieces"


def test_what_would_fit(fake, graph, monkeypatch):
    with gf.Session(graph, "cupy") as session:
        plan = session.compile("y", graph.placeholders)
        monkeypatch.setattr(fake.cuda.runtime, "memGetInfo", lambda: (100_000, 8 << 30))
        fake.limit = 10_000
        with pytest.raises(ExecutionError) as caught:
            plan(np.zeros((100, 1000), np.float32))
        most = int(re.search(r"n = (\d+) would fit", str(caught.value))[1])
        needed = [plan._run.layouts.made((n,)).needed for n in (most, most + 1)]
    assert needed[0] <= 100_000 < needed[1]


def test_too_little_memory_for_an_operation_of_cupy(fake, graph, monkeypatch):
    with gf.Session(graph, "cupy") as session:
        plan = session.compile("y", graph.placeholders)
        wanted = plan(np.zeros((2, 1000), np.float32), host=True)
        sort, spare = fake.sort, [True, False]
        failures = []

        def large(*args, **options):
            if failures:
                raise fake.cuda.memory.OutOfMemoryError(failures.pop())
            return sort(*args, **options)

        monkeypatch.setattr(fake, "sort", large, raising=False)
        plan._run._worker._spare = lambda: spare.pop(0)
        failures += ["one"]
        again = plan(np.zeros((2, 1000), np.float32), host=True)
        np.testing.assert_array_equal(again, wanted)
        failures += ["one", "two"]
        with pytest.raises(ExecutionError, match="too little memory: a run at n = 2 takes"):
            plan(np.zeros((2, 1000), np.float32))


def test_too_little_memory_for_variables(fake):
    g, v, _ = counting()
    with gf.Session(g, "cupy") as session:
        fake.limit = 8
        with pytest.raises(ExecutionError, match=r"3.00 GiB of 8.00 GiB are free(.|\n)*12 bytes"):
            session[v] = np.ones(3, np.float32)


def test_a_module_that_is_refused(fake, graph, monkeypatch):
    def refused():
        raise fake.cuda.driver.CUDADriverError(209)  # CUDA_ERROR_NO_BINARY_FOR_GPU

    monkeypatch.setattr(fake.cuda, "Module", refused)
    with gf.Session(graph, "cupy") as session:
        with pytest.raises(ExecutionError, match="CUDA refuses what it is asked for"):
            session.compile("y", graph.placeholders)


def test_matrices_that_cupy_can_not_decompose(monkeypatch):
    asked = []

    @contextmanager
    def errstate(linalg):
        asked.append(linalg)
        yield

    def inv(x):
        assert asked == ["raise"], "CuPy says nothing, and returns NaN"
        raise np.linalg.LinAlgError

    inv.__module__ = "cupy.linalg._solve"
    monkeypatch.setitem(sys.modules, "cupyx", types.SimpleNamespace(errstate=errstate))
    with pytest.raises(ExecutionError, match="singular"):
        attempt("inv: a matrix is singular", "", inv, None)


def counting():
    with gf.Graph() as g:
        v = gf.Variable(np.zeros(3, np.float32), name="v")
        grow = gf.update(v, v + 1)
        gf.identity(v * 2.0, name="twice")
    return g, v, grow


def test_a_gpu_that_has_failed(fake, tmp_path):
    g, v, grow = counting()
    with gf.Session(g, "cupy") as session:
        session.run(grow)
        fake.broken = "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"
        with pytest.raises(ExecutionError, match=r"illegal memory(.|\n)*session is lost"):
            session.run(grow)
        fake.broken = ""  # CUDA would go on refusing; nobody is to ask it
        for use in (
            lambda: session.run(grow),
            lambda: session[v],
            lambda: session.save(tmp_path / "state.safetensors"),
            lambda: session.load_state_dict({"v": np.ones(3, np.float32)}),
        ):
            with pytest.raises(ExecutionError, match=r"illegal memory(.|\n)*last checkpoint"):
                use()
        assert not [*tmp_path.iterdir()]


def test_a_gpu_that_refuses_a_run_and_goes_on(fake):
    g, v, grow = counting()
    with gf.Session(g, "cupy") as session:
        for _ in range(2):
            session.run(grow)
        plan = session.compile("twice")
        fake.broken, fake.survives = "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", True
        with pytest.raises(ExecutionError, match=r"OUT_OF_RESOURCES(.|\n)*can be saved"):
            plan()
        np.testing.assert_array_equal(session.state_dict()["v"], [2, 2, 2])
        fake.broken = ""
        session.run(grow)
        np.testing.assert_array_equal(session[v], [3, 3, 3])


@pytest.mark.parametrize("jit", ["1", "0"])
def test_a_gpu_that_fails_in_an_operation_of_cupy(jit, fake, graph, monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", jit)

    def broken(*_, **__):
        fake.broken = "cudaErrorIllegalAddress"
        raise fake.cuda.runtime.CUDARuntimeError(700, "cudaErrorIllegalAddress")

    monkeypatch.setattr(fake, "sort", broken, raising=False)
    with gf.Session(graph, "cupy") as session:
        with pytest.raises(ExecutionError, match=r"IllegalAddress(.|\n)*session is lost"):
            session.run("y", {"x": np.zeros((2, 1000), np.float32)})


def test_no_timeout_is_taken(fake, graph):
    message = 'the executor "cupy" can\'t end a run, so it takes no timeout'
    with pytest.raises(ExecutorError, match=message) as caught:
        gf.Session(graph, "cupy", timeout=1)
    assert caught.value.fix == 'leave the timeout out, or use executor="numpy"'
    with gf.Session(graph, "cupy") as session:
        plan = session.compile("y", graph.placeholders)
        with pytest.raises(ExecutorError, match=message):
            plan(np.zeros((3, 1000), np.float32), timeout=1)


def test_a_plan_that_was_explained_keeps_the_limit(fake):
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        y = gf.sum(gf.exp(x) @ gf.reshape(x, (-1, 1)))
    with gf.Session(g, "cupy", memory_limit="1MB") as session:
        plan = session.compile(y, [x])
        assert "kernel" in plan.explain((1 << 20,))
        with pytest.raises(gf.MemoryLimitError):
            plan(np.ones(1 << 20, np.float32))


def test_a_session_with_a_limit(fake, graph, monkeypatch):
    with gf.Session(graph, "cupy", memory_limit="1MB") as session:
        plan = session.compile("y", graph.placeholders)
        plan(np.zeros((20, 1000), np.float32))
        with pytest.raises(gf.MemoryLimitError, match="memory_limit is 1,000,000"):
            plan(np.zeros((200, 1000), np.float32))
        most = plan.max_dim("n", "1MB")
        assert plan.memory((most, 1000)).peak <= 1e6 < plan.memory((most + 1, 1000)).peak
    monkeypatch.setenv("GRAPHFW_JIT", "0")
    with pytest.raises(ExecutorError, match="GRAPHFW_JIT=0 does not plan its memory"):
        gf.Session(graph, "cupy", memory_limit="1GB").compile("y", graph.placeholders)
