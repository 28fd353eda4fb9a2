"""Scopes in generators and threads, left in any order; process-wide defaults."""

import asyncio
import contextlib
import gc
import itertools
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pluggy
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError
from graphfw.ir import ambient
from graphfw.ir.graph import current_graph
from graphfw.nn.checks import called

SCOPES = {
    "graph": (gf.Graph, lambda: current_graph().is_ambient),
    "name_scope": (lambda: gf.name_scope("part"), ambient.current_scope.get),
    "no_grad": (gf.no_grad, ambient.grad_enabled.get),
    "training": (lambda: gf.training(False), ambient.training_flag.get),
    "default_dtype": (lambda: gf.default_dtype(gf.float64), gf.get_default_dtype),
    "default_executor": (lambda: gf.default_executor("meta"), gf.get_default_executor),
    "model_session_options": (
        lambda: gf.model_session_options(threads=1),
        lambda: ambient.session_options.get().get("threads"),
    ),
}
INTERNAL = {
    "override": (
        lambda: ambient.override(ambient.current_scope, "part"),
        ambient.current_scope.get,
    ),
    "called": (lambda: called(None, "outer", "part"), ambient.outer_scope.get),
}
each_scope = pytest.mark.parametrize(("scope", "read"), SCOPES.values(), ids=SCOPES)
reads = gf.get_default_executor


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    monkeypatch.delenv("GRAPHFW_EXECUTOR", raising=False)
    yield
    gf.reset_default_executor()
    gf.set_default_dtype(gf.float32)


def holding(name, seen=None):
    with gf.default_executor(name):
        while True:
            if seen is not None:
                seen.append(reads())
            yield reads()


async def as_coroutine(function):
    return function()


# Generators.


@each_scope
def test_a_suspended_generator_keeps_its_scope_to_itself(scope, read):
    def generator():
        with scope():
            yield read()
            yield read()

    before = read()
    made = generator()
    inside = next(made)
    assert inside != before
    assert read() == before
    assert next(made) == inside
    made.close()
    assert read() == before


@each_scope
def test_generators_that_are_closed_in_the_order_they_were_opened(scope, read):
    def generator():
        with scope():
            yield

    before = read()
    first, second = generator(), generator()
    next(first)
    next(second)
    first.close()
    assert read() == before
    second.close()
    assert read() == before


@each_scope
def test_scopes_that_are_left_in_the_order_they_were_entered(scope, read):
    before = read()
    first, second = scope(), scope()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert read() != before
    second.__exit__(None, None, None)
    assert read() == before


def test_a_generator_keeps_its_scope_inside_of_one_that_the_caller_enters():
    generator = holding("one")
    next(generator)
    with gf.default_executor("two"):
        assert next(generator) == "one"
        assert reads() == "two"
        with gf.default_executor("three"):
            assert next(generator) == "one"
            generator.close()
            assert reads() == "three"
    assert reads() == "numpy"


def test_a_generator_sees_the_scopes_of_its_caller():
    def generator():
        while True:
            yield reads()

    made = generator()
    with gf.default_executor("one"):
        assert next(made) == "one"
    assert next(made) == "numpy"


def test_generators_that_run_generators():
    def outer():
        inner = holding("inner")
        with gf.default_executor("outer"):
            yield next(inner), reads()
            yield next(inner), reads()
            yield from inner

    made = outer()
    assert [next(made), reads(), next(made), reads()] == [
        ("inner", "outer"), "numpy", ("inner", "outer"), "numpy",
    ]  # fmt: skip
    assert [next(made), reads()] == ["inner", "numpy"]


def test_a_generator_that_is_dropped_leaves_nothing():
    generator = holding("meta")
    next(generator)
    del generator
    gc.collect()
    assert reads() == "numpy"
    assert ambient._executor._top.get() is None


def test_one_context_manager_in_several_generators():
    scope = gf.default_executor("meta")

    def generator():
        with scope:
            while True:
                yield reads()

    first, second = generator(), generator()
    assert [next(first), next(second)] == ["meta", "meta"]
    first.close()
    assert next(second) == "meta"
    second.close()
    assert ambient._executor._top.get() is None


def test_functions_that_a_generator_calls_see_its_scope():
    def generator():
        with gf.default_executor("meta"):
            yield from map(lambda _: reads(), range(2))

    assert list(generator()) == ["meta", "meta"]


def test_a_generator_that_runs_in_another_thread():
    generator = holding("meta")
    next(generator)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(generator.close).result(30)
        assert pool.submit(reads).result(30) == "numpy"
    assert reads() == "numpy"


def test_generators_that_are_left_in_another_thread_leave_nothing_where_they_began():
    """A web server iterates a response's generator in whichever worker is free."""
    with ThreadPoolExecutor(1) as pool:
        for generator in [holding("meta") for _ in range(5)]:
            next(generator)
            assert pool.submit(generator.close).result(30) is None
        assert next(holding("one")) == "one"
    assert reads() == "numpy"
    with gf.default_executor("two"):
        assert ambient._executor._top.get().below is None
    assert ambient._executor._top.get() is None
    assert not ambient._executor._owned


def test_a_generator_that_began_elsewhere_leaves_its_own_block_of_a_shared_manager():
    scope = gf.default_executor("meta")

    def generator():
        with scope:
            while True:
                yield reads()

    here, elsewhere = generator(), generator()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(next, elsewhere).result(30) == "meta"
    assert next(here) == "meta"
    elsewhere.close()
    assert next(here) == "meta"
    here.close()
    assert ambient._executor._top.get() is None


# Generators that hold a scope open for others.


@contextlib.contextmanager
def managed(name):
    with gf.default_executor(name):
        yield reads()


def test_a_context_manager_that_is_written_as_a_generator_holds_for_its_block():
    with managed("one") as seen:
        assert seen == reads() == "one"
        with contextlib.ExitStack() as stack:
            stack.enter_context(managed("two"))
            stack.enter_context(gf.default_executor("three"))
            assert reads() == "three"
        assert reads() == "one"
    assert reads() == "numpy"


def test_a_context_manager_may_be_made_of_generators():
    def entered(name):
        with gf.default_executor(name):
            yield

    @contextlib.contextmanager
    def whole():
        yield from entered("meta")

    with whole():
        assert reads() == "meta"
    assert reads() == "numpy"


def test_a_context_manager_inside_of_a_generator_holds_for_the_generator():
    def generator():
        with managed("one"):
            yield reads()
        with contextlib.ExitStack() as stack:
            stack.enter_context(managed("two"))
            yield reads()

    made = generator()
    for name in ("one", "two"):
        assert next(made) == name
        assert reads() == "numpy"


def test_a_class_that_enters_scopes_acts_for_the_code_that_enters_it():
    class Both:
        def __enter__(self):
            self.scope = gf.default_executor("meta")
            self.scope.__enter__()

        def __exit__(self, *error):
            self.scope.__exit__(*error)

    def generator():
        with Both():
            yield reads()

    with Both():
        assert reads() == "meta"
    made = generator()
    assert [next(made), reads()] == ["meta", "numpy"]


@pytest.fixture
def graph_of_a_fixture():
    with gf.Graph() as g, gf.name_scope("fixture"):
        yield g


def test_a_fixture_holds_its_scopes_for_the_test(graph_of_a_fixture):
    assert current_graph() is graph_of_a_fixture
    assert gf.Variable([1.0], name="v").name == "fixture.v"


def test_a_hook_of_pytest_holds_its_scopes_for_what_it_wraps():
    marker, spec = pluggy.HookimplMarker("tests"), pluggy.HookspecMarker("tests")

    class Specs:
        @spec(firstresult=True)
        def call(self):
            """Return the default executor."""

    class Wraps:
        @marker(wrapper=True)
        def call(self):
            with gf.default_executor("meta"):
                return (yield)

    class Reads:
        @marker
        def call(self):
            return reads()

    manager = pluggy.PluginManager("tests")
    manager.add_hookspecs(Specs)
    for plugin in (Wraps(), Reads()):
        manager.register(plugin)
    assert manager.hook.call() == "meta"
    assert reads() == "numpy"


# Decorated functions.


def test_a_decorated_function_is_of_any_kind():
    @gf.default_executor("meta")
    def plain():
        return reads()

    @gf.default_executor("meta")
    def generator():
        yield reads()
        yield reads()

    @gf.default_executor("meta")
    async def coroutine():
        await asyncio.sleep(0)
        return reads()

    assert plain() == "meta"
    made = generator()
    assert [next(made), reads(), next(made), reads()] == ["meta", "numpy", "meta", "numpy"]
    assert asyncio.run(coroutine()) == "meta"
    assert reads() == "numpy"


def test_an_asynchronous_generator_is_not_decorated():
    with pytest.raises(ArgumentError, match=r"can't decorate batches: .*(.|\n)*write the `with`"):

        @gf.no_grad()
        async def batches():
            yield 1


# Exceptions and interrupts.


@pytest.mark.parametrize(("scope", "read"), (SCOPES | INTERNAL).values(), ids=SCOPES | INTERNAL)
def test_an_interrupt_while_a_scope_is_entered_leaves_none(scope, read):
    """Raise an interrupt at each line that entering runs, as a signal may."""
    before = read()
    for number in itertools.count():
        made = scope()
        hit = raise_at(number, made.__enter__)
        if not hit:
            made.__exit__(None, None, None)
            break
        assert read() == before, number
    assert number > 3
    assert read() == before


def raise_at(number, function):
    """Call a function, and raise KeyboardInterrupt at the line of `ir/scopes.py` of a number."""
    left = [number]

    def trace(frame, event, argument):
        if event == "line" and frame.f_code.co_filename.endswith("scopes.py"):
            if not left[0]:
                sys.settrace(None)
                raise KeyboardInterrupt
            left[0] -= 1
        return trace

    sys.settrace(trace)
    try:
        function()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


# Process-wide defaults.


def in_threads(function, *, started_before):
    """Return a function's results in a thread and a pool's worker that may run already."""
    ready, results = threading.Event(), []

    def work():
        ready.wait(30)
        results.append(function())

    with ThreadPoolExecutor(1) as pool:
        if started_before:
            pool.submit(int).result(30)
        thread = threading.Thread(target=work)
        thread.start()
        yield
        ready.set()
        thread.join(30)
        results.append(pool.submit(function).result(30))
    yield results


@pytest.mark.parametrize(
    ("choose", "read", "chosen"),
    [
        (lambda: gf.set_default_executor("meta"), gf.get_default_executor, "meta"),
        (lambda: gf.set_default_dtype(gf.float64), gf.get_default_dtype, gf.float64),
    ],
    ids=["executor", "dtype"],
)
def test_a_process_wide_default_is_seen_by_all_threads_and_tasks(choose, read, chosen):
    running = in_threads(read, started_before=True)
    next(running)
    choose()
    new = in_threads(read, started_before=False)
    next(new)
    assert [*next(running), *next(new)] == [chosen] * 4

    async def main():
        return await asyncio.gather(asyncio.to_thread(read), as_coroutine(read))

    assert asyncio.run(main()) == [chosen] * 2


def test_a_scope_goes_before_a_process_wide_default_in_its_own_context_alone():
    with gf.default_executor("meta"), gf.default_dtype(gf.float64):
        gf.set_default_executor("cupy")
        gf.set_default_dtype(gf.float16)
        assert (reads(), gf.get_default_dtype()) == ("meta", gf.float64)
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(reads).result(30) == "cupy"
            assert pool.submit(gf.get_default_dtype).result(30) == gf.float16
    assert (reads(), gf.get_default_dtype()) == ("cupy", gf.float16)


def test_a_process_wide_executor_is_reset_everywhere(monkeypatch):
    monkeypatch.setenv("GRAPHFW_EXECUTOR", "meta")
    gf.set_default_executor("cupy")
    running = in_threads(reads, started_before=True)
    next(running)
    gf.reset_default_executor()
    assert next(running) == ["meta", "meta"]
