"""Recipes: plans that another process has compiled, from the disk."""

import dataclasses
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.build import emit
from graphfw.ir.dim import symbol
from graphfw.ir.dim_text import SizeTexts, evaluator, written
from graphfw.ir.op import PURE, Op
from graphfw.runtime.cache import Cache
from graphfw.runtime.executor import Options
from graphfw.runtime.numpy_executor import cache_key, engine
from graphfw.runtime.numpy_executor.compiled import CompiledExecutable
from graphfw.runtime.numpy_executor.executables import RecalledExecutable
from graphfw.runtime.numpy_executor.memory_limited import MemoryLimitedExecutable
from graphfw.runtime.numpy_executor.recipe import restored

ENGINES = []
"""The engines that have been used stay: the runner may be code of any of them."""


def use(cache, monkeypatch):
    """Go on as another process would, that has loaded no code yet."""
    ENGINES.append(engine._engine())
    monkeypatch.setattr(engine, "_made", [engine.Engine(cache)])
    ENGINES.append(engine._engine())


@pytest.fixture(autouse=True)
def kept(monkeypatch, tmp_path):
    """A cache of the test's own, where recipes are kept."""
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    monkeypatch.delenv("GRAPHFW_VERIFY", raising=False)
    monkeypatch.setattr(cache_key, "enabled", True)
    use(Cache(tmp_path), monkeypatch)
    return tmp_path


def recipes(folder):
    return sorted(path for path in folder.iterdir() if path.name.startswith("gp_"))


def trained(dtype=gf.float32, scale=0.5, size="batch"):
    """A small training step with constants, symbolic sizes and random numbers."""
    with gf.Graph() as g:
        x = gf.placeholder((size, 12), dtype, name="x")
        y = gf.placeholder((size,), gf.int64, name="y")
        net = gf.nn.Sequential(gf.nn.Linear(12, 20), gf.nn.ReLU(), gf.nn.Linear(20, 4))
        h = net(x.astype(gf.float32) * scale + np.linspace(0, 1, 12, dtype=np.float32))
        loss = gf.nn.cross_entropy(h + gf.random.normal(h.shape) * 0.01, y)
        train = gf.optim.Adam(0.01).minimize(loss)
    return g, x, y, loss, h, train


def steps(net, arrays, kind):
    """Train for three steps; the last fetches all."""
    g, x, y, loss, h, train = net
    with gf.Session(g, seed=3, verify="off") as session:
        plan = session.compile([loss, h, train], [x, y])
        assert type(plan._run) is kind
        results = [plan(*arrays)[:2] for _ in range(3)]
        return results, session.state_dict(), plan.explain(), plan.source(), plan.program.symbols


def profiled(net, arrays, kind):
    """Profile a plan before anything else is asked of it."""
    g, x, y, loss, _, train = net
    with gf.Session(g, seed=3, verify="off") as session:
        plan = session.compile([loss, train], [x, y])
        assert type(plan._run) is kind
        found = plan.profile(*arrays)
        return plan, sorted(found.timings, key=lambda timing: timing.step)


@pytest.mark.slow
def test_a_recalled_plan_is_profiled_without_being_compiled(kept, monkeypatch, rng):
    net = trained()
    arrays = [rng.normal(size=(6, 12)).astype(np.float32), rng.integers(0, 4, 6)]
    _, wanted = profiled(net, arrays, CompiledExecutable)
    use(Cache(kept), monkeypatch)
    plan, found = profiled(net, arrays, RecalledExecutable)
    assert plan._run._twin is None
    assert [(t.step, t.label, t.location) for t in found] == [
        (t.step, t.label, t.location) for t in wanted
    ]
    assert any(t.least for t in found)
    # Without what is kept for that, it is compiled.
    for path in kept.glob("labels_*"):
        path.write_bytes(b"no labels")
    use(Cache(kept), monkeypatch)
    plan, again = profiled(net, arrays, RecalledExecutable)
    assert plan._run._twin is not None
    assert [t.label for t in again] == [t.label for t in wanted]


def test_a_run_that_takes_too_long_says_on_which_line(rng):
    lines = []
    for kind in (CompiledExecutable, RecalledExecutable):
        with gf.Graph() as g:
            x = gf.placeholder((), name="x")
            y = gf.sum(gf.sin(gf.arange(2**36) * x))
            z = gf.exp(y)
        with gf.Session(g, verify="off") as session:
            plan = session.compile(z, [x])
            assert type(plan._run) is kind
            with pytest.raises(gf.errors.RunTimeoutError, match="it was computing") as caught:
                plan(1.0, timeout=0.01)
        lines.append(str(caught.value))
        assert "gf.arange(2**36)" in lines[-1]
    assert lines[0] == lines[1]


def fed(rng, n=9):
    return rng.standard_normal((n, 12), dtype=np.float32), rng.integers(0, 4, n)


@pytest.mark.slow
def test_a_recalled_plan_does_what_the_compiled_one_did(rng, kept):
    arrays = fed(rng)
    first = steps(trained(), arrays, CompiledExecutable)
    assert len(recipes(kept)) == 1
    second = steps(trained(), arrays, RecalledExecutable)
    assert len(recipes(kept)) == 1
    for a, b in zip(first[0], second[0], strict=True):
        for left, right in zip(a, b, strict=True):
            np.testing.assert_array_equal(left, right)
    for name, content in first[1].items():
        np.testing.assert_array_equal(content, second[1][name])
    assert first[3] == second[3]
    assert first[2].count("\n") == second[2].count("\n")


@pytest.mark.slow
def test_passes_run_only_when_somebody_asks(rng):
    for _ in range(2):
        g, x, y, loss, h, train = trained()
        with gf.Session(g, verify="off") as session:
            plan = session.compile([loss, train], [x, y])
            plan(*fed(rng))
    assert "_passed" not in vars(plan.program)
    assert "simplify" in plan.explain()
    assert "_passed" in vars(plan.program)


def scored(weights, factor):
    """A network whose constants take more bytes than recipes are to have, one of them scaled."""
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3, 10, 10), name="x")
        y = gf.conv(x, gf.constant(weights[0]), padding=1) * gf.constant(factor[:, None, None])
        y = gf.relu(y).reshape((-1, 900)) @ gf.permute_dims(gf.constant(weights[1]), (1, 0))
        y = y + gf.constant(weights[2])
    return g, x, y


@pytest.mark.slow
def test_constants_of_the_program_are_not_stored_again(rng, kept):
    shapes = (9, 3, 3, 3), (1000, 900), (1000,)
    weights = [rng.standard_normal(shape, np.float32) for shape in shapes]
    factor = rng.standard_normal(9).astype(np.float32)
    x_array = rng.standard_normal((4, 3, 10, 10), np.float32)
    results = []
    for kind in (CompiledExecutable, RecalledExecutable):
        g, x, y = scored(weights, factor)
        with gf.Session(g, verify="off") as session:
            plan = session.compile(y, [x])
            assert type(plan._run) is kind
            results.append(plan(x_array))
            assert "scaled 1" in plan.explain()
    np.testing.assert_array_equal(*results)
    (recipe,) = recipes(kept)
    assert recipe.stat().st_size < 50_000
    for changed in (*weights, factor):
        index = tuple([int(rng.integers(0, size)) for size in changed.shape])
        changed[index] += 1
        g, x, y = scored(weights, factor)
        with gf.Session(g, verify="off") as session:
            plan = session.compile(y, [x])
            assert type(plan._run) is CompiledExecutable
            assert not np.array_equal(plan(x_array), results[0])


def test_prepared_operands_follow_the_variables(rng, kept):
    results = []
    for kind in (CompiledExecutable, RecalledExecutable):
        with gf.Graph() as g:
            x = gf.placeholder(("n", 300), name="x")
            w = gf.Variable(gf.nn.init.zeros, shape=(300, 200), name="w")
            y = gf.relu(x @ w)
        with gf.Session(g, verify="off") as session:
            plan = session.compile(y, [x])
            assert type(plan._run) is kind
            assert plan._run.loaded.recipe.prepared
            generator = np.random.default_rng(5)
            fed_ = generator.standard_normal((40, 300), dtype=np.float32)
            for _ in range(2):
                session["w"] = generator.standard_normal((300, 200), dtype=np.float32)
                results.append(plan(fed_))
    np.testing.assert_array_equal(results[0], results[2])
    np.testing.assert_array_equal(results[1], results[3])
    assert not np.array_equal(results[0], results[1])


@pytest.mark.parametrize("dtype", [gf.float32, gf.bfloat16, gf.bool, gf.int8])
def test_constants_are_stored(dtype, rng):
    values = rng.integers(0, 2, (7, 1000)).astype(dtype.dtype)
    found = []
    for kind in (CompiledExecutable, RecalledExecutable):
        with gf.Graph() as g:
            x = gf.placeholder((7, 1000), dtype, name="x")
            y = gf.where(x == gf.asarray(values), 1, 2)
        with gf.Session(g, verify="off") as session:
            plan = session.compile(y, [x])
            assert type(plan._run) is kind
            assert plan._run.loaded.recipe.constants
            found.append(plan(values[:, ::-1]))
    np.testing.assert_array_equal(*found)
    np.testing.assert_array_equal(found[0], np.where(values[:, ::-1] == values, 1, 2))


def key(net, **options):
    g, x, y, loss, _, train = net
    with gf.Session(g, verify="off") as session:
        program = session.compile([loss, train], [x, y]).program
    return cache_key.key_of(program, dataclasses.replace(Options(), **options))


@pytest.mark.slow
def test_keys_differ_where_programs_do(monkeypatch):
    same = key(trained())
    assert same == key(trained()) == key(trained(), threads=1)
    others = [
        key(trained(scale=0.25)),
        key(trained(scale=-0.0)),
        key(trained(scale=0.0)),
        key(trained(dtype=gf.float16)),
        key(trained(size="n")),
        key(trained(size=9)),
        key(trained(), matmul_precision="high"),
    ]
    monkeypatch.setattr(cache_key, "_compiler", lambda: "another")
    others.append(key(trained()))
    assert None not in others
    assert len({same, *others}) == len(others) + 1


@pytest.mark.slow
def test_who_looks_at_the_compiler_gets_the_compiler(rng, tmp_path, monkeypatch):
    g, x, y, loss, _, train = trained()

    def kind(**options):
        with gf.Session(g, **{"verify": "off", **options}) as session:
            return type(session.compile([loss, train], [x, y])._run)

    assert [kind(), kind()] == [CompiledExecutable, RecalledExecutable]
    assert kind(memory_limit="1GiB") is MemoryLimitedExecutable
    assert kind(verify="each") is CompiledExecutable
    monkeypatch.setenv("GRAPHFW_STOP_AFTER", "2")
    assert kind() is CompiledExecutable
    monkeypatch.delenv("GRAPHFW_STOP_AFTER")
    monkeypatch.setenv("GRAPHFW_DUMP", str(tmp_path / "dump"))
    assert kind() is CompiledExecutable
    monkeypatch.delenv("GRAPHFW_DUMP")
    assert kind() is RecalledExecutable


class Doubled(Op):
    """An operation that is not graphfw's own."""

    name = "test_recipe_doubled"
    traits = frozenset({PURE})
    vjp = None

    def shape(self, x):
        return x

    def dtype(self, x):
        return x

    def eval(self, xp, x):
        return x * 2


def test_operations_of_others_are_compiled_anew(kept):
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        y = emit(Doubled(), x)
    with gf.Session(g, verify="off") as session:
        np.testing.assert_array_equal(session.run(y, {x: [1.0, 2.0]}), [2, 4])
    assert not recipes(kept)


def test_plans_with_nodes_outside_of_native_code_are_not_kept(kept):
    for _ in range(2):
        with gf.Graph() as g:
            x = gf.placeholder(("n",), gf.complex64, name="x")
            y = gf.abs(gf.fft.fft(x)) + 1
        with gf.Session(g, verify="off") as session:
            plan = session.compile(y, [x])
            assert type(plan._run) is CompiledExecutable
            np.testing.assert_array_equal(plan(np.array([3 + 4j], np.complex64)), [6])
    assert not recipes(kept)


def looped(factor=2.0, iterations=5, *, backwards=False):
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        xs = gf.placeholder((iterations,), name="xs")
        rows = gf.scan(lambda c, v: (gf.sin(c) * factor + v, c), x, xs, reverse=backwards)[1]
    return g, x, xs, rows


def test_plans_with_loops_that_are_kernels_are_recalled(rng, kept):
    results = []
    for kind in (CompiledExecutable, RecalledExecutable):
        g, x, xs, rows = looped()
        with gf.Session(g, verify="off") as session:
            plan = session.compile(rows, [x, xs])
            assert type(plan._run) is kind
            results.append(plan(np.ones(3, np.float32), np.arange(5, dtype=np.float32)))
            assert "its iterations are one kernel" in plan.explain()
    np.testing.assert_array_equal(*results)


@pytest.mark.slow
def test_keys_differ_where_bodies_do():
    def key_of(*args, **kwargs):
        g, x, xs, rows = looped(*args, **kwargs)
        with gf.Session(g, verify="off") as session:
            return cache_key.key_of(session.compile(rows, [x, xs]).program, Options())

    keys = [key_of(), key_of(3.0), key_of(iterations=6), key_of(backwards=True)]
    assert len(set(keys)) == 4
    assert keys[0] == key_of()
    assert None not in keys


@pytest.mark.parametrize("damage", ["cut", "text", "function", "absent", "size"])
@pytest.mark.slow
def test_what_is_not_sound_is_compiled_anew(damage, rng, kept, monkeypatch):
    arrays = fed(rng)
    first = steps(trained(), arrays, CompiledExecutable)
    (path,) = recipes(kept)
    cache = Cache(kept)
    content = cache.load(path.name)
    end = 8 + int.from_bytes(content[:8], "little")
    facts = json.loads(content[8:end])
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    elif damage == "text":
        cache.store(path.name, content[:20])
    elif damage == "absent":
        use(cache, monkeypatch)
        (kept / cache.load(facts["functions"][0]).decode()).unlink()
    else:
        if damage == "function":
            facts["functions"][0] = "gf_" + "0" * 40
        else:
            facts["sizes"][1][0] = "__import__('os').getpid()"
        text = json.dumps(facts).encode()
        cache.store(path.name, len(text).to_bytes(8, "little") + text + content[end:])
    second = steps(trained(), arrays, CompiledExecutable)
    np.testing.assert_array_equal(first[0][-1][1], second[0][-1][1])
    steps(trained(), arrays, RecalledExecutable)


@pytest.mark.slow
def test_a_recipe_survives_being_stored(rng):
    g, x, y, loss, _, train = trained()
    with gf.Session(g, verify="off") as session:
        plan = session.compile([loss, train], [x, y])
    recipe = plan._run.loaded.recipe
    again = restored(recipe.stored([]), [])
    for field in dataclasses.fields(recipe):
        if field.name != "constants":
            assert getattr(again, field.name) == getattr(recipe, field.name)
    assert again.constants.keys() == recipe.constants.keys()
    assert again.is_plain == recipe.is_plain is False


def test_sizes_that_say_something_else_are_refused():
    n = symbol("n")
    sizes = written([n * 2, (n + 5) // 3, 7, n * 2], ["n"])
    sizes.check()
    assert evaluator(sizes)(4) == (8, 3, 7, 8)
    for text in ("n.real", "m", "print(n)", "[n]", "n if n else 1", "'n'", "n;n", "lambda: n", ""):
        with pytest.raises(ValueError, match="is no size"):
            SizeTexts(("n",), (text,), (0,)).check()
    with pytest.raises(ValueError, match="no symbols"):
        SizeTexts(("n=print()",), ("7",), (0,)).check()
    odd = written([symbol("max") + 1, symbol("min")], ["max", "min"])
    odd.check()
    assert evaluator(odd)(3, 4) == (4, 4)


PROGRAM = """
import sys
import numpy as np
import graphfw as gf
with gf.Graph() as g:
    x = gf.placeholder(("n", 8), name="x")
    y = gf.softmax(x @ gf.Variable(np.ones((8, 5), np.float32), name="w"))
with gf.Session(g, verify="off") as session:
    plan = session.compile(y, feeds=[x])
    print(plan(np.ones((3, 8), np.float32)).sum().round())
print(type(plan._run).__name__, "graphfw.runtime.kernels.lower" in sys.modules)
"""


@pytest.mark.slow
def test_the_next_process_needs_no_compiler(kept):
    environment = {**os.environ, "GRAPHFW_CACHE": str(kept)}

    def output():
        run = [sys.executable, "-c", PROGRAM]
        made = subprocess.run(run, env=environment, capture_output=True, text=True, check=True)
        return made.stdout.split()

    assert output() == ["3.0", "CompiledExecutable", "True"]
    assert output() == ["3.0", "RecalledExecutable", "False"]
