"""Checks whose outcome is read later: the host runs ahead, and no failed run changes a variable."""

import gc
import threading

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ExecutionError
from graphfw.runtime import unsettled
from graphfw.runtime.cupy_executor.deferred_check import DeferredOutcome
from tests.strict_xp import plain_array, strict_array
from tests.support.fake_streams import FakeEvent, FakeStream
from tests.support.gpu_programs import on_cpu, trained

GOOD = [np.array([[0, 1, 2], [3, 10, 4]]), np.array([[5, 5, 1], [2, 0, 7]])]
BAD = np.array([[0, 1, 2], [3, 11, 4]])


@pytest.fixture
def waits(fake, monkeypatch):
    """Whoever waits for the GPU, which is not done until then."""
    fake.streams.is_done = False
    found = []
    for kind in (FakeStream, FakeEvent):
        synchronize = kind.synchronize
        monkeypatch.setattr(
            kind,
            "synchronize",
            lambda self, wait=synchronize: found.append(self) or wait(self),
        )
    return found


def contents(session):
    return {v.name: plain_array(a) for v, a in session._state.snapshot.values.items()}


def test_the_host_runs_ahead_in_training(session, waits):
    g, words, loss, train = trained()
    feeds = [{words: GOOD[n % 2]} for n in range(6)]
    wanted, state = on_cpu(g, [loss, train], feeds)
    gpu = session(g)
    plan = gpu.compile([loss, train], [words])
    plan(GOOD[0])
    waits.clear()
    found = [plan(feed[words])[0] for feed in feeds[1:]]
    assert not waits
    for one, ones in zip(found, wanted[1:], strict=True):
        np.testing.assert_allclose(plain_array(one), ones[0], rtol=1e-4)
    for name, array in gpu.state_dict().items():
        np.testing.assert_allclose(array, state[name], rtol=1e-3, atol=1e-5, err_msg=name)


def test_the_host_runs_ahead_in_reading(session, waits):
    g, words, loss, _ = trained(dropout=0.0)
    plan = session(g).compile(loss, [words])
    plan(GOOD[0])
    waits.clear()
    for number in range(2 * unsettled.AHEAD):
        plan(GOOD[number % 2])
    assert len(waits) == unsettled.AHEAD, "and not without bounds"


def test_a_failed_run_and_those_after_it_change_nothing(session, waits):
    g, words, loss, train = trained()
    feeds = [{words: GOOD[n % 2]} for n in range(5)]
    wanted, state = on_cpu(g, [loss, train], feeds)
    gpu = session(g)
    for feed in feeds[:3]:
        gpu.run([loss, train], feed)
    before = {name: array.copy() for name, array in contents(gpu).items()}
    gpu.run([loss, train], {words: BAD})
    gpu.run([loss, train], {words: GOOD[0]})
    gpu.run(train, {words: GOOD[1][:1]})
    for name, array in contents(gpu).items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)
    with pytest.raises(ExecutionError, match="index 11 is out of range") as caught:
        gpu.wait()
    assert "a run before failed, and neither it nor a later one has changed" in str(caught.value)
    gpu.wait()
    # It goes on as if these runs had never been: with the same random numbers, too.
    found = [gpu.run([loss, train], feed, host=True)[0] for feed in feeds[3:]]
    np.testing.assert_allclose(found, [ones[0] for ones in wanted[3:]], rtol=1e-4)
    for name, array in gpu.state_dict().items():
        np.testing.assert_allclose(array, state[name], rtol=1e-3, atol=1e-5, err_msg=name)


def test_the_next_run_raises_what_is_known_by_then(fake, session):
    g, words, loss, train = trained()
    gpu = session(g)
    gpu.run(train, {words: GOOD[0]})
    gpu.run(train, {words: BAD})
    fake.cuda.get_current_stream().synchronize()
    step = gpu._state.snapshot.step
    with pytest.raises(ExecutionError, match="index 11 is out of range"):
        gpu.run(train, {words: GOOD[0]})
    assert gpu._state.snapshot.step == step - 1
    gpu.run(train, {words: GOOD[0]})
    gpu.wait()


@pytest.mark.parametrize("update", [False, True])
def test_a_run_whose_results_come_home_raises_its_own_error(session, waits, update):
    g, words, loss, train = trained()
    gpu = session(g)
    for _ in range(3):
        with pytest.raises(ExecutionError, match="index 11 is out of range"):
            gpu.run([loss, *[train] * update], {words: BAD}, host=True)
        waits.clear()
        gpu.run([loss, *[train] * update], {words: GOOD[0]}, host=True)
        assert len(waits) == 2, "for what it fetches, and for the flag, which is there then"


@pytest.mark.parametrize(
    "use",
    [
        lambda gpu: gpu.state_dict(),
        lambda gpu: gpu["table"],
        lambda gpu: gpu.__setitem__("scale", np.ones(8, np.float32)),
        lambda gpu: gpu.load_state_dict({}),
        lambda gpu: gpu.compile(gpu.graph.find("scale"))(host=True),
        lambda gpu: gpu.close(),
    ],
    ids=["state_dict", "getitem", "setitem", "load", "host", "close"],
)
def test_who_looks_at_variables_learns_of_it(session, waits, use):
    g, words, _, train = trained()
    gpu = session(g)
    gpu.run(train, {words: GOOD[0]})
    gpu.run(train, {words: BAD})
    with pytest.raises(ExecutionError, match="index 11 is out of range"):
        use(gpu)


def test_results_know_of_their_run(session, waits):
    g, words, loss, _ = trained(dropout=0.0)
    gpu = session(g)
    right, wrong = [gpu.run(loss, {words: array}) for array in (GOOD[0], BAD)]
    with pytest.raises(ExecutionError, match="index 11 is out of range"):
        gf.to_numpy({"a": wrong})
    assert np.isfinite(gf.to_numpy(right))
    gpu.wait()


def test_the_caller_may_change_what_it_has_fed(session, waits):
    g, words, loss, _ = trained(dropout=0.0)
    gpu = session(g)
    array = BAD.copy()
    gpu.run(loss, {words: array})
    array[:] = 0
    with pytest.raises(ExecutionError, match="index 11 is out of range"):
        gpu.wait()


@pytest.mark.parametrize("gone", [False, True])
def test_what_lay_on_the_gpu_may_have_changed(session, waits, gone):
    g, words, loss, train = trained(dropout=0.0)
    gpu = session(g)
    gpu.run(train, {words: GOOD[0]})
    array = strict_array(BAD.copy())
    gpu.run(train, {words: array})
    plain_array(array)[:] = 0
    if gone:
        del array
    with pytest.raises(ExecutionError, match="was out of range in a run before"):
        gpu.wait()
    gpu.run(train, {words: GOOD[0]}, host=True)


def test_a_program_without_checks_changes_nothing_either(session, waits):
    g, words, _, train = trained()
    with g:
        scale = g.find("scale")
        double = gf.update(scale, scale * 2)
    gpu = session(g)
    gpu.run([train], {words: GOOD[0]})
    gpu.run(double)
    before = contents(gpu)["scale"].copy()
    gpu.run(train, {words: BAD})
    gpu.run(double)
    with pytest.raises(ExecutionError, match="index 11 is out of range"):
        gpu.wait()
    np.testing.assert_array_equal(gpu["scale"], before)
    gpu.run(double)
    np.testing.assert_array_equal(gpu["scale"], 2 * before)


def test_updates_wait_for_what_was_read_before(session, waits):
    g, words, loss, train = trained(dropout=0.0)
    gpu = session(g)
    gpu.run(train, {words: GOOD[0]})
    before = gpu["scale"]
    gpu.run(loss, {words: BAD})
    with pytest.raises(ExecutionError, match="index 11 is out of range"):
        gpu.run(train, {words: GOOD[0]})
    np.testing.assert_array_equal(gpu["scale"], before)


def in_thread(work):
    """Do something in a thread of its own; return it, and what it raises."""
    errors = []

    def run():
        try:
            work()
        except ExecutionError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, errors


def test_errors_come_to_the_thread_that_made_the_run(session, waits):
    g, words, loss, train = trained(dropout=0.0)
    gpu = session(g)
    gpu.run(train, {words: GOOD[0]})
    failed, go_on = threading.Event(), threading.Event()

    def fails():
        gpu.run(train, {words: BAD})
        failed.set()
        go_on.wait()
        gpu.run(loss, {words: GOOD[0]}, host=True)

    thread, errors = in_thread(fails)
    failed.wait()
    before = gpu["scale"]
    gpu.run([loss, train], {words: GOOD[0]}, host=True)
    assert not np.array_equal(gpu["scale"], before), "it happens: the other run failed, not this"
    go_on.set()
    thread.join()
    assert ["index 11 is out of range" in str(error) for error in errors] == [True]
    gpu.wait()


def test_errors_of_threads_that_have_ended_come_to_others(session, waits):
    g, words, loss, _ = trained(dropout=0.0)
    gpu = session(g)
    thread, _ = in_thread(lambda: gpu.run(loss, {words: BAD}))
    thread.join()
    with pytest.raises(ExecutionError, match="index 11 is out of range"):
        gpu.wait()


def test_what_python_is_shown_is_right(session, waits, capfd):
    g, words, loss, train = trained(dropout=0.0)
    gpu = session(g)
    plan = gpu.compile(train, [words])  # of which the print is no part
    plan(GOOD[0])
    with g:
        shown = gf.print("shown: {}", gf.sum(g.find("scale") * 3.0))
    plan(BAD)
    with pytest.raises(ExecutionError, match="index 11 is out of range"):
        gpu.run(shown)
    assert "shown" not in "".join(capfd.readouterr())
    gpu.run(shown)
    assert "shown" in "".join(capfd.readouterr())


def test_contents_that_are_looked_at_are_waited_for(session, waits):
    g, words, _, train = trained()
    gpu = session(g, check_finite=True)
    with pytest.raises(ExecutionError, match="index 11 is out of range"):
        gpu.run(train, {words: BAD})


@pytest.mark.parametrize("runs", [0, 3])
def test_without_cuda_graphs_updates_are_waited_for(session, waits, monkeypatch, runs):
    g, words, _, train = trained()
    gpu = session(g)
    for _ in range(runs):
        gpu.run(train, {words: GOOD[0]})
    monkeypatch.setenv("GRAPHFW_CUDA_GRAPHS", "0")
    with pytest.raises(ExecutionError, match="index 11 is out of range"):
        gpu.run(train, {words: BAD})
    gpu.run(train, {words: GOOD[0]})


def test_leaving_the_session_raises_it(fake, waits):
    g, words, loss, _ = trained(dropout=0.0)
    with pytest.raises(ExecutionError, match="index 11 is out of range"):
        with gf.Session(g, executor="cupy") as gpu:
            gpu.run(loss, {words: BAD})
    with pytest.raises(ZeroDivisionError) as caught:
        with gf.Session(g, executor="cupy") as gpu:
            gpu.run(loss, {words: BAD})
            raise ZeroDivisionError
    assert "a run before it has failed: take failed" in caught.value.__notes__[0]


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("fed", [GOOD[0], BAD], ids=["good", "bad"])
def test_a_session_that_is_dropped_warns_of_it(fake, waits, fed, is_known, recwarn):
    g, words, loss, _ = trained(dropout=0.0)
    gpu = gf.Session(g, executor="cupy")
    gpu.run(loss, {words: fed})
    if is_known:
        fake.cuda.get_current_stream().synchronize()
    del gpu
    gc.collect()
    warned = [str(w.message) for w in recwarn if w.category is RuntimeWarning]
    assert len(warned) == (fed is BAD)
    assert all("session.wait() at the end" in text for text in warned)


def test_a_closed_session_has_nothing_to_warn_of(fake, waits, recwarn):
    g, words, loss, _ = trained(dropout=0.0)
    gpu = gf.Session(g, executor="cupy")
    gpu.run(loss, {words: BAD})
    with pytest.raises(ExecutionError):
        gpu.close()
    del gpu
    gc.collect()
    assert not recwarn.list


def test_python_warns_as_it_ends(session, waits):
    g, words, loss, _ = trained(dropout=0.0)
    gpu = session(g)
    gpu.run(loss, {words: BAD})
    with pytest.warns(RuntimeWarning, match="a run has failed, and its session raised no error"):
        unsettled._tell_at_exit()
    gpu.wait()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_interrupt_keeps_no_later_run_from_writing(session, waits, monkeypatch, moment):
    g, words, _, train = trained(dropout=0.0)
    gpu = session(g)
    gpu.run(train, {words: GOOD[0]})
    before = gpu["scale"]
    begin = DeferredOutcome.begin

    def interrupted(late, function, flags):
        if moment == "after":
            begin(late, function, flags)
            late._coming = None
        raise KeyboardInterrupt

    monkeypatch.setattr(DeferredOutcome, "begin", interrupted)
    with pytest.raises(KeyboardInterrupt):
        gpu.run(train, {words: BAD})
    monkeypatch.setattr(DeferredOutcome, "begin", begin)
    if moment == "after":
        with pytest.raises(ExecutionError, match="index 11 is out of range"):
            gpu.wait()
    np.testing.assert_array_equal(gpu["scale"], before)
    gpu.run(train, {words: GOOD[0]})
    assert not np.array_equal(gpu["scale"], before)


def test_several_streams(fake, session, waits):
    g, words, loss, train = trained(dropout=0.0)
    gpu = session(g)
    one, other = [fake.cuda.Stream(non_blocking=True) for _ in range(2)]
    with one:
        gpu.run(train, {words: GOOD[0]})
        before = gpu["scale"]
        gpu.run(train, {words: BAD})
    with other:
        gpu.run(train, {words: GOOD[0]})
        with pytest.raises(ExecutionError, match="index 11 is out of range"):
            gpu.wait()
        np.testing.assert_array_equal(gpu["scale"], before)
