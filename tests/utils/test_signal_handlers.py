"""Errors that handlers of signals raise come out as they are, whatever they interrupt."""

import functools
import signal

import numpy as np
import pytest

import graphfw as gf
from graphfw.extend import NONDIFF, Pass
from graphfw.utils.signal_handlers import is_of_handler

SIGNAL = signal.SIGTERM


class OwnError(Exception):
    pass


def raises(number, frame):
    raise OwnError


def takes_all(*arguments):
    raises(*arguments)


def restores(number, frame):
    signal.signal(number, signal.SIG_DFL)
    raises(number, frame)


class Handler:
    def method(self, number, frame):
        raise OwnError

    def __call__(self, number, frame):
        raise OwnError


HANDLERS = [raises, takes_all, restores, Handler().method, Handler(), functools.partial(raises)]


@pytest.fixture(params=HANDLERS, ids=range(len(HANDLERS)))
def interrupt(request):
    """A function that Python interrupts by a handler that raises."""
    before = signal.signal(SIGNAL, request.param)
    yield lambda: signal.raise_signal(SIGNAL)
    signal.signal(SIGNAL, before)


def test_is_of_handler(interrupt):
    with pytest.raises(OwnError) as caught:
        interrupt()
    assert is_of_handler(caught.value)


def test_functions_that_are_called_are_no_handlers():
    with pytest.raises(OwnError) as caught:
        raises(1, None)
    assert not is_of_handler(caught.value)
    assert not is_of_handler(OwnError())


@gf.op("tests.interrupted")
class Interrupted(gf.Op):
    """x, while a signal comes."""

    vjp = NONDIFF

    def shape(self, x):
        return x

    def dtype(self, x):
        return x

    def eval(self, xp, x):
        signal.raise_signal(SIGNAL)
        return x


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("is_in_loop", [False, True])
def test_runs(interrupt, debug, is_in_loop):
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
        body = lambda _, c: gf.apply(Interrupted(), c)  # noqa: E731  a name for one of two bodies
        y = gf.fori_loop(0, 3, body, x) if is_in_loop else gf.apply(Interrupted(), x)
    with gf.Session(g, debug=debug) as session, pytest.raises(OwnError):
        session.run(y, {x: np.zeros(3, np.float32)})


def test_outside_graphs(interrupt):
    with pytest.raises(OwnError):
        np.asarray(gf.apply(Interrupted(), gf.ones(3)))


def test_passes(interrupt):
    class InterruptedPass(Pass):
        name = "interrupted"

        def run(self, graph, hits):
            interrupt()
            return graph

    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
        y = gf.exp(x)
    with gf.Session(g, passes=[InterruptedPass()]) as session, pytest.raises(OwnError):
        session.run(y, {x: np.zeros(3, np.float32)})


def test_functions_are_not_traced_again(interrupt):
    calls = []

    @gf.function
    def f(x):
        calls.append(x.shape)
        interrupt()
        return x

    with pytest.raises(OwnError):
        f(np.zeros(3, np.float32))
    assert len(calls) == 1
