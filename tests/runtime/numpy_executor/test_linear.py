"""Work is in proportion to the graph: what is called, what is generated, how large kernels are.

Nothing is timed. Calls are counted for a graph and for one four times as large.
"""

import cProfile

import numpy as np
import pytest

import graphfw as gf
from graphfw.runtime.numpy_executor import compiled
from graphfw.runtime.numpy_executor.names import name_of

LONGEST = 1500
"""The most lines of LLVM of the longest function, whatever the graph."""


def chain_with_gradient(x, n):
    y = x
    for _ in range(n):
        y = gf.sin(y)
    return [gf.grad(gf.sum(y), x)], [x]


def concatenation(x, n):
    y = gf.concat([gf.sin(x) if i % 2 else gf.cos(x) for i in range(n)])
    return [gf.grad(gf.sum(y * y), x)], [x]


def feeds(x, n):
    xs = [gf.placeholder((4,), name=f"x{i}") for i in range(n)]
    y = gf.concat([x, *xs])
    return gf.grad(gf.sum(y * y), [x, *xs]), [x, *xs]


def rows(x, n):
    y = x
    for i in range(n // 4):
        y = gf.softmax(y * 2.0, axis=i % 2)
    return [y], [x]


def products(x, n):
    y = x
    for _ in range(n // 4):
        y = gf.relu(y @ x + 1.0)
    return [gf.grad(gf.sum(y), x)], [x]


class Work:
    """The work of compiling a graph.

    Attributes:
        calls: How many functions were called.
        lines: How long the LLVM text is, of all functions.
        longest: Of the longest.
    """

    def __init__(self, build, n, monkeypatch):
        texts = {}

        def recorded(codes):
            texts.update({name_of(code): code.llvm("f").count("\n") for code in codes})
            return [0 for _ in codes]

        monkeypatch.setenv("GRAPHFW_JIT", "1")
        monkeypatch.setattr(compiled, "compile_codes", recorded)
        with gf.Graph() as g:
            x = gf.placeholder((4, 4) if build in (rows, products) else (4,), name="x")
            fetches, fed = build(x, n)
        with cProfile.Profile() as counted:
            gf.Session(g, verify="ends").compile(list(fetches), feeds=fed)
        self.calls = sum(entry.callcount for entry in counted.getstats())
        self.lines = sum(texts.values())
        self.longest = max(texts.values())


@pytest.mark.parametrize(
    "build",
    [chain_with_gradient, concatenation, feeds, rows, products],
)
def test_work_is_in_proportion_to_the_graph(build, monkeypatch):
    Work(build, 4, monkeypatch)  # what a process does once
    some, more = Work(build, 40, monkeypatch), Work(build, 160, monkeypatch)
    assert more.calls < 6 * some.calls
    assert more.lines < 6 * some.lines
    assert more.longest < LONGEST


def test_a_long_concatenation_of_what_one_kernel_computes(monkeypatch):
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        a, b = gf.sin(x), gf.cos(x) * 2.0
        long = gf.concat([a, b] * 40)
        short = gf.concat([b, a] * 3)
    array = np.linspace(-2.0, 2.0, 5, dtype=np.float32)
    found = gf.Session(g).run([long, short, a, b], {x: array})
    np.testing.assert_array_equal(found[0], np.concatenate([found[2], found[3]] * 40))
    np.testing.assert_array_equal(found[1], np.concatenate([found[3], found[2]] * 3))
