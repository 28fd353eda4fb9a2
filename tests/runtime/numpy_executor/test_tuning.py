"""Choosing among strategies by what they take, and keeping what was found."""

import json
import re
import threading

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError
from graphfw.ir.dim import symbol
from graphfw.ir.dtype import float32
from graphfw.runtime.cache import Cache
from graphfw.runtime.executor import Options
from graphfw.runtime.kernels.steps import Temp, View
from graphfw.runtime.numpy_executor import cache_key, engine, tuning
from graphfw.runtime.numpy_executor.buffer_pool import Arenas
from graphfw.runtime.numpy_executor.choice import Strategy, by_estimate
from graphfw.runtime.numpy_executor.codegen import KernelCode
from graphfw.runtime.numpy_executor.compiled import CompiledExecutable, build_of
from graphfw.runtime.numpy_executor.convolution import strategies
from graphfw.runtime.numpy_executor.executables import RecalledExecutable, native_executable
from graphfw.runtime.numpy_executor.tuning import Tuner
from graphfw.runtime.planning.copies import copied

ENGINES = []
"""The engines that have been used stay: the runner may be code of any of them."""


def forget(folder, monkeypatch):
    """Go on as another process would, that has measured and loaded nothing yet."""
    ENGINES.append(engine._engine())
    monkeypatch.setattr(engine, "_made", [engine.Engine(Cache(folder))])
    ENGINES.append(engine._engine())
    monkeypatch.setattr(tuning, "_known", {})


@pytest.fixture(autouse=True)
def kept(monkeypatch, tmp_path):
    """A cache of the test's own."""
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    monkeypatch.delenv("GRAPHFW_VERIFY", raising=False)
    forget(tmp_path, monkeypatch)
    return tmp_path


@pytest.fixture
def unmeasured(monkeypatch):
    """Measuring is a mistake from now on."""

    def measure(*_):
        raise AssertionError("it is measured")

    return lambda: monkeypatch.setattr(tuning, "_Trial", measure)


def entries(folder):
    return sorted(path for path in folder.iterdir() if path.name.startswith("gt_"))


def copying(*sizes, seconds=None):
    """Strategies that copy arrays of some sizes; the estimates say the opposite of the truth."""
    given = Temp(float32, max(sizes, key=str), "given")

    def made(size):
        return [copied(View(given, 0, (size,), (1,)), (), "copied", KernelCode)[0]]

    if seconds is None:
        seconds = [1 / (number + 1) for number in range(len(sizes))]
    return [
        Strategy(f"copy {size}", estimate, lambda size=size: made(size))
        for size, estimate in zip(sizes, seconds, strict=True)
    ]


def tuner(threads=2):
    return Tuner(threads, gf.Graph())


def choice_of(steps):
    *others, last = steps
    assert all(step.choice is None for step in others)
    return last.choice


def test_estimates_decide_where_nothing_is_measured(unmeasured):
    unmeasured()
    choice = choice_of(by_estimate(copying(10, 1000)))
    assert choice.name == "copy 1000"
    assert str(choice) == (
        "copy 1000, by estimate: copy 10 1,000,000, copy 1000 500,000 µs of a core"
    )


def test_one_strategy_needs_no_choice(unmeasured, kept):
    unmeasured()
    for choose in (by_estimate, tuner().choose):
        choice = choice_of(choose(copying(10)))
        assert str(choice) == "copy 10, the only one that fits"
    assert not entries(kept)


def test_measured_times_decide_and_are_kept(unmeasured, kept, monkeypatch):
    ways = copying(4_000_000, 1000)[::-1]
    chooser = tuner()
    first = choice_of(chooser.choose(ways))
    assert (first.name, first.how) == ("copy 1000", "measured now")
    assert list(first.times) == ["copy 1000", "copy 4000000"]
    assert 0 < first.times["copy 1000"] < first.times["copy 4000000"] < 1
    assert re.fullmatch(
        r"copy 1000, measured now: copy 1000 [\d,]+, copy 4000000 [\d,]+ µs", str(first)
    )
    (path,) = entries(kept)
    assert chooser.found == {path.name: first.times}

    unmeasured()
    for _ in range(2):  # in this process, then in another
        again = choice_of(tuner().choose(ways))
        assert (again.name, again.how, again.times) == ("copy 1000", "measured before", first.times)
        forget(kept, monkeypatch)


def test_without_a_folder_the_process_remembers(unmeasured, monkeypatch):
    forget(None, monkeypatch)
    tuner().choose(copying(1000, 100))
    unmeasured()
    assert choice_of(tuner().choose(copying(1000, 100))).how == "measured before"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"{",
        b"[0.1, 0.2]",
        b"7",
        b"{}",
        b'{"copy 1000": 1e-6}',
        b'{"copy 100": 1e-6, "copy 1000": 1e-6}',
        b'{"copy 1000": 1e-6, "copy 100": 1e-6, "more": 1e-6}',
        b'{"copy 1000": 1e-6, "copy 100": "1"}',
        b'{"copy 1000": 1e-6, "copy 100": NaN}',
        b'{"copy 1000": 1e-6, "copy 100": Infinity}',
        b'{"copy 1000": 1e-6, "copy 100": -1e-6}',
        b'{"copy 1000": true, "copy 100": 1e-6}',
    ],
)
def test_what_is_kept_and_makes_no_sense_is_measured_anew(content, kept, monkeypatch):
    ways = copying(1000, 100)
    tuner().choose(ways)
    (path,) = entries(kept)
    engine.disk().store(path.name, content)
    forget(kept, monkeypatch)
    assert choice_of(tuner().choose(ways)).how == "measured now"
    assert list(json.loads(engine.disk().load(path.name))) == ["copy 1000", "copy 100"]


def test_a_damaged_file_is_measured_anew(kept, monkeypatch):
    ways = copying(1000, 100)
    tuner().choose(ways)
    (path,) = entries(kept)
    path.write_bytes(path.read_bytes()[:-3])
    forget(kept, monkeypatch)
    assert choice_of(tuner().choose(ways)).how == "measured now"


def test_keys_tell_apart_what_may_take_another_time(monkeypatch):
    def key(*sizes, threads=2, names="ab", weights=0):
        with gf.Graph() as g:
            gf.Variable(gf.nn.init.zeros, shape=(weights,), name="w")
        ways = zip(names, copying(*sizes), strict=True)
        return Tuner(threads, g)._key({name: one.make() for name, one in ways})

    same = key(1000, 100)
    assert same == key(1000, 100) == key(1000, 100, weights=1000)
    others = [
        key(100, 1000),
        key(1000, 101),
        key(1000, 100, threads=1),
        key(1000, 100, names="ac"),
        key(1000, 100, weights=10_000_000),
    ]
    monkeypatch.setattr(tuning, "name_of", lambda code: "made by another version")
    others.append(key(1000, 100))
    assert len({same, *others}) == len(others) + 1


def test_symbolic_sizes_are_left_to_the_estimates(unmeasured):
    unmeasured()
    n = symbol("n")
    choice = choice_of(tuner().choose(copying(n, n + 1)))
    assert choice.name == "copy n + 1"
    assert str(choice).startswith("copy n + 1, by estimate, as its sizes are not known: copy n ")


def test_what_is_too_large_is_not_measured(unmeasured):
    unmeasured()
    choice = choice_of(tuner().choose(copying(1 << 40, 1000)))
    assert choice.how == "by estimate, as it is too large to be measured"


def test_an_interrupt_leaves_nothing_behind(kept, monkeypatch):
    ways = copying(1000, 100)

    def interrupted(self):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(tuning._Trial, "times", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tuner().choose(ways)
    assert not entries(kept)
    assert choice_of(tuner().choose(ways)).how == "measured now"


def test_the_time_is_bounded(monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(tuning.time, "perf_counter", lambda: float(next(clock)))
    choice = choice_of(tuner().choose(copying(1000, 100)))
    # Each look at the clock is a second: after the first run and one more the time is over.
    assert next(clock) == 1 + 2 * 4 + 1
    assert choice.times == {"copy 1000": 1.0, "copy 100": 1.0}


def test_many_threads_may_measure_at_once():
    found = []

    def work():
        found.append(choice_of(tuner().choose(copying(3000, 2000))))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(found) == 4
    assert choice_of(tuner().choose(copying(3000, 2000))).how == "measured before"


# Sessions.


def layer(rng, batch=1, stride=1):
    """A convolution with what follows it."""
    with gf.Graph() as g:
        x = gf.placeholder((batch, 8, 9, 9), name="x")
        w = gf.Variable(rng.standard_normal((16, 8, 3, 3), np.float32), name="w")
        y = gf.relu(gf.conv(x, w, padding=1, stride=stride) + 0.5)
    return g, x, y


@pytest.fixture
def two_ways(monkeypatch):
    """Convolutions have two strategies of the same steps: one that is estimated to take longer."""
    real = strategies.strategies_of

    def made(*args, **options):
        (direct, *_) = real(*args, **{**options, "winograd": False})
        return [direct, direct._replace(name="longer", seconds=2 * direct.seconds)]

    monkeypatch.setattr(strategies, "strategies_of", made)


def forced(monkeypatch, times):
    """Say what is measured."""
    monkeypatch.setattr(tuning._Trial, "times", lambda self: dict(times))


def strategy_in(plan):
    return re.findall(r"strategy (.*)", plan.explain())


def test_a_session_measures_if_it_is_asked_to(rng, two_ways, kept, monkeypatch):
    g, x, y = layer(rng)
    array = rng.standard_normal((1, 8, 9, 9), np.float32)
    plain = gf.Session(g).compile(y, [x])
    (text,) = strategy_in(plain)
    assert text.startswith("direct, by estimate: direct ")
    assert not entries(kept)

    forced(monkeypatch, {"direct": 2e-4, "longer": 1e-4})
    tuned = gf.Session(g, tune=True).compile(y, [x])
    (text,) = strategy_in(tuned)
    assert text == "longer, measured now: direct 200, longer 100 µs"
    (text,) = strategy_in(gf.Session(g, tune=True).compile(y, [x]))
    assert text == "longer, measured before: direct 200, longer 100 µs"
    assert strategy_in(gf.Session(g).compile(y, [x])) == strategy_in(plain)
    np.testing.assert_array_equal(tuned(array), plain(array))


def test_gradients_are_measured_too(rng, two_ways, kept):
    with gf.Graph() as g:
        x = gf.placeholder((2, 3, 9, 9), name="x")
        w = gf.Variable(rng.standard_normal((4, 3, 3, 3), np.float32), name="w")
        slope = gf.grad(gf.sum(gf.conv(x, w, padding=1, stride=2) ** 2.0), x)
    array = rng.standard_normal((2, 3, 9, 9), np.float32)
    plan = gf.Session(g, tune=True).compile(slope, [x])
    found = strategy_in(plan)
    assert len(found) == 5  # the convolution, and four phases of its gradient
    assert all(", measured " in text for text in found)
    np.testing.assert_array_equal(plan(array), gf.Session(g).run(slope, {x: array}))


def test_plans_for_all_sizes_are_estimated(rng, two_ways, unmeasured):
    unmeasured()
    g, x, y = layer(rng, batch="batch")
    (text,) = strategy_in(gf.Session(g, tune=True).compile(y, [x]))
    assert text.startswith("direct, by estimate, as its sizes are not known: ")


def test_a_recalled_plan_knows_what_it_was_chosen_by(rng, two_ways, kept, monkeypatch, unmeasured):
    monkeypatch.setattr(cache_key, "enabled", True)
    weights = rng.standard_normal((16, 8, 3, 3), np.float32)
    array = rng.standard_normal((1, 8, 9, 9), np.float32)
    results = []
    forced(monkeypatch, {"direct": 2e-4, "longer": 1e-4})
    for kind, how in ((CompiledExecutable, "now"), (RecalledExecutable, "before")):
        g, x, y = layer(rng)
        with gf.Session(g, tune=True, verify="off") as session:
            plan = session.compile(y, [x])
            assert type(plan._run) is kind
            assert strategy_in(plan) == [f"longer, measured {how}: direct 200, longer 100 µs"]
            session["w"] = weights
            results.append(plan(array))
        # The entry may be gone, or another: the plan is still the same.
        for path in entries(kept):
            path.unlink()
        forget(kept, monkeypatch)
        unmeasured()
    np.testing.assert_array_equal(*results)


def test_recipes_are_kept_apart(rng, two_ways, monkeypatch):
    monkeypatch.setattr(cache_key, "enabled", True)
    g, x, y = layer(rng)
    program = gf.Session(g, verify="off").compile(y, [x]).program

    def key(**options):
        return cache_key.key_of(program, Options(**options))

    assert key() == key(threads=1)
    found = [
        key(),
        key(winograd=False),
        key(matmul_precision="highest"),
        key(matmul_precision="high"),
        key(tune=True, threads=1),
        key(tune=True, threads=3),
        key(tune=True, threads=1, winograd=False),
    ]
    assert None not in found
    assert len(set(found)) == len(found)


def test_choices_are_what_the_build_runs(rng, two_ways, monkeypatch):
    forced(monkeypatch, {"direct": 2e-4, "longer": 1e-4})
    g, x, y = layer(rng)
    program = gf.Session(g).compile(y, [x]).program
    build = build_of(program, Options(tune=True, threads=1), Arenas(), native_executable)
    assert build.recipe.measured
    assert [step.choice.name for step in build.steps if step.choice] == ["longer"]


@pytest.mark.parametrize(
    ("options", "is_left_out"),
    [
        ({}, False),
        ({"winograd": False}, True),
        ({"matmul_precision": "high"}, False),
        ({"matmul_precision": "highest"}, True),
        ({"matmul_precision": "highest", "winograd": True}, True),
    ],
)
def test_who_wants_no_winograd_gets_none(options, is_left_out, rng, monkeypatch):
    asked = []
    real = strategies.strategies_of

    def made(*args, winograd, **others):
        asked.append(winograd)
        return real(*args, winograd=winograd, **others)

    monkeypatch.setattr(strategies, "strategies_of", made)
    g, x, y = layer(rng)
    gf.Session(g, **options).compile(y, [x])
    assert asked == [not is_left_out]


@pytest.mark.parametrize("name", ["winograd", "tune", "check_finite"])
@pytest.mark.parametrize("value", [None, 1, 0, "yes", [], np.array(True)])
def test_switches_are_on_or_off(name, value):
    with pytest.raises(ArgumentError, match=rf"{name}=.* is neither True nor False"):
        gf.Session(gf.Graph(), **{name: value})


def estimates(shape, kernel, *, fixed=True, stride=1, dtype=gf.float32, groups=1):
    """Return the estimated times of a convolution's strategies."""
    with gf.Graph() as g:
        x = gf.placeholder(shape, dtype, name="x")
        ones = np.ones(kernel, dtype.dtype)
        w = gf.Variable(ones, name="w") if fixed else gf.placeholder(kernel, dtype, name="w")
        y = gf.conv(x, w, padding=kernel[-1] // 2, stride=stride, groups=groups)
    program = gf.Session(g).compile(y, [x] if fixed else [x, w]).program
    build = build_of(program, Options(), Arenas(), native_executable)
    (choice,) = [step.choice for step in build.steps if step.choice]
    return choice.estimates


def test_estimates_of_products_grow_with_the_work():
    whole = estimates((1, 64, 28, 28), (64, 64, 3, 3))["direct"]
    core = 2 * 64 * 64 * 9 * 28 * 28 / (2 * 2 * 16 * 4e9)
    assert core * 0.9 < whole < core * 8  # by the vectors of the processor
    for more in (
        estimates((2, 64, 28, 28), (64, 64, 3, 3)),
        estimates((1, 64, 28, 56), (64, 64, 3, 3)),
        estimates((1, 128, 28, 28), (64, 128, 3, 3)),
    ):
        assert 1.8 * whole < more["direct"] < 2.3 * whole
    assert 1.5 * whole < estimates((1, 64, 28, 28), (128, 64, 3, 3))["direct"] < 2.7 * whole
    assert estimates((1, 64, 28, 28), (64, 64, 3, 3), stride=2)["direct"] < 0.4 * whole
    assert estimates((1, 64, 28, 28), (64, 64, 3, 3), fixed=False)["direct"] > whole
    assert estimates((1, 64, 28, 28), (64, 32, 3, 3), groups=2)["direct"] < 0.7 * whole


def test_estimates_take_what_is_not_known_for_something():
    known = estimates((1, 8, 9, 32), (16, 8, 3, 3))["direct"]
    for shape in (("batch", 8, 9, 32), (1, 8, 9, "width"), ("batch", 8, 9, "width")):
        assert estimates(shape, (16, 8, 3, 3))["direct"] == pytest.approx(known, rel=0.3)


@pytest.mark.parametrize("shape", [(0, 3, 5, 5), (2, 0, 5, 5)])
def test_nothing_takes_no_time(shape):
    found = estimates(shape, (4, shape[1], 3, 3))
    assert all(0 <= seconds < 1e-4 for seconds in found.values())
