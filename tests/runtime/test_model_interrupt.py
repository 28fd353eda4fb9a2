"""Ctrl-C in the middle of making one graph of two: nothing is lost, and it is finished later."""

from __future__ import annotations

import gc
import sys
from types import FrameType
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir import model_graph


def struck_at(number: int, job: Any) -> bool:
    """Call a function, and raise KeyboardInterrupt at a line of the moves; say whether it came."""
    seen = [0]
    files = (model_graph.__file__, sys.modules["graphfw.runtime.model_sessions"].__file__)

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        del argument
        if frame.f_code.co_filename not in files:
            return trace if event == "call" else None
        if event == "line":
            seen[0] += 1
            if seen[0] == number:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    # The collector would run lines of the same files for functions of other tests, from which
    # Python lets no exception out.
    gc.collect()
    gc.disable()
    sys.settrace(trace)
    try:
        job()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
        gc.enable()
    return False


def trained(model: gf.nn.Module, optimizer: gf.optim.Optimizer) -> gf.Function:
    @gf.function
    def step(x: gf.Tensor) -> gf.Tensor:
        loss = gf.mean(model(x) ** 2)
        optimizer.minimize(loss)
        return loss

    return step


@pytest.mark.exhaustive(every=20)
@pytest.mark.parametrize("number", range(1, 900, 4))
def test_a_join_that_is_cut_off_is_finished(number: int):
    x = np.ones((2, 3), np.float32)
    gf.set_seed(0)
    a, b = gf.nn.Linear(3, 2), gf.nn.Linear(3, 2)
    steps = [trained(a, gf.optim.Adam(0.1)), trained(b, gf.optim.Adam(0.1))]
    for step in steps:
        step(x), step(x)
    before = {id(m): (m(x), m.weight.numpy(), m.bias.numpy()) for m in (a, b)}
    both = gf.function(lambda x: a(x) + b(x))
    came = struck_at(number, lambda: both(x))
    for model in (a, b):
        y, weight, bias = before[id(model)]
        np.testing.assert_array_equal(model.weight.numpy(), weight)
        np.testing.assert_array_equal(model.bias.numpy(), bias)
        np.testing.assert_array_equal(model(x), y)
    np.testing.assert_allclose(both(x), a(x) + b(x), rtol=1e-6)
    assert a.session is b.session
    names = [variable.name for variable in a.weight.graph.variables]
    assert len(names) == len(set(names))
    assert len(a.weight.graph.nodes) == len(set(a.weight.graph.nodes))
    # The optimisers go on as if nothing had been.
    gf.set_seed(0)
    alone = gf.nn.Linear(3, 2)
    again = trained(alone, gf.optim.Adam(0.1))
    again(x), again(x)
    np.testing.assert_array_equal(steps[0](x), again(x))
    np.testing.assert_array_equal(a.weight.numpy(), alone.weight.numpy())
    assert came or number > 500
