"""`print`, `check`, `breakpoint`: when they happen, what they say, what they leave alone."""

from __future__ import annotations

import bdb
import sys
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, ConcreteValueError, DTypeError, ExecutionError


@pytest.fixture(params=["0", "1"], ids=["reference", "native"], autouse=True)
def jit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHFW_JIT", request.param)


class Lines:
    """The lines that runs of a graph print."""

    def __init__(self, graph: gf.Graph, capsys: pytest.CaptureFixture[str]) -> None:
        self.session = gf.Session(graph)
        self.capsys = capsys

    def __call__(self, fetches: Any, feeds: Any = None) -> list[str]:
        self.capsys.readouterr()
        self.session.run(fetches, feeds)
        return self.capsys.readouterr().out.splitlines()


# When.


def test_a_print_needs_nobody_to_use_it(capsys):
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        h = x * 2
        gf.print("norm {:.1f}", gf.sqrt(gf.sum(h * h)))
        y = h + 1
        z = x - 1
    run = Lines(g, capsys)
    assert run(y, {x: [1.5, 2.0]}) == ["norm 5.0"]
    assert run(y, {x: [0.0]}) == ["norm 0.0"]
    assert run(h, {x: [0.0]}) == ["norm 0.0"]
    assert run(z, {x: [0.0]}) == []  # does not compute h


def test_a_gradient_counts_as_computing_what_it_is_of(capsys):
    with gf.Graph() as g:
        x = gf.placeholder((2,), name="x")
        w = gf.Variable(3.0, name="w")
        loss = gf.sum(x * w)  # its gradient does not need it
        twice = loss * 2
        gf.print("loss {}", loss)
        slope = gf.grad(loss, w)
        gf.print("slope {}", slope)
        step = gf.update(w, w - slope)
    run = Lines(g, capsys)
    assert sorted(run(step, {x: [1.0, 2.0]})) == ["loss 9.0", "slope 3.0"]
    assert run(twice, {x: [1.0, 2.0]}) == ["loss 0.0"]  # no gradient is computed for a print
    assert run(w) == []


def test_a_print_of_what_is_not_fed_does_not_happen(capsys):
    with gf.Graph() as g:
        x, t = gf.placeholder((), name="x"), gf.placeholder((), name="t")
        y = x * 2
        gf.print("error {}", y - t)
    run = Lines(g, capsys)
    assert run(y, {x: 1.0}) == []
    assert run(y, {x: 1.0, t: 0.5}) == ["error 1.5"]


def test_equal_prints_are_two_and_constants_are_printed_in_runs(capsys):
    with gf.Graph() as g:
        x = gf.placeholder((), name="x")
        for _ in range(2):
            gf.print("once {}", gf.asarray(7))
        y = x + 1
    assert capsys.readouterr().out == ""
    run = Lines(g, capsys)
    for _ in range(2):
        assert run(y, {x: 1.0}) == ["once 7", "once 7"]


def test_verification_prints_nothing(capsys):
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
        gf.print("x {}", x)
        y = gf.check(x > 0, "positive", x) + 1
    with gf.Session(g, verify="values") as session:
        session.run(y, {x: [1.0, 2.0, 3.0]})
    assert capsys.readouterr().out == "x [1. 2. 3.]\n"


def test_outside_of_a_graph_it_happens_at_once(capsys):
    x = gf.asarray([1.0, 2.0])
    assert gf.print("x {}", x) is x
    gf.vmap(lambda v: (gf.print("v {}", v), v)[1])(x)
    assert capsys.readouterr().out == "x [1. 2.]\nv [1. 2.]\n"
    assert gf.check(x > 0, "no", x) is x
    with pytest.raises(ExecutionError, match=r"no \(wrong at 1 of 2 elements, first at \[1\]\)"):
        gf.check(x < 2, "no")
    with gf.Graph():
        y = gf.placeholder((2,))
    with pytest.raises(ConcreteValueError, match=r"gf\.print wants a value"):
        gf.print(y)


def test_functions_print_at_each_call(capsys):
    @gf.function
    def f(x):
        gf.print("twice {}", gf.sum(x) * 2)
        gf.scan(lambda c, e: (c, (gf.print("e {}", e), e)[1]), 0.0, x)
        return x + 1

    for _ in range(2):
        f(np.array([1.0, 2.0]))
        assert sorted(capsys.readouterr().out.splitlines()) == ["e 1.0", "e 2.0", "twice 6.0"]


# In bodies.


def test_scan_prints_each_trip_once_also_with_its_gradient(capsys):
    def body(c, e):
        gf.print("c {} e {}", c, e)
        return c * e, c

    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
        k = gf.placeholder((), name="k")
        last, _ = gf.scan(body, k * 1, x)
        slope = gf.grad(last, x)
        other = gf.sum(x)
    run = Lines(g, capsys)
    feeds = {x: [2.0, 3.0, 4.0], k: 1.0}
    lines = ["c 1.0 e 2.0", "c 2.0 e 3.0", "c 6.0 e 4.0"]
    for fetches in (last, slope, [last, slope]):
        assert run(fetches, feeds) == lines
    assert run(other, feeds) == []
    np.testing.assert_array_equal(run.session.run(slope, feeds), [12, 8, 6])


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", [{"unroll": 2}, {"checkpoint_every": 2}, {"reverse": True}])
def test_scan_in_blocks_prints_each_trip(capsys, options):
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
        last, _ = gf.scan(lambda c, e: ((gf.print("e {}", e), c * e)[1], None), 1.0, x, **options)
        slope = gf.grad(last, x)
    run = Lines(g, capsys)
    for fetches in (last, slope):
        assert sorted(run(fetches, {x: [2.0, 3.0, 4.0]})) == ["e 2.0", "e 3.0", "e 4.0"]
    np.testing.assert_array_equal(run.session.run(slope, {x: [2.0, 3.0, 4.0]}), [12, 8, 6])


def test_branches_loops_and_checkpoints_print(capsys):
    def shown(name, value):
        gf.print(name + " {}", value)
        return value

    with gf.Graph() as g:
        x = gf.placeholder((), name="x")
        y = x * 1
        branch = gf.cond(y > 0, lambda: shown("positive", y), lambda: -y)
        iterations = gf.while_loop(lambda v: shown("ask", v) < 3, lambda v: shown("go", v) + 1, y)
        again = gf.checkpoint(lambda v: shown("in", v) ** 2)(y)
        slope = gf.grad(again, x)
    run = Lines(g, capsys)
    assert run(branch, {x: 2.0}) == ["positive 2.0"]
    assert run(branch, {x: -2.0}) == []
    assert run(iterations, {x: 1.0}) == ["ask 1.0", "go 1.0", "ask 2.0", "go 2.0", "ask 3.0"]
    assert run(iterations, {x: 5.0}) == ["ask 5.0"]
    assert run(again, {x: 3.0}) == ["in 3.0"]
    assert run(slope, {x: 3.0}) == ["in 3.0"]
    assert run.session.run([iterations, slope], {x: 3.0}) == [3, 6]


def test_a_loop_of_effects_alone(capsys):
    with gf.Graph() as g:
        x = gf.placeholder((2,), name="x")
        y = x * 1
        gf.cond(gf.sum(y) > 0, lambda: (gf.print("yes {}", y), ())[1], lambda: ())
    run = Lines(g, capsys)
    assert run(y, {x: [1.0, 2.0]}) == ["yes [1. 2.]"]
    assert run(y, {x: [-1.0, -2.0]}) == []


def test_vmap_prints_the_lanes_and_custom_gradients_print_cotangents(capsys):
    @gf.custom_gradient
    def seen(v):
        return v, lambda ct: (gf.print("ct {}", ct), ct)[1]

    with gf.Graph() as g:
        x = gf.placeholder((2, 3), name="x")
        y = gf.vmap(lambda row: (gf.print("row {}", gf.sum(row)), row * 2)[1])(x * 1)
        slope = gf.grad(gf.sum(seen(x) * 2.0), x)
    run = Lines(g, capsys)
    assert run(y, {x: np.ones((2, 3), np.float32)}) == ["row [3. 3.]"]
    assert run(slope, {x: np.ones((2, 3), np.float32)}) == ["ct [[2. 2. 2.]", " [2. 2. 2.]]"]


def test_gradients_do_not_repeat_it(capsys):
    def shown(name, value):
        gf.print(name + " {}", value)
        return gf.check(value > 0, "positive", value)

    with gf.Graph() as g:
        x = gf.placeholder((), gf.float64, name="x")
        y = x * 1
        # It ends for any x: where passes are checked by values, x is a sample below 1 too.
        loop = gf.while_loop(
            lambda v: (shown("ask", v) < 9) & (v > 2), lambda v: shown("go", v) ** 2, y
        )
        branch = gf.cond(y > 0, lambda: shown("yes", y) ** 3, lambda: y)
        again = gf.checkpoint(lambda v: shown("in", v) ** 4)(y)
        slopes = gf.grad(loop, x), gf.grad(branch, x), gf.grad(again, x)
        second = gf.grad(slopes[2], x)
    run = Lines(g, capsys)
    asked = ["ask 3.0", "go 3.0", "ask 9.0"]
    for slope, lines in zip(slopes, (asked, ["yes 3.0"], ["in 3.0"]), strict=True):
        assert run(slope, {x: 3.0}) == lines
    assert run(second, {x: 3.0}) == ["in 3.0"]
    assert run([*slopes, loop, branch, again], {x: 3.0}).count("go 3.0") == 1
    assert run.session.run(slopes, {x: 3.0}) == (6, 27, 108)
    with pytest.raises(ExecutionError, match="positive"):
        run.session.run(slopes[2], {x: -3.0})


def test_what_is_parsed_prints_as_well(capsys):
    with gf.Graph() as g:
        x = gf.placeholder((2,), name="x")
        last, _ = gf.scan(lambda c, e: (c + (gf.print("e {}", e), e)[1], None), 0.0, x)
        gf.identity(last, name="last")
        gf.print("x {}", x)
    again = gf.parse(str(g), constants=g.constants())
    assert str(again) == str(g)
    assert sorted(Lines(again, capsys)("last", {"x": [1.0, 2.0]})) == [
        "e 1.0",
        "e 2.0",
        "x [1. 2.]",
    ]


# What.


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        (("plain",), {}, "plain"),
        (("{{}} {1} {0:.2f}", 1.0, 2), {}, "{} 2 1.00"),
        (("{b} {}", 1), {"b": True}, "True 1"),
        (("{:+.1f}", [1.25, -2.0]), {}, "[+1.2 -2.0]"),
        (("{}", np.arange(7)), {}, "[0 1 2 ... 4 5 6]"),
        (("{}", np.arange(6)), {}, "[0 1 2 3 4 5]"),
        (("{}", np.arange(7)), {"summarize": None}, "[0 1 2 3 4 5 6]"),
        (("{}", np.arange(4)), {"summarize": 1}, "[0 ... 3]"),
        (("{}", np.zeros((0, 2))), {}, "[]"),
        (("{:d}", np.int8(3)), {}, "3"),
        ((np.float32(0.1), [1, 2]), {}, "0.1 [1 2]"),
    ],
)
def test_texts(capsys, arguments, options, text):
    gf.print(*arguments, **options)
    assert capsys.readouterr().out == text + "\n"


def test_names_of_tensors_and_small_floats(capsys):
    with gf.Graph() as g:
        x = gf.placeholder((), gf.bfloat16, name="x")
        gf.print(x, x + 1)
        gf.print("{:.1f}", x)
    assert sorted(Lines(g, capsys)(x, {x: 1.5})) == ["1.5", "x 1.5 2.5"]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("{} {}", 1), "there is no value for the field"),
        (("{a}", 1), "there is no value for the field {a}"),
        (("{0.shape}", 1), "there is no value for the field {0.shape}"),
        (("{!r}", 1), "there is no value for the field"),
        (("loss", 1), "fields for 0 of 1 value"),
        (("{", 1), "can't read the text"),
        (("{:.1q}", 1.0), "float32 can't be written as"),
        (("{:d}", 1.0), "float32 can't be written as"),
    ],
)
def test_texts_that_do_not_fit(arguments, match):
    with pytest.raises(ArgumentError, match=match):
        gf.print(*arguments)
    with pytest.raises(ArgumentError, match="summarize=0 is no number"):
        gf.print("{}", 1, summarize=0)


# check.


def test_a_check_that_fails_names_the_line_and_changes_nothing():
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        w = gf.Variable(1.0, name="w")
        y = gf.log(gf.check(x > 0, "x must be positive, not {}", x))  # here
        z = x * 2
        grow = gf.update(w, w + gf.sum(x))
    with gf.Session(g) as session:
        session.run([y, grow], {x: [1.0, 2.0]})
        for fetches in (y, z, grow, [y, grow], [z, grow]):
            with pytest.raises(ExecutionError) as caught:
                session.run(fetches, {x: [1.0, -2.0, -1.0]})
            text = str(caught.value)
            assert (
                "x must be positive, not [ 1. -2. -1.] "
                "(wrong at 2 of 3 elements, first at [1])\n" in text
            )
            assert "float32[3] in [-2, 1]" in text
            assert "# here" in text
        assert session["w"] == 4
        np.testing.assert_array_equal(session.run(z, {x: [3.0]}), [6])


def test_a_check_of_a_feed_is_made_though_nobody_takes_its_result():
    with gf.Graph() as g:
        now = gf.placeholder((), gf.bool, name="now")
        x = gf.placeholder((), name="x")
        gf.check(~now, "it is now")
        y = x + 1
    with gf.Session(g) as session:
        assert float(session.run(y, {x: 1, now: False})) == 2
        assert float(session.run(y, {x: 1})) == 2
        with pytest.raises(ExecutionError, match="it is now"):
            session.run(y, {x: 1, now: True})


def test_a_check_in_a_body_names_the_trip():
    with gf.Graph() as g:
        x = gf.placeholder((4,), name="x")
        total, _ = gf.scan(lambda c, e: (c + gf.check(e > 0, "bad {}", e), None), 0.0, x)
        slope = gf.grad(total, x)
        k = gf.while_loop(lambda v: v > 0, lambda v: v - gf.check(v != 2, "two", v) / v, x[0])
    with gf.Session(g) as session:
        assert session.run(total, {x: [1.0, 2.0, 3.0, 4.0]}) == 10
        for fetches in (total, slope):
            with pytest.raises(ExecutionError) as caught:
                session.run(fetches, {x: [1.0, 2.0, -3.0, 4.0]})
            text = str(caught.value)
            assert "bad -3.0\n" in text
            assert "it is in iteration 2 of the scan made at test_debug.py" in text
            assert "in <lambda>" in text
        with pytest.raises(ExecutionError, match="it is in iteration 3 of the loop"):
            session.run(k, {x: [5.0, 1.0, 1.0, 1.0]})


def test_checks_pass_gradients_and_batches():
    with gf.Graph() as g:
        x = gf.placeholder((3,), gf.float64, name="x")
        y = gf.vmap(lambda v: gf.check(v > 0, "no") & gf.check(v < 9, "large", v < 9))(x)
        z = gf.check(gf.all(x > 0), "no", x) ** 2
        slope = gf.grad(gf.sum(z), x)
        tangent = gf.jvp(lambda v: gf.check(v > 0, "no", v) ** 2, (x,), (gf.ones_like(x),))[1]
    with gf.Session(g) as session:
        value = [1.0, 2.0, 3.0]
        for fetched, wanted in ((y, [True] * 3), (slope, [2, 4, 6]), (tangent, [2, 4, 6])):
            np.testing.assert_array_equal(session.run(fetched, {x: value}), wanted)
        for fetched in (y, slope, tangent):
            with pytest.raises(ExecutionError, match="no"):
                session.run(fetched, {x: [1.0, -2.0, 3.0]})


def test_conditions_that_are_none():
    with pytest.raises(DTypeError, match="the condition is float32, not bool"):
        gf.check(1.0, "no")
    with pytest.raises(ArgumentError, match="the message is an int, not a string"):
        gf.check(True, 3)  # type: ignore[arg-type]  # the mistake
    with pytest.raises(ExecutionError, match="no"):
        gf.check(False, "no")
    gf.check(np.zeros((0,), bool), "no")


# breakpoint.


def test_a_breakpoint_has_the_values_by_their_names(monkeypatch):
    seen: list[dict[str, Any]] = []

    def hook() -> None:
        frame = sys._getframe(1)
        seen.append({**frame.f_globals, "where": (frame.f_code.co_filename, frame.f_lineno)})

    with gf.Graph() as g:
        x = gf.placeholder((2,), name="x")
        hidden = x * 2
        line = sys._getframe().f_lineno + 1
        assert gf.breakpoint(hidden, x + 1, total=gf.sum(x)) is hidden
        y = hidden + 1
    with gf.Session(g) as session:
        monkeypatch.setattr(sys, "breakpointhook", hook)
        session.run(y, {x: [1.0, 2.0]})
        session.run(x, {x: [1.0, 2.0]})  # without hidden
    (values,) = seen
    np.testing.assert_array_equal(values["hidden"], [2, 4])
    np.testing.assert_array_equal(values["x1"], [2, 3])
    assert values["total"] == 3
    assert values["where"] == (__file__, line)


def test_whoever_quits_the_debugger_is_out(monkeypatch):
    with gf.Graph() as graph:
        x = gf.placeholder((), name="x")
        w = gf.Variable(1.0, name="w")
        step = gf.update(w, w + gf.breakpoint(x))

    def leave(*args, **keywords):
        raise bdb.BdbQuit

    monkeypatch.setattr(sys, "breakpointhook", leave)
    with gf.Session(graph) as session:
        with pytest.raises(bdb.BdbQuit):
            session.run(step, {x: 1.0})
        assert session[w] == 1
        monkeypatch.setattr(sys, "breakpointhook", lambda *args, **keywords: None)
        session.run(step, {x: 1.0})
        assert session[w] == 2


def test_breakpoints_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("PYTHONBREAKPOINT", "0")
    monkeypatch.setattr(sys, "breakpointhook", sys.__breakpointhook__)
    with gf.Graph() as g:
        x = gf.placeholder((), name="x")
        gf.breakpoint(x)
        assert gf.breakpoint() is None
    with gf.Session(g) as session:
        assert session.run(x, {x: 1.0}) == 1
