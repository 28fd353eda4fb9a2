"""Sessions in asyncio programs: runs in worker threads, tasks with ambient state of their own."""

import asyncio
import threading

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import FeedError


@pytest.fixture
def counting():
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        total = gf.Variable(0.0, name="total")
        add = gf.update(total, total + gf.sum(x))
        y = x * 2
    return g, x, total, add, y


def test_runs_in_worker_threads(counting):
    g, x, total, add, y = counting

    async def main():
        with gf.Session(g) as session:
            plan = session.compile([y, add], feeds=[x])
            jobs = [asyncio.to_thread(plan, np.full(i, 1, np.float32)) for i in range(1, 21)]
            results = await asyncio.gather(*jobs)
            return [len(r[0]) for r in results], float(session[total])

    assert asyncio.run(main()) == (list(range(1, 21)), 210)


def test_the_loop_goes_on_while_a_run_waits_in_a_thread(counting):
    g, x, total, add, y = counting
    release = threading.Event()

    async def main():
        with gf.Session(g) as session:
            plan = session.compile(y, feeds=[x])
            execute = plan._run

            def slow(*args):
                assert release.wait(30)
                return execute(*args)

            plan._run = slow
            job = asyncio.create_task(asyncio.to_thread(plan, [1.0]))
            for _ in range(3):
                await asyncio.sleep(0)
            assert not job.done()
            release.set()
            return (await job).tolist()

    assert asyncio.run(main()) == [2]


def test_each_task_has_its_own_default_executor_and_dtype(counting):
    g, x, *_, y = counting

    async def task(name, dtype, others):
        with gf.default_executor(name), gf.default_dtype(dtype):
            others.append(name)
            while len(others) < 3:
                await asyncio.sleep(0)
            session = gf.Session(g)
            await asyncio.sleep(0)
            inner = await asyncio.to_thread(gf.get_default_executor)
            return session.executor.name, inner, gf.get_default_dtype().name

    async def main():
        others = ["start"]
        pair = await asyncio.gather(
            task("meta", "float64", others), task("numpy", "float16", others)
        )
        return pair, gf.get_default_executor()

    pair, after = asyncio.run(main())
    assert pair == [("meta", "meta", "float64"), ("numpy", "numpy", "float16")]
    assert after == "numpy"


def test_tasks_build_graphs_of_their_own(counting):
    async def build(size):
        with gf.Graph() as g:
            x = gf.placeholder((size,), name="x")
            await asyncio.sleep(0)
            y = x + size
            await asyncio.sleep(0)
        with gf.Session(g) as session:
            return await asyncio.to_thread(session.run, y, {x: np.zeros(size, np.float32)})

    async def main():
        return await asyncio.gather(*map(build, range(1, 6)))

    results = asyncio.run(main())
    assert [r.tolist() for r in results] == [[n] * n for n in range(1, 6)]


def test_errors_arrive_where_the_run_is_awaited(counting):
    g, x, total, add, y = counting

    async def main():
        with gf.Session(g) as session:
            good = asyncio.to_thread(session.run, [y, add], {x: [1.0]})
            wrong = asyncio.to_thread(session.run, [y, add], {x: [[1.0]]})
            results = await asyncio.gather(good, wrong, return_exceptions=True)
            return results, float(session[total])

    (good, wrong), after = asyncio.run(main())
    assert good[0] == [2]
    assert isinstance(wrong, FeedError)
    assert after == 1
