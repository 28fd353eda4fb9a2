"""The CuPy executor without a GPU: whole programs, on a stand-in for CuPy that runs on the CPU."""

import itertools

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ExecutionError
from graphfw.ir.dim_text import evaluate
from graphfw.runtime.cupy_executor.codegen import launch as launching
from tests.strict_xp import plain_array, strict_array
from tests.support.gpu_programs import chain


def both(g, fetches, feeds, runs=1, seed=0):
    """Run on the CPU and on the stand-in; return what each gives, run by run, as NumPy arrays."""
    results = []
    for name in ("numpy", "cupy"):
        with gf.Session(g, executor=name, seed=seed) as session:
            results.append([session.run(fetches, feeds, host=True) for _ in range(runs)])
    return results


def agree(g, fetches, feeds, runs=4, rtol=1e-5):
    """Compare several runs: the first are made by themselves, the last with CUDA graphs."""
    wanted, found = both(g, fetches, feeds, runs)
    for ones, others in zip(wanted, found, strict=True):
        for a, b in zip(ones, others, strict=True):
            if a is None:
                continue
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            a, b = (x.astype(np.float64) if x.dtype.kind == "V" else x for x in (a, b))
            np.testing.assert_allclose(b, a, rtol=rtol, atol=1e-6)


def classifier():
    with gf.Graph() as g:
        words = gf.placeholder(("batch", "time"), gf.int64, name="words")
        label = gf.placeholder(("batch",), gf.int64, name="label")
        table = gf.Variable(gf.nn.init.normal(), shape=(11, 8), name="table")
        x = gf.take(table, words, axis=0)
        gf.identity(gf.sort(x, axis=1), name="ordered")
        x = gf.nn.LayerNorm(8)(x)
        x = gf.nn.Dropout(0.2)(gf.nn.GELU()(gf.nn.Linear(8, 16)(x)))
        loss = gf.nn.cross_entropy(gf.nn.Linear(16, 3)(gf.mean(x, axis=1)), label)
        train = gf.optim.AdamW(1e-2).minimize(loss)
    return g, words, label, loss, train


def test_training_is_that_of_the_cpu(anywhere, rng):
    g, words, label, loss, train = classifier()
    feeds = {words: rng.integers(0, 11, (5, 7)), label: rng.integers(0, 3, 5)}
    agree(g, [loss, train], feeds, runs=6, rtol=1e-4)


def test_random_numbers_are_those_of_the_cpu(anywhere):
    with gf.Graph() as g:
        draws = [
            gf.random.randint(0, 1000, (50,)),
            gf.random.uniform((7, 9)),
            gf.random.bernoulli(0.3, (40,)),
            gf.random.uniform((3,), dtype=gf.float64),
        ]
    wanted, found = both(g, draws, {}, runs=2, seed=5)
    for ones, others in zip(wanted, found, strict=True):
        for a, b in zip(ones, others, strict=True):
            np.testing.assert_array_equal(a, b)
    assert any((a != b).any() for a, b in zip(*found, strict=True)), "two runs draw the same"


def test_operations_without_kernels_between_those_that_have_some(anywhere, rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 4), name="x")
        y = gf.tanh(x * 2.0).T @ (x + 1.0)
        z = gf.sort(y * 0.5, axis=1) - gf.cumulative_sum(y, axis=0)
        fetches = [gf.sum(z, axis=0), gf.concat([z, y], axis=1)[::-1, 1:], gf.linalg.inv(y + 9)]
    agree(g, fetches, {x: rng.normal(size=(6, 4)).astype(np.float32)}, rtol=1e-4)


def test_loops(anywhere, rng):
    with gf.Graph() as g:
        x = gf.placeholder((9, 5), name="x")
        w = gf.placeholder((5, 5), name="w")
        smooth, _ = gf.scan(lambda c, row: (0.9 * c + row, c), x[0], x)
        mixed, _ = gf.scan(lambda c, row: (gf.tanh(c @ w) + row, c), x[0], x)
        (dw,) = gf.grad(gf.sum(mixed), [w])
    feeds = {t: rng.normal(size=t.shape).astype(np.float32) for t in (x, w)}
    agree(g, [smooth, mixed, dw], feeds, rtol=1e-4)


@pytest.mark.parametrize("dtype", [gf.float16, gf.bfloat16, gf.float64], ids=str)
def test_other_floats(anywhere, dtype, rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 6), dtype, name="x")
        y = gf.softmax(x * 2 + 1, axis=1)
        fetches = [y, gf.sum(y * x, axis=0), gf.max(x, axis=0)]
    wanted, found = both(g, fetches, {x: rng.normal(size=(7, 6)).astype(dtype.dtype)})
    for a, b in zip(wanted[0], found[0], strict=True):
        rtol = 1e-12 if dtype is gf.float64 else 2e-2
        np.testing.assert_allclose(b.astype(np.float64), a.astype(np.float64), rtol=rtol)


def test_what_is_fetched_belongs_to_the_caller(fake, rng):
    with gf.Graph() as g:
        x = gf.placeholder((3, 4), name="x")
        v = gf.Variable(np.ones(4, np.float32), name="v")
        y = x + v
        fetches = [x, x.T, y, y, y[1:], v, gf.reshape(y, (12,)), gf.asarray(np.arange(3.0))]
    data = strict_array(rng.normal(size=(3, 4)).astype(np.float32))
    before = plain_array(data).copy()
    with gf.Session(g, executor="cupy") as session:
        values = session.run(fetches, {x: data})
        assert all(type(value) is fake.ndarray for value in values)
        for value in values:
            value[...] = -1
        np.testing.assert_array_equal(plain_array(data), before)
        again = [plain_array(value) for value in session.run(fetches, {x: data})]
    wanted = before + 1
    for found, right in zip(
        again,
        [before, before.T, wanted, wanted, wanted[1:], np.ones(4), wanted.reshape(12), [0, 1, 2]],
        strict=True,
    ):
        np.testing.assert_array_equal(found, right)


def test_feeds_that_lie_anyhow(fake, rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 4), name="x")
        y = x * 2.0
    whole = strict_array(rng.normal(size=(4, 25)).astype(np.float32))
    odd = strict_array(np.zeros(33, np.float32))[1:].reshape(8, 4)
    with gf.Session(g, executor="cupy") as session:
        for fed in (whole.T, odd, plain_array(odd), np.zeros((0, 4), np.float32)):
            found = plain_array(session.run(y, {x: fed}))
            np.testing.assert_array_equal(found, fed.view(np.ndarray) * 2)


def test_arrays_of_other_frameworks_are_taken_in_place(fake, monkeypatch):
    array = strict_array(np.arange(4, dtype=np.float32))
    taken = []

    class Theirs:
        def __dlpack_device__(self):
            return 2, 0

        def __dlpack__(self, **_):
            raise AssertionError("is CuPy's to call")

    monkeypatch.setattr(
        fake, "from_dlpack", lambda value: taken.append(value) or array, raising=False
    )
    with gf.Graph() as g:
        x = gf.placeholder((4,), name="x")
        y = x + 1.0
    with gf.Session(g, executor="cupy") as session:
        home = gf.to_numpy(session.executor.to_host(session.run(y, {x: Theirs()})))
        np.testing.assert_array_equal(home, [1, 2, 3, 4])
        session.run(y, {x: np.zeros(4, np.float32)})
    assert len(taken) == 1


def test_many_sizes_on_one_plan(anywhere, rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", "m"), name="x")
        shifted = x - gf.sum(x, axis=1, keepdims=True)
        fetches = [gf.exp(shifted), gf.sum(shifted * x, axis=0), gf.sum(x)]
    with gf.Session(g, executor="cupy") as gpu, gf.Session(g) as cpu:
        home = gpu.executor.to_host
        ours, theirs = gpu.compile(fetches, [x]), cpu.compile(fetches, [x])
        for shape in [(1, 1), (0, 3), (3, 0), (2, 1500), (300, 40), (7, 5), (9000, 1)]:
            data = (rng.normal(size=shape) * 0.1).astype(np.float32)
            for a, b in zip(ours(data), theirs(data), strict=True):
                np.testing.assert_allclose(home(a), b, rtol=2e-4, atol=1e-4)


def test_an_index_out_of_range_changes_nothing(anywhere, rng):
    g, words, label, loss, train = classifier()
    good = {words: rng.integers(0, 11, (2, 3)), label: rng.integers(0, 3, 2)}
    bad = {words: np.array([[0, 1, 2], [3, 11, 4]]), label: good[label]}
    errors = []
    for name in ("numpy", "cupy"):
        with gf.Session(g, executor=name) as session:
            session.run(train, good)
            before = session.state_dict()
            with pytest.raises(ExecutionError) as caught:
                session.run([loss, train], bad, host=True)
            errors.append(caught.value.summary.partition("failed: ")[2])
            after = session.state_dict()
            for key, value in before.items():
                np.testing.assert_array_equal(np.asarray(after[key]), np.asarray(value))
    # Which of the operations that look there is named is left open.
    assert errors == ["IndexError: index 11 is out of range for dim 0 of size 11"] * 2


def test_sizes_that_are_refused(anywhere):
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        y = gf.max(gf.exp(x))
    with (
        gf.Session(g, executor="cupy") as session,
        pytest.raises(ExecutionError, match="max: axis 0 has size 0"),
    ):
        session.run(y, {x: np.zeros(0, np.float32)})


def test_a_run_asks_for_memory_once_besides_its_outputs(fake, rng):
    with gf.Graph() as g:
        x = gf.placeholder((64, 40), name="x")
        y = gf.sort(gf.sin(x) + 1, axis=1)
        fetches = [gf.sum(y * gf.sum(y, axis=0), axis=1), gf.exp(y)]
    with gf.Session(g, executor="cupy") as session:
        plan = session.compile(fetches, [x])
        data = rng.normal(size=(64, 40)).astype(np.float32)
        plan(data)
        fake.allocated.clear()
        plan(data)
        report = plan.memory()
    assert len(fake.allocated) == 3
    arena, *outputs = fake.allocated
    assert sorted(outputs) == [64 * 4, 64 * 40 * 4]
    assert arena == report.arena + report.of("scratch") + data.nbytes, "what is fed lies behind it"


def test_blocks_that_are_needed_at_once_do_not_overlap(fake, rng):
    g, words, label, loss, train = classifier()
    with gf.Session(g, executor="cupy") as session:
        plan = session.compile([loss, train], [words, label])
        plan(rng.integers(0, 11, (5, 7)), rng.integers(0, 3, 5))
        build = plan._run.build
        layout = plan._run.layout((5, 7))
    assert len(build.blocks) > 3
    ends = []
    for number, block in enumerate(build.blocks):
        begin = layout.offsets[number]
        size = gf.ir.dim_text.evaluate(build.nbytes[number], layout.sizes)
        ends.append(begin + size)
        assert begin % 64 == 0
        for other in range(number):
            theirs = build.blocks[other]
            if block.first <= theirs.last and theirs.first <= block.last:
                assert ends[other] <= begin or begin + size <= layout.offsets[other]
    assert max(ends) <= layout.scratch <= layout.arena


def test_indices_of_64_bits_where_sizes_need_them(fake, rng, monkeypatch):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 40), name="x")
        fetches = [gf.softmax(x, axis=1), gf.sum(x, axis=0), gf.flip(x)]
    data = rng.normal(size=(30, 40)).astype(np.float32)
    with gf.Session(g, executor="cupy") as session:
        plan = session.compile(fetches, [x])
        narrow = plan(data)
        monkeypatch.setattr(launching, "NARROW", 1000)
        wide = plan(np.concatenate([data, data]))
        assert "64-bit indices" in plan.explain((60, 40))
    assert [("-DGF_WIDE" in options) for options in fake.compiled] == [False, True]
    np.testing.assert_array_equal(plain_array(wide[0])[:30], plain_array(narrow[0]))
    np.testing.assert_array_equal(plain_array(wide[2])[30:], plain_array(narrow[2]))


def test_known_sizes_need_one_variant_of_each_kernel(fake):
    found = []
    for n in (64, "n"):
        with gf.Graph() as g:
            x = gf.placeholder((n, 40), name="x")
            y = gf.softmax(x, axis=1)
        with gf.Session(g, executor="cupy") as session:
            plan = session.compile(y, [x])
            plan(np.zeros((64, 40), np.float32))
            found.append(plan.source().count('extern "C" __global__'))
    assert found == [2, 3], (
        "warps or blocks share rows, according to their number; one more is for checks"
    )
    assert len({name for name, *_ in fake.launches}) == 1, "the same kernel"
    assert len(fake.compiled) == 2


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize(
    ("width", "dtype"),
    [("m", "float32"), (8, "bfloat16"), (20, "float32"), (1026, "bfloat16"), (40000, "float32")],
)
def test_each_variant_that_a_run_may_need_is_compiled(fake, width, dtype):
    with gf.Graph() as g:
        x = gf.placeholder(("n", width), dtype, name="x")
        ys = [gf.softmax(x, axis=1), gf.sum(x, axis=1), gf.exp(x), gf.max(x), gf.sum(x, axis=0)]
    with gf.Session(g, executor="cupy") as session:
        plan = session.compile(ys, [x])
        source = plan.source()
        build = plan._run.build
        widths = [1, 4, 31, 32, 64, 1000, 1024, 33000] if width == "m" else [width]
        for n, m in itertools.product((1, 5, 8, 300, 9000), widths):
            env = {"n": n, "m": m}
            for one in build.work:
                made = one.code.launch([evaluate(size, env) for size in one.step.params])
                assert f"{one.code.symbol}_{made.variant}(" in source


def test_rows_are_read_several_elements_at_once(fake):
    with gf.Graph() as g:
        x = gf.placeholder((4096, 512), name="x")
        half = gf.placeholder((4096, 512), gf.bfloat16, name="half")
        ys = [gf.softmax(x, axis=1), gf.softmax(half, axis=1)]
    with gf.Session(g, executor="cupy") as session:
        plan = session.compile(ys, [x, half])
        assert plan.explain().count(": warp_vector, 512 blocks") == 2
        assert "<gf_warp, 4>(" in plan.source()
        assert "<gf_warp, 8>(" in plan.source()


def test_kernels_are_kept_on_disk(fake, monkeypatch, tmp_path):
    monkeypatch.setenv("GRAPHFW_CACHE", str(tmp_path))
    with gf.Graph() as g:
        y = gf.placeholder((3,), name="x") * 3.0
    for _ in range(2):
        with gf.Session(g, executor="cupy") as session:
            session.compile(y, g.placeholders)
    assert len(fake.compiled) == 1
    (options,) = fake.compiled
    assert {"-arch=sm_90", "-fmad=false", "-ftz=false"} <= set(options)


def test_a_plan_tells_about_itself(fake):
    g, words, label, loss, train = classifier()
    with gf.Session(g, executor="cupy") as session:
        ordered = session.compile(g.find("ordered"), [words])
        assert "sort: by CuPy, made at test_executor.py" in ordered.explain((5, 7))
        plan = session.compile([loss, train], [words, label])
        text = plan.explain((5, 7), (5,))
        assert "matmul: by cuBLASLt, made at test_executor.py" in text
        assert "blocks of" in text
        source = plan.source()
        assert source.count('extern "C" __global__') > 8
        report = plan.memory((5, 7), (5,))
        assert report.of("variable") == sum(v.type.nbytes for v in plan.program.variables)
        assert report.arena > 0


def test_a_plan_tells_why_steps_are_not_larger_and_counts_what_is_overwritten_once(fake):
    g, x, y = chain()
    with gf.Session(g, executor="cupy") as session:
        plan = session.compile(g.find("y"), [x])
        assert (
            "reads divide float32[]: it is one number, and others may need it sooner"
            in plan.explain((500, 8))
        )
        report = plan.memory((500, 8))
        kept = sum(e.nbytes for e in report.entries if e.kind != "arena")
        assert max(report.timeline()) <= kept + report.arena == report.peak


def test_node_by_node(fake, monkeypatch, rng):
    g, words, label, loss, train = classifier()
    monkeypatch.setenv("GRAPHFW_JIT", "0")
    feeds = {words: rng.integers(0, 11, (5, 7)), label: rng.integers(0, 3, 5)}
    agree(g, [loss, train], feeds, runs=3, rtol=1e-4)
    assert not fake.launches
