"""Running node by node: values, memory that is freed in time, errors that name the node."""

import tracemalloc
import weakref

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ExecutionError
from graphfw.ir.build import emit_all
from graphfw.ir.op import NONDIFF, Op, op
from graphfw.passes.pipelines import NODEWISE
from graphfw.runtime.array_executor import ArrayExecutable
from graphfw.runtime.program import lower


@pytest.fixture(autouse=True)
def _evaluated_once(monkeypatch):
    """At the level "values" the compiler evaluates too, on values that these graphs may refuse."""
    monkeypatch.setenv("GRAPHFW_VERIFY", "each")


@op("tracked_halves")
class Halves(Op):
    """Two results, each half of the elements plus one.  x: [2*n]  ->  [n], [n]"""

    multiple = True
    vjp = NONDIFF

    def shape(self, x):
        return ((x[0] // 2,), (x[0] // 2,))

    def dtype(self, x):
        return (x, x)

    def eval(self, xp, x):
        half = len(x) // 2
        made.extend([x[:half] + 1, x[half:] + 1])
        return made[-2], made[-1]


@op("test_fails")
class Fails(Op):
    """Fails when it is run.  x: [*A]  ->  [*A]"""

    vjp = NONDIFF

    def shape(self, x):
        return x

    def dtype(self, x):
        return x

    def eval(self, xp, x):
        raise FloatingPointError("the unit is on fire")


@op("test_lacks")
class Lacks(Fails):
    """Finds no memory when it is run.  x: [*A]  ->  [*A]"""

    def eval(self, xp, x):
        raise MemoryError("no room")


@op("test_watch")
class Watch(Op):
    """The input plus one; notes which results of `tracked_halves` are alive.  x: [n] -> [n]"""

    vjp = NONDIFF

    def shape(self, x):
        return x

    def dtype(self, x):
        return x

    def eval(self, xp, x):
        alive.append([ref() is not None for ref in watched])
        return x + 1


made, watched, alive = [], [], []


@pytest.fixture(autouse=True)
def forget():
    for kept in (made, watched, alive):
        kept.clear()


def executable(fetches, feeds, graph, updates=()):
    program = lower(fetches, updates, feeds, graph, None, lambda: NODEWISE)
    return ArrayExecutable(program, np), program


# Values.


def test_several_outputs_each_go_where_they_are_used():
    with gf.Graph() as g:
        x = gf.placeholder((6,), name="x")
        low, high = emit_all(Halves(), x)
        both = low - high * 10
    with gf.Session(g) as session:
        a = np.arange(6, dtype=np.float32)
        np.testing.assert_array_equal(session.run(high, {x: a}), [4, 5, 6])
        values = session.run([both, high, low, low], {x: a})
        np.testing.assert_array_equal(values[0], [1 - 40, 2 - 50, 3 - 60])
        np.testing.assert_array_equal(values[1], [4, 5, 6])
        np.testing.assert_array_equal(values[2], [1, 2, 3])
        np.testing.assert_array_equal(values[3], [1, 2, 3])


def test_an_update_may_take_what_is_fetched_and_used_again():
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
        v = gf.Variable(np.zeros(3, np.float32), name="v")
        w = gf.Variable(np.zeros(3, np.float32), name="w")
        y = x + 1
        step = gf.group(gf.update(v, y), gf.update(w, y))
        z = y * y
    with gf.Session(g) as session:
        got_y, _, got_z = session.run([y, step, z], {x: [1, 2, 3]})
        got_y[:] = 0
        session[v] = [9, 9, 9]
        np.testing.assert_array_equal(got_z, [4, 9, 16])
        np.testing.assert_array_equal(session[w], [2, 3, 4])


def test_nothing_to_compute():
    with gf.Graph() as g:
        v = gf.Variable(1.0, name="v")
        x = gf.placeholder((), name="x")
        kept = gf.update(v, v)
    with gf.Session(g) as session:
        assert session.run([]) == []
        assert session.run(v) == 1
        assert session.run(x, {x: 4}) == 4
        assert session.run(kept) is None
        assert session[v] == 1


# Memory.


def test_an_array_is_freed_after_its_last_use():
    size = 250_000  # 1 MB each
    with gf.Graph() as g:
        x = gf.placeholder((size,), name="x")
        y = x
        for _ in range(20):
            y = gf.sin(y) + 0.5
    with gf.Session(g) as session:
        plan = session.compile(y, feeds=[x])
        a = np.zeros(size, np.float32)
        plan(a)
        tracemalloc.start()
        try:
            plan(a)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 2.5 * a.nbytes


def test_each_output_of_a_node_is_freed_on_its_own():
    with gf.Graph() as g:
        x = gf.placeholder((6,), name="x")
        low, high = emit_all(Halves(), x)
        step1 = emit_all(Watch(), high)[0]
        step2 = emit_all(Watch(), low + step1)[0]
        step3 = emit_all(Watch(), step2)[0]
    run, program = executable([step3, low], [x], g)

    class Tracking(Halves):
        def eval(self, xp, x):
            results = super().eval(xp, x)
            watched[:] = [weakref.ref(r) for r in results]
            made.clear()
            return results

    number = next(i for i, node in enumerate(run._nodes) if node.op.name == "tracked_halves")
    step = run._steps[number]
    run._steps[number] = step._replace(call=lambda x: Tracking().eval(np, x))
    run([np.arange(6, dtype=np.float32)], (), None, 0, None)
    # low is fetched; high is needed for the first step only.
    assert alive == [[True, True], [True, False], [True, False]]


def test_what_is_unused_of_a_node_is_freed_at_once():
    with gf.Graph() as g:
        x = gf.placeholder((6,), name="x")
        low, _ = emit_all(Halves(), x)
        y = low * 2
    run, program = executable([y], [x], g)
    last = {node.op.name: step.freed for node, step in zip(run._nodes, run._steps, strict=True)}
    slot = run._slots.of[low.node]
    assert slot + 1 in last["tracked_halves"]
    assert slot not in last["tracked_halves"]
    assert slot in last["multiply"]


def test_outputs_updates_and_constants_are_never_freed():
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
        v = gf.Variable(np.zeros(3, np.float32), name="v")
        c = gf.asarray(np.array([1, 2, 3], np.float32))
        y = x + c
        z = y * v
        step = gf.update(v, z)
        last = z - y * c
    run, program = executable([y, last], [x], g, [step])
    freed = {slot for s in run._steps for slot in s.freed}
    kept = {run._slots.of[t.node] + t.index for t in program.graph.outputs}
    constants = {run._slots.of[n] for n in program.graph.nodes if n.op.name == "constant"}
    assert len(kept) == 3
    assert constants
    assert not freed & (kept | constants)
    for _ in range(2):
        outputs = run([np.ones(3, np.float32), np.ones(3, np.float32)], (), None, 0, None)
        np.testing.assert_array_equal(outputs[0], [2, 3, 4])
        np.testing.assert_array_equal(outputs[2], [2, 3, 4])
        np.testing.assert_array_equal(outputs[1], [0, -3, -8])


def test_layouts_are_bounded_and_bind_again():
    with gf.Graph() as g:
        x = gf.placeholder(("n", 2), name="x")
        y = gf.reshape(x, (2 * x.shape[0],)) + gf.dim_size(x, 0)
    run, program = executable([y], [x], g)
    for n in [*range(600), *range(0, 600, 7)]:
        (value,) = run([np.zeros((n, 2), np.float32)], (n,), None, 0, None)
        assert value.shape == (2 * n,)
        assert (value == n).all()
    assert len(run._layouts) == 256


# Errors.


def test_an_index_out_of_range_names_the_line_shapes_and_ranges():
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3), name="table")
        i = gf.placeholder((None,), gf.int64, name="rows")
        v = gf.Variable(0.0, name="v")
        picked = gf.take(x, i, axis=0)  # the line
        step = gf.update(v, gf.sum(picked))
    with gf.Session(g) as session:
        plan = session.compile([picked, step], feeds=[x, i])
        plan(np.ones((4, 3), np.float32), [3, 0])
        with pytest.raises(ExecutionError) as caught:
            plan(np.ones((4, 3), np.float32), [0, 7])
        assert session[v] == 6
    text = str(caught.value)
    assert "take" in text
    assert '"table"' in text
    assert "float32[4, 3] in [1, 1]" in text
    assert '"rows"' in text
    assert "int64[2] in [0, 7]" in text
    assert "picked = gf.take(x, i, axis=0)  # the line" in text
    assert caught.value.__cause__ is not None


def test_a_reshape_that_does_not_divide_in_an_iteration():
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        y = gf.while_loop(
            lambda c: c < 1,
            lambda c: c + gf.sum(gf.reshape(x, (-1, 3)) + 1),  # the line
            0.0,
        )
    with gf.Session(g) as session:
        assert session.run(y, {x: np.zeros(6, np.float32)}) == 6
        with pytest.raises(ExecutionError) as caught:
            session.run(y, {x: np.zeros(7, np.float32)})
    text = str(caught.value)
    assert text.startswith("reshape: 7 elements don't divide into shape [-1, 3]")
    assert "float32[7] in [0, 0]" in text
    assert "iteration 0 of the loop made at" in text
    assert "gf.reshape(x, (-1, 3)) + 1),  # the line" in text
    assert issubclass(ExecutionError, RuntimeError)


def test_the_error_of_an_operation_is_kept_as_the_cause():
    with gf.Graph() as g:
        x = gf.placeholder((2,), name="x")
        with gf.name_scope("engine"):
            y = emit_all(Fails(), x * 2)[0]
    with gf.Session(g) as session, pytest.raises(ExecutionError) as caught:
        session.run(y, {x: [1.0, 2.0]})
    text = str(caught.value)
    assert "test_fails failed: FloatingPointError: the unit is on fire" in text
    assert "  x  " in text
    assert "float32[2] in [2, 4]" in text
    assert isinstance(caught.value.__cause__, FloatingPointError)
    assert caught.value.at.layer == "engine"


def test_too_little_memory_is_no_fault_of_the_values(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "0")
    with gf.Graph() as g:
        x = gf.placeholder((2,), name="x")
        v = gf.Variable(np.zeros(2, np.float32), name="v")
        y = emit_all(Lacks(), x)[0]
        step = gf.update(v, v + y)
    with gf.Session(g) as session:
        with pytest.raises(gf.MemoryLimitError, match="than there is: no room") as caught:
            session.run([y, step], {x: [1.0, 2.0]})
        assert caught.value.fix.startswith("feed less at once")
        np.testing.assert_array_equal(session[v], [0, 0])


def test_a_functions_own_memory_error_names_the_function(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "0")

    def load(array):
        raise MemoryError("the queue is full")

    with gf.Graph() as g:
        x = gf.placeholder((2,), name="x")
        y = gf.host_call(load, ((2,), "float32"), x)
    with gf.Session(g) as session, pytest.raises(ExecutionError) as caught:
        session.run(y, {x: [1.0, 2.0]})
    assert not isinstance(caught.value, MemoryError)
    assert caught.value.summary.startswith("host_call of ")
    assert caught.value.summary.endswith(" failed: MemoryError: the queue is full")


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.zeros((0, 3), np.float32), "float32[0, 3]"),
        (np.array([True]), "bool[1]"),
        (np.array(3, np.int8), "int8[] in [3, 3]"),
        (np.array([1, np.nan], np.float16), "float16[2] in [nan, nan]"),
        (np.array([1j]), "complex128[1]"),
    ],
)
def test_any_array_can_be_described_in_an_error(array, text):
    with gf.Graph() as g:
        x = gf.placeholder(array.shape, str(array.dtype), name="x")
        y = emit_all(Fails(), x)[0]
    with gf.Session(g) as session, pytest.raises(ExecutionError) as caught:
        session.run(y, {x: array})
    lines = str(caught.value).splitlines()
    assert f'"x"  {text}  placeholder' in " ".join(lines[1].split("   "))


def test_numpy_errors_settings_and_warnings_are_left_alone():
    with gf.Graph() as g:
        x = gf.placeholder((2,), name="x")
        y = gf.log(x) / x
    before = np.geterr()
    with gf.Session(g) as session, np.errstate(all="raise"):
        value = session.run(y, {x: [0.0, 1.0]})
        assert np.geterr()["divide"] == "raise"
    assert np.geterr() == before
    np.testing.assert_array_equal(value, [-np.inf, 0])


# check_finite.


def unstable():
    with gf.Graph() as g:
        x = gf.placeholder((2,), name="x")
        v = gf.Variable(np.ones(2, np.float32), name="v")
        noise = gf.random.uniform((2,), name="noise")
        bad = gf.log(x * v)  # the culprit
        loss = gf.sum(bad) + gf.sum(noise)
        (slope,) = gf.grad(gf.sum(gf.sqrt(x * v)), [v])
    return g, x, v, bad, loss, slope


def test_the_node_that_makes_a_nan_is_named_and_nothing_changes():
    g, x, v, bad, loss, slope = unstable()
    with g:
        step = gf.update(v, v - 0.1 * loss)
    with gf.Session(g, check_finite=True) as session:
        session.run([loss, step], {x: [1.0, 2.0]})
        before = session.state_dict()
        for fetches in ([loss, step], step, loss):
            with pytest.raises(ExecutionError) as caught:
                session.run(fetches, {x: [1.0, -2.0]})
            text = str(caught.value)
            assert "log gives nan at index (1,)" in text
            assert "bad = gf.log(x * v)  # the culprit" in text
            assert "float32[2] in [" in text
        after = session.state_dict()
        for name in before:
            np.testing.assert_array_equal(before[name], after[name])
        session.run([loss, step], {x: [1.0, 2.0]})
    with gf.Session(g) as session:
        assert np.isnan(session.run([loss, step], {x: [1.0, -2.0]})[0])


def test_a_gradient_node_names_the_forward_line():
    g, x, v, bad, loss, slope = unstable()
    with gf.Session(g, check_finite=True) as session, pytest.raises(ExecutionError) as caught:
        session.run(slope, {x: [0.0, 1.0]})
    text = str(caught.value)
    assert "it is the gradient of" in text
    assert "gf.sqrt(x * v)" in text


def test_an_infinity_is_named_where_it_first_appears():
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
        big = gf.exp(x)
        y = big * 2
    with gf.Session(g, check_finite=True) as session:
        with pytest.raises(ExecutionError, match=r"exp gives inf at index \(2,\)"):
            session.run(y, {x: [0, 1, 1000]})


def test_a_nan_is_named_before_the_infinity_that_it_comes_from():
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
        big = gf.exp(x)
        ratio = big / (big + 1)
    with gf.Session(g, check_finite=True) as session, pytest.raises(ExecutionError) as caught:
        session.run(ratio, {x: [0, 1, 1000]})
    text = str(caught.value)
    assert "divide gives nan at index (2,)" in text
    assert "the first infinity: exp gives inf at index (2,)" in text


def test_an_infinity_that_is_meant_is_not_blamed():
    with gf.Graph() as g:
        mask = gf.placeholder((2,), name="mask")
        x = gf.placeholder((2,), name="x")
        y = gf.sum(gf.exp(x + mask))
        z = gf.sqrt(x)
    with gf.Session(g, check_finite=True) as session:
        assert session.run(y, {x: [0, 1], mask: [0, -np.inf]}) == 1
        with pytest.raises(ExecutionError, match=r"sqrt gives nan at index \(0,\)"):
            session.run([y, z], {x: [-1, 1], mask: [0, -np.inf]})


def test_an_infinity_that_is_fed_is_named_beside_what_it_makes():
    with gf.Graph() as g:
        x = gf.placeholder((2,), name="x")
        y = x * 2
    with gf.Session(g, check_finite=True) as session:
        with pytest.raises(ExecutionError, match=r"multiply gives inf at index \(1,\)") as caught:
            session.run(y, {x: [1, np.inf]})
        assert caught.value.why == '"x" holds inf at index (1,) before the run'
        with pytest.raises(ExecutionError) as caught:
            session.run(y, {x: [1, 3e38]})
        assert not caught.value.why


def test_a_nan_that_is_fed_or_kept_is_named_as_such():
    g, x, v, bad, loss, slope = unstable()
    with gf.Session(g, check_finite=True) as session:
        with pytest.raises(ExecutionError, match=r'"x" holds nan at index \(0,\) before the run'):
            session.run(loss, {x: [np.nan, 1]})
        session[v] = [1, np.nan]
        with pytest.raises(ExecutionError, match=r'"v" holds nan at index \(1,\) before the run'):
            session.run(loss, {x: [1, 1]})


def test_integers_bools_and_low_precision_are_looked_at_rightly():
    with gf.Graph() as g:
        x = gf.placeholder((2,), gf.bfloat16, name="x")
        values = [x / x, gf.astype(x, gf.int32), x > 0, gf.astype(x, gf.complex64)]
    with gf.Session(g, check_finite=True) as session:
        session.run(values, {x: [1, 2]})
        with pytest.raises(ExecutionError, match=r"divide gives nan at index \(0,\)"):
            session.run(values, {x: [0, 2]})
