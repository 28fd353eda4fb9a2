"""Scopes in tasks and asynchronous generators."""

import asyncio
import contextlib
import contextvars
import itertools

import pytest

import graphfw as gf
from tests.ir.test_scopes import as_coroutine, holding, reads


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    monkeypatch.delenv("GRAPHFW_EXECUTOR", raising=False)


async def waiting(name):
    with gf.default_executor(name):
        while True:
            await asyncio.sleep(0)
            inner = await asyncio.to_thread(reads)
            task = await asyncio.create_task(as_coroutine(reads))
            yield reads(), inner, task


def test_an_asynchronous_generator_keeps_its_scope_to_itself():
    async def main():
        first, second = waiting("one"), waiting("two")
        for _ in range(2):
            assert await anext(first) == ("one",) * 3
            assert reads() == "numpy"
            assert await anext(second) == ("two",) * 3
            assert reads() == "numpy"
        await first.aclose()
        assert await anext(second) == ("two",) * 3
        await second.aclose()
        return reads()

    assert asyncio.run(main()) == "numpy"


def test_an_asynchronous_generator_that_another_task_closes():
    async def main():
        generator = waiting("meta")
        await asyncio.create_task(anext_of(generator))
        assert reads() == "numpy"
        await generator.aclose()  # entered in the task, left here
        return reads()

    async def anext_of(generator):
        await anext(generator)
        assert reads() == "numpy"

    assert asyncio.run(main()) == "numpy"


def test_a_scope_that_another_task_leaves():
    async def main():
        scope = gf.default_executor("meta")
        scope.__enter__()
        await asyncio.create_task(as_coroutine(lambda: scope.__exit__(None, None, None)))
        assert reads() == "meta"  # the task has left it in its copy of the context
        scope.__exit__(None, None, None)
        return reads()

    assert asyncio.run(main()) == "numpy"


def test_an_asynchronous_context_manager_holds_for_its_block():
    @contextlib.asynccontextmanager
    async def manager(name):
        with gf.default_executor(name):
            yield

    async def main():
        async with manager("one"), contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(manager("two"))
            await asyncio.sleep(0)
            return reads(), await asyncio.to_thread(reads)

    assert asyncio.run(main()) == ("two", "two")


def test_a_task_keeps_the_scope_that_it_was_started_in():
    async def main():
        gate = asyncio.Event()

        async def late():
            await gate.wait()
            return reads()

        def starting():
            with gf.default_executor("generator"):
                yield asyncio.create_task(late())

        with gf.default_executor("block"):
            block = asyncio.create_task(late())
        generator = starting()
        started = next(generator)
        gate.set()
        return await block, await started, reads()

    # A generator's scope holds as long as the generator runs, for the tasks that it starts, too.
    assert asyncio.run(main()) == ("block", "numpy", "numpy")


def test_what_iterates_a_generator_starts_tasks_and_threads_without_its_scope():
    async def main():
        for inside in itertools.islice(holding("meta"), 2):
            assert inside == "meta"
            assert await asyncio.to_thread(reads) == "numpy"
            assert await asyncio.create_task(as_coroutine(reads)) == "numpy"
        generator = waiting("meta")
        await anext(generator)
        assert await asyncio.to_thread(reads) == "numpy"
        assert await asyncio.create_task(as_coroutine(reads)) == "numpy"
        await generator.aclose()

    asyncio.run(main())


def test_a_copied_context_keeps_a_scope_that_was_left_below_another():
    first, second = gf.default_executor("one"), gf.default_executor("two")
    first.__enter__()
    second.__enter__()
    copied = contextvars.copy_context()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert reads() == "numpy"
    assert copied.run(reads) == "two"
    copied.run(second.__exit__, None, None, None)
    assert copied.run(reads) == "one"
