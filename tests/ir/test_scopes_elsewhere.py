"""Scopes of generators that run in another thread or task than they began in."""

import asyncio
import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

import graphfw as gf
from graphfw.errors import GraphError
from graphfw.ir import ambient
from tests.ir.test_scopes import holding, reads


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    monkeypatch.delenv("GRAPHFW_EXECUTOR", raising=False)


def test_a_generator_keeps_its_scope_in_another_thread():
    generator = holding("meta")
    assert next(generator) == "meta"

    def elsewhere():
        with gf.default_executor("around"):
            inside = next(generator)
            with gf.default_executor("since"):
                return inside, next(generator), reads()

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(elsewhere).result(30) == ("meta", "meta", "since")
        assert pool.submit(reads).result(30) == "numpy"
        assert next(generator) == "meta"
        pool.submit(generator.close).result(30)
    assert reads() == "numpy"
    assert not ambient._executor._owned


def test_who_began_a_generator_does_not_see_its_scope_while_it_runs_elsewhere():
    runs, goes_on = threading.Event(), threading.Event()

    def generating():
        with gf.default_executor("meta"):
            yield reads()
            runs.set()
            assert goes_on.wait(30)
            yield reads()

    generator = generating()
    next(generator)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(next, generator)
        assert runs.wait(30)
        assert reads() == "numpy"
        goes_on.set()
        assert found.result(30) == "meta"
    generator.close()


def test_scopes_of_several_generators_in_another_thread():
    def outer(inner):
        with gf.default_executor("outer"):
            while True:
                yield next(inner), reads()

    inner = holding("inner")
    generator = outer(inner)
    next(generator)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(next, generator).result(30) == ("inner", "outer")
        assert pool.submit(next, inner).result(30) == "inner"
        assert pool.submit(reads).result(30) == "numpy"


def test_each_step_of_a_generator_in_a_worker():
    """So web servers iterate generators: each step has a copy of the context of its own."""

    async def main():
        generator = holding("meta")
        return [await asyncio.to_thread(next, generator) for _ in range(3)], reads()

    assert asyncio.run(main()) == (["meta"] * 3, "numpy")


def test_a_graph_is_built_by_the_thread_that_has_entered_it():
    def building():
        with gf.Graph() as g:
            yield g
            with pytest.raises(GraphError, match="is being built by another thread"):
                gf.ones(3)
            yield None

    generator = building()
    g = next(generator)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(next, generator).result(30) is None
        assert pool.submit(lambda: gf.ones(3).graph.is_ambient).result(30)
        pool.submit(generator.close).result(30)
    with g:
        assert gf.ones(3).graph is g


def test_a_mode_of_a_generator_in_another_thread():
    class Names(gf.FunctionMode):
        def __graphfw_function__(self, func, types, args, kwargs):
            names.append(func.__name__)
            return func(*args, **kwargs)

    def calling():
        with Names():
            while True:
                yield gf.ones(3)

    names = []
    generator = calling()
    next(generator)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(next, generator).result(30)
        pool.submit(gf.zeros, 3).result(30)
        assert names == ["ones", "ones"]
        pool.submit(generator.close).result(30)
        pool.submit(gf.zeros, 3).result(30)
    gf.zeros(3)
    assert names == ["ones", "ones"]


async def waiting(name, gate):
    with gf.default_executor(name):
        yield reads()
        while True:
            await gate.wait()
            yield reads()


def test_an_asynchronous_generator_that_another_task_iterates():
    async def main():
        gate, generator = asyncio.Event(), None

        async def other():
            await begun.wait()
            return await anext(generator), reads()

        begun = asyncio.Event()
        task = asyncio.create_task(other())  # before the generator begins
        await asyncio.sleep(0)
        generator = waiting("meta", gate)
        assert await anext(generator) == "meta"
        begun.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert reads() == "numpy"  # while the generator waits in the other task
        gate.set()
        assert await task == ("meta", "numpy")
        await generator.aclose()
        return reads()

    assert asyncio.run(main()) == "numpy"


def test_a_generator_that_was_left_elsewhere_keeps_nothing_alive():
    class Large:
        pass

    def generating():
        large = Large()
        found.append(weakref.ref(large))
        with gf.default_executor("meta"):
            yield large
            yield reads()

    found: list[weakref.ref[Large]] = []
    generator = generating()
    next(generator)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(next, generator).result(30)
        pool.submit(generator.close).result(30)
        del generator
        gc.collect()
        assert found[0]() is None
