"""Ctrl-C during a fork: what waits for it goes on, in the parent and in the child."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def printed(program, *arguments):
    """Run a program in a process of its own, which an interrupt may end; return what it prints."""
    command = [sys.executable, "-W", "ignore", "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


CUT = """if True:
    import os, sys, threading
    from graphfw.utils import forks

    class Owner:
        def __init__(self):
            self.held = set()

        def keep(self, holder):
            self.held.add(holder)

        def unpin(self, holder):
            self.held.discard(holder)

        def is_written(self):
            return False

        def after_fork(self):
            pass

    class Timer:  # no interrupt comes again, so that each fork has one
        def __init__(self, *arguments):
            pass

        def start(self):
            came.append(None)

    threading.Timer = Timer
    LONG = ("_locks_of_properties", "<setcomp>", "<listcomp>")  # and changes nothing
    came, lost = [], []
    sys.unraisablehook = lost.append
    owner, library = Owner(), threading.RLock()
    mine, anothers = forks.renewed_lock(), forks.renewed_lock()
    uncuts, begun, rest = [], threading.Event(), threading.Event()
    forks.register(owner)
    forks.last_waited_for(library)

    def holds():
        with anothers:
            uncuts.append(forks.uncut())
            begun.set()
            rest.wait()

    def are_free(*locks):
        found = []
        def tries():
            found.extend(lock.acquire(blocking=False) for lock in locks)
            for lock, taken in zip(locks, found):
                if taken:
                    lock.release()
        thread = threading.Thread(target=tries)
        thread.start()
        thread.join()
        return found

    def is_well():
        ended = all(fork.is_ended for fork in forks._mine.forks)
        kept = are_free(mine, forks.uncut()) == [False] * 2
        given_back = not owner.held and are_free(library, forks._forking, *uncuts) == [True] * 3
        return ended and kept and given_back

    def fork(number, who):
        left, told = [number], os.getpid()

        def trace(frame, event, argument):
            if frame.f_code.co_filename != forks.__file__ or frame.f_code.co_name in LONG:
                return None
            frame.f_trace_opcodes = True
            if event in ("call", "line", "opcode") and (who == "parent" or os.getpid() != told):
                left[0] -= 1
                if not left[0]:
                    raise KeyboardInterrupt
            return trace

        came.clear()
        lost.clear()
        sys.settrace(trace)
        try:
            child = os.fork()
        finally:
            sys.settrace(None)
        return child, left[0] <= 0

    threading.Thread(target=holds, daemon=True).start()
    begun.wait()
    who, number, bad, step = sys.argv[1], 0, [], int(sys.argv[2])
    was_cut = True
    while was_cut:
        number += step
        with mine, forks.uncut():
            child, was_cut = fork(number, who)
            well = is_well()
            if (child == 0) == (who == "child"):  # in that process
                well = well and len(came) + len(lost) == was_cut
            if child == 0:
                well = well and are_free(anothers) == [True]
                os._exit(int(not well) + 2 * was_cut)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        was_cut = was_cut if who == "parent" else bool(status & 2)
        if not well or status & 1:
            bad.append((number, well, status))
    print(bad, forks._mine.forks, flush=True)  # the last fork was not cut
    os._exit(0)
"""

COMPILES = """if True:
    import os, sys, threading, time, _thread

    strikes = {sys.argv[1]: _thread.interrupt_main}
    if sys.argv[1] != "before":  # those are called in reverse order
        os.register_at_fork(**strikes)

    import graphfw as gf
    from graphfw.utils import forks
    from graphfw.runtime.numpy_executor import engine

    def compiles():
        with gf.Graph() as g:
            x = gf.placeholder((), name="x")
            y = gf.exp(x) * (time.time() % 100.0 + os.getpid())
        with gf.Session(g) as session:
            session.run(y, {x: 1.0})
        done.append(None)

    def works():
        with engine._lock:
            begun.set()
            rest.wait()

    def is_done(job):
        thread = threading.Thread(target=job, daemon=True)
        thread.start()
        thread.join(60)
        return bool(done)

    done, begun, rest = [], threading.Event(), threading.Event()
    compiles()
    done.clear()
    threading.Thread(target=works, daemon=True).start()
    begun.wait()
    if sys.argv[1] == "before":
        os.register_at_fork(**strikes)
    came = False
    try:
        if os.fork() == 0:  # whose result an interrupt may come before
            os._exit(0 if is_done(compiles) else 1)
        time.sleep(float(sys.argv[2]))
    except KeyboardInterrupt:
        came = True
    rest.set()
    print(os.wait()[1], is_done(compiles), came, flush=True)
    os._exit(0)
"""

WAITS = """if True:
    import os, signal, threading, time
    from graphfw.utils import forks

    steps = []

    def works():
        with forks.uncut():
            steps.append("first")
            while forks._forking.acquire(blocking=False):  # until the fork waits
                forks._forking.release()
                time.sleep(0.001)
            for _ in range(3):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.05)
            steps.append("second")

    thread = threading.Thread(target=works)
    came = 0
    try:
        thread.start()
        while not steps:
            time.sleep(0.001)
        if os.fork() == 0:  # whose result an interrupt may come before
            time.sleep(0.1)
            os._exit(steps != ["first", "second"])
        time.sleep(60)
    except KeyboardInterrupt:
        came += 1
    print(os.wait()[1], came)
"""


@pytest.mark.parametrize(
    ("who", "step"),
    [
        ("parent", 9),
        ("child", 17),
        pytest.param("parent", 1, marks=pytest.mark.slow),
        pytest.param("child", 1, marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_an_interrupt_between_any_two_bytecodes(who, step):
    """Everything is given back, once, and Ctrl-C comes again, or Python tells of it."""
    assert printed(CUT, who, str(step)) == "[] []\n"


@pytest.mark.parametrize(
    ("moment", "comes"), [("before", False), ("after_in_parent", True), ("after_in_child", False)]
)
@pytest.mark.slow
def test_compiling_goes_on_after_an_interrupt(moment, comes):
    """One that comes while the process is copied is the parent's, after the fork."""
    seconds = 60 if comes else 1  # to wait for it
    assert printed(COMPILES, moment, str(seconds)) == f"0 True {comes}\n"


@pytest.mark.slow
@pytest.mark.smoke
def test_interrupts_while_a_fork_waits_come_once_after_it():
    assert printed(WAITS) == "0 1\n"
