"""`gf.function`: what a build serves, what it keeps, and what it says of mistakes."""

import gc
import threading
import warnings
import weakref
from typing import NamedTuple

import numpy as np
import pytest

import graphfw as gf


def counted(fn, **options):
    """Return the function of a function, and a list that grows with each call of the latter."""
    calls = []

    def traced(*args, **kwargs):
        calls.append(args)
        return fn(*args, **kwargs)

    return gf.function(**options)(traced), calls


def test_arrays_in_and_out(rng: np.random.Generator):
    @gf.function
    def scaled(x, factor):
        """Scale."""
        return x * factor

    a, b = rng.normal(size=(5, 3)), rng.normal(size=(3,))
    result = scaled(a, b)
    assert type(result) is np.ndarray
    assert result.dtype == np.float64
    np.testing.assert_array_equal(result, a * b)
    assert scaled.__name__ == "scaled"
    assert scaled.__doc__ == "Scale."


class Pair(NamedTuple):
    first: object
    second: object


def test_structures_in_and_out():
    @gf.function
    def shifted(pair, options):
        total = pair.first + options["shift"]
        return {"pair": Pair(total, [pair.second, None]), "numbers": (3, 2.5)}

    pair = Pair(np.float32([1, 2]), np.int64(7))
    found = shifted(pair, {"shift": np.float32(10)})
    assert list(found) == ["pair", "numbers"]
    assert type(found["pair"]) is Pair
    np.testing.assert_array_equal(found["pair"].first, np.float32([11, 12]))
    assert found["pair"].second == [7, None]
    assert found["numbers"] == (3, 2.5)


def test_a_build_serves_all_sizes(rng: np.random.Generator):
    add, calls = counted(lambda x, y: gf.sum(x + y, axis=0))
    for n, m in ((5, 3), (7, 2), (2, 11), (0, 4), (3, 0)):
        x, y = rng.normal(size=(n, m)), rng.normal(size=(n, m))
        np.testing.assert_allclose(add(x, y), (x + y).sum(0))
    assert len(calls) == 1


def test_equal_dims_and_dims_of_one_have_builds_of_their_own(rng: np.random.Generator):
    add, calls = counted(lambda x, y: x + y)
    for x_shape, y_shape, builds in (
        ((4, 3), (4, 3), 1),
        ((4, 3), (1, 3), 2),
        ((5, 6), (1, 6), 2),
        ((4, 3), (3,), 3),
        ((4, 4), (4,), 4),
        ((1, 1), (1, 1), 5),
        ((9, 2), (9, 2), 5),
    ):
        x, y = rng.normal(size=x_shape), rng.normal(size=y_shape)
        np.testing.assert_array_equal(add(x, y), x + y)
        assert len(calls) == builds


def test_what_else_decides_about_builds():
    same, calls = counted(lambda x, *options, **named: x + 1)
    x = np.ones(3, np.float32)
    for number, (args, named) in enumerate(
        [
            ((x,), {}),
            ((x.astype(np.float64),), {}),
            ((x, 1), {}),
            ((x, True), {}),
            ((x, 1.0), {}),
            ((x, 0.0), {}),
            ((x, -0.0), {}),
            ((x, float("nan")), {}),
            ((x,), {"mode": "a"}),
            ((x,), {"mode": "b"}),
            (([x],), {}),
        ],
        1,
    ):
        if isinstance(args[0], list):
            with pytest.raises(TypeError):
                same(*args, **named)
            continue
        same(*args, **named)
        same(*args, **named)
        assert len(calls) == number


def test_arguments_by_name_and_by_position_are_the_same():
    def power(x, exponent=2):
        return x**exponent

    calls = []
    function = gf.function(lambda x, exponent=2: calls.append(0) or power(x, exponent))
    x = np.float64([3.0])
    assert [f.item() for f in (function(x), function(x, 2), function(x=x, exponent=2))] == [9] * 3
    assert len(calls) == 1


def test_ambient_choices_have_builds_of_their_own():
    function, calls = counted(lambda x: gf.nn.Dropout(0.5)(x))
    x = np.ones(50, np.float32)
    assert not np.array_equal(function(x), x)
    with gf.training(False):
        np.testing.assert_array_equal(function(x), x)
    with gf.default_dtype(gf.float64):
        function(x)
    assert len(calls) == 3


def test_sizes_that_meet_a_weight_are_known(rng: np.random.Generator):
    weights = rng.normal(size=(4, 2)).astype("float32")
    product, calls = counted(lambda x: x @ weights)
    for n in (5, 7, 3):
        x = rng.normal(size=(n, 4)).astype("float32")
        np.testing.assert_allclose(product(x), x @ weights, rtol=1e-5)
    assert len(calls) == 3  # all symbolic, all known, all but one known; and never again
    square = rng.normal(size=(4, 4)).astype("float32")
    np.testing.assert_allclose(product(square), square @ weights, rtol=1e-5)


def test_sizes_that_python_needs_are_known():
    rows, calls = counted(lambda x: [x[i] * i for i in range(x.shape[0])])
    assert [float(r[0]) for r in rows(np.ones((3, 2)))] == [0, 1, 2]
    before = len(calls)
    assert len(rows(np.ones((3, 9)))) == 3  # for any number of columns
    assert len(calls) == before
    assert len(rows(np.ones((4, 9)))) == 4


def test_a_mistake_is_told_with_the_sizes_of_the_call():
    weights = np.ones((4, 2), np.float32)

    @gf.function
    def product(x):
        return x @ weights

    with pytest.raises(gf.ShapeError) as caught:
        product(np.ones((5, 3), np.float32))
    text = str(caught.value)
    assert "contracting dims differ: x1[-1] = 3, x2[-2] = 4" in text
    assert '"x"' in text
    assert "test_functions.py" in text
    assert "return x @ weights" in text
    product(np.ones((5, 4), np.float32))  # nothing is left open, nor kept


def test_python_if_names_what_to_use():
    @gf.function
    def signed(x):
        return x if gf.sum(x) > 0 else -x

    with pytest.raises(gf.ConcreteValueError) as caught:
        signed(np.ones(3))
    assert "gf.where(condition, a, b)" in caught.value.fix
    assert "gf.cond(condition, f, g)" in caught.value.fix


def test_with_tensors_or_inside_a_graph_it_is_the_function_itself():
    double = gf.function(lambda x: x + x)
    assert isinstance(double(gf.asarray([1.0])), gf.Tensor)
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
        y = double(x) + double(np.ones(3, np.float32))
    assert y.graph is g
    assert repr(double).endswith("0 builds>")
    quadruple = gf.function(lambda x: double(double(x)))
    assert quadruple(np.float32(1)) == 4
    slope = gf.function(lambda x: gf.grad(double(x), x))
    assert slope(np.float32(5)) == 2


class Model:
    def __init__(self, factor):
        self.factor = factor

    @gf.function
    def __call__(self, x):
        return x * self.factor

    @gf.function
    def shifted(self, x, by=1):
        return self(x) + by


def test_methods():
    two, three = Model(2.0), Model(3.0)
    x = np.float64([1.0])
    assert [two(x).item(), three(x).item(), two.shifted(x, by=2).item()] == [2, 3, 4]
    assert isinstance(Model.shifted, gf.Function)


def test_without_arrays_and_without_results():
    seen = []
    nothing = gf.function(lambda x=None: seen.append(x))
    assert nothing() is None
    assert nothing(np.ones(3)) is None
    assert len(seen) == 2
    assert gf.function(lambda: gf.asarray(3) * 2)() == 6


def test_unused_arguments_and_arguments_as_results():
    first = gf.function(lambda x, y: (x, x))
    a = np.float32([1, 2])
    one, other = first(a, np.ones(5))
    one[0] = 9
    assert a[0] == other[0] == 1


# Variables.


def test_variables_are_made_once_and_updates_take_effect():
    @gf.function
    def count(x):
        total = gf.Variable(0.0, name="total", trainable=False)
        gf.update(total, total + gf.sum(x))
        return total

    assert [float(count(np.float32([1, 2]))) for _ in range(3)] == [0, 3, 6]
    assert float(count(np.float32([[1, 2]]))) == 9  # another build, the same variable
    assert float(count.session["total"]) == 12
    assert [v.name for v in count.session.graph.variables] == ["total"]


def test_variables_that_are_kept_by_python():
    kept = {}

    @gf.function
    def scale(x):
        if not kept:
            kept["w"] = gf.Variable(np.full(4, 2.0, np.float32), name="w")
        return x * kept["w"]

    assert scale(np.ones((3, 4), np.float32)).sum() == 24  # found by trying: x has 4 columns
    assert scale(np.ones((4, 4), np.float32)).sum() == 32
    assert [v.name for v in scale.session.graph.variables] == ["w"]


def test_layers_and_optimisers(rng: np.random.Generator):
    optimizer = gf.optim.Adam(0.05)
    x = rng.normal(size=(64, 3)).astype("float32")
    y = x @ np.float32([[1], [2], [3]])

    @gf.function
    def train(x, y):
        model = gf.nn.Linear(3, 1)
        loss = gf.mean((model(x) - y) ** 2)
        optimizer.minimize(loss)
        return loss

    first = train(x, y)
    for n in (64, 3, 1, 64) * 60:  # three builds, one model
        last = train(x[:n], y[:n])
    assert last < first / 100
    names = [v.name for v in train.session.graph.variables]
    assert names[:3] == ["linear.weight", "linear.bias", "adam.step"]
    assert len(names) == 7
    assert int(train.session["adam.step"]) == 241


def test_statistics_of_layers_follow_training_alone(rng: np.random.Generator):
    x = rng.normal(3.0, size=(32, 4)).astype("float32")

    @gf.function
    def apply(x, train):
        model = gf.nn.Sequential(gf.nn.BatchNorm(4), gf.nn.Linear(4, 1))
        loss = gf.mean(model(x) ** 2)
        if train:
            gf.optim.SGD(0.1).minimize(loss)
        return loss

    apply(x, False)
    state = apply.session.state_dict()
    (mean,) = [name for name in state if name.endswith("mean")]
    assert not state[mean].any()
    apply(x, True)
    assert apply.session[mean].all()


def test_functions_share_a_session(rng: np.random.Generator):
    with gf.Graph() as g:
        model = gf.nn.Linear(3, 1)
    with gf.Session(g, seed=3) as session:

        @gf.function(session=session)
        def train(x, y):
            loss = gf.mean((model(x) - y) ** 2)
            gf.optim.SGD(0.1).minimize(loss)
            return loss

        @gf.function(session=session)
        def predict(x):
            return model(x)

        x = rng.normal(size=(40, 3)).astype("float32")
        y = x @ np.float32([[1], [2], [3]])
        before = predict(x)
        for _ in range(200):
            train(x, y)
        assert np.abs(before - y).max() > 1
        np.testing.assert_allclose(predict(x), y, atol=1e-2)
        assert train.session is predict.session is session
        np.testing.assert_allclose(session["linear.weight"], [[1], [2], [3]], atol=1e-2)


def test_a_variable_has_one_shape():
    @gf.function
    def wrong(x):
        return x + gf.Variable(np.zeros(x.ndim), name="w")[0]

    wrong(np.ones(3))
    with pytest.raises(gf.GraphError) as caught:
        wrong(np.ones((3, 3)))
    assert 'a variable "w" that is float32[1] in one build and float32[2] in another' in str(
        caught.value
    )


def test_a_name_of_the_session_is_taken():
    with gf.Graph() as g:
        gf.Variable(1.0, name="w")
    with gf.Session(g) as session:
        again = gf.function(session=session)(lambda x: x * gf.Variable(2.0, name="w"))
        with pytest.raises(gf.GraphError, match='a variable named "w" exists already'):
            again(np.ones(2))


def test_names_inside_are_free_in_each_build():
    named = gf.function(lambda x: gf.identity(x * 2, name="doubled"))
    assert named(np.ones(2)).sum() == 4
    assert named(np.ones((2, 3))).sum() == 12


def test_random_draws_follow_the_seed():
    def noise(x):
        return x + gf.random.normal(x.shape)

    x = np.zeros(5, np.float32)
    one, again, other = (gf.function(seed=s)(noise) for s in (1, 1, 2))
    first, second = one(x), one(x)
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(again(x), first)
    assert not np.array_equal(other(x), first)


def test_a_failed_call_changes_nothing(monkeypatch):
    monkeypatch.setenv("GRAPHFW_VERIFY", "each")  # "values" calls the host's function too

    def failing(values):
        raise ValueError("no")

    @gf.function
    def count(x, fail):
        total = gf.Variable(0.0, name="total")
        gf.update(total, total + 1)
        return gf.host_call(failing, x.type, x) if fail else total

    x = np.float32(1)
    count(x, False)
    with pytest.raises(gf.ExecutionError, match="no"):
        count(x, True)
    assert count(x, False) == 1


# Sessions, threads, plans.


def test_many_threads_build_once(rng: np.random.Generator):
    function, calls = counted(lambda x: gf.cumulative_sum(gf.exp(x)))
    x = rng.normal(size=100)
    results = []
    barrier = threading.Barrier(8)

    def work():
        barrier.wait()
        results.extend([function(x) for _ in range(5)])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert len(results) == 40
    for result in results:
        np.testing.assert_allclose(result, np.cumsum(np.exp(x)))


def test_the_session_is_closed_with_the_function():
    function = gf.function(lambda x: x + 1)
    function(np.ones(2))
    session = function.session
    gone = weakref.ref(function)
    del function
    gc.collect()
    assert gone() is None
    with pytest.raises(gf.SessionError, match="closed"):
        session.state_dict()


def test_the_executor_is_chosen():
    function = gf.function(executor="meta")(lambda x: x + 1)
    assert function.session.executor.name == "meta"
    with gf.default_executor("meta"):
        function = gf.function(lambda x: x + 1)
        assert function.session.executor.name == "meta"


def test_the_plan_of_a_call():
    function = gf.function(lambda x: gf.exp(x) + 1)
    plan = function.plan(np.ones((2, 3), np.float32))
    assert "exp" in plan.explain()
    assert function.plan(np.ones((4, 5), np.float32)) is plan
    with pytest.raises(gf.ArgumentError, match="there is nothing to run"):
        function.plan(gf.asarray(1.0))


# Mistakes and warnings.


def test_arguments_that_are_no_good():
    function = gf.function(lambda x, y=0: x)
    with pytest.raises(gf.ArgumentError) as caught:
        function(np.ones(2), {1, 2})
    assert "the argument y is a set, neither an array nor hashable" in str(caught.value)
    with pytest.raises(gf.DTypeError, match="the argument x_0: elements of dtype <U1 are not"):
        function([np.array(["a"])])
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        function()
    with pytest.raises(gf.ArgumentError, match="returns a str, which can't be the value of a"):
        gf.function(lambda x: "text")(np.ones(2))
    with pytest.raises(gf.ArgumentError, match="3 is no function"):
        gf.function(3)
    with pytest.raises(gf.ArgumentError, match="session is a str, no Session"):
        gf.function(session="numpy")
    with gf.Graph() as g:
        pass
    with gf.Session(g) as session, pytest.raises(gf.ArgumentError, match="a seed of its own"):
        gf.function(session=session, seed=3)


def test_large_arrays_from_around_are_warned_of_once():
    large = np.ones((600, 600))
    small = np.ones((2, 2))

    @gf.function
    def shifted(x):
        return x + gf.sum(large) + gf.sum(small)  # here

    with pytest.warns(UserWarning, match=r"a float64\[600, 600\] of 2.7 MiB becomes a") as caught:
        shifted(np.ones(3))
    shifted(np.ones((3, 3)))  # warnings are errors here
    (warning,) = caught
    assert warning.filename == __file__
    with open(__file__) as file:
        assert "# here" in file.readlines()[warning.lineno - 1]


def test_ever_new_values_are_warned_of():
    scaled = gf.function(lambda x, rate: x * rate)
    x = np.ones(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(15):
            scaled(x, i / 7)
    with pytest.warns(UserWarning, match=r"built for 16 different values .* np.float32\(x\)") as w:
        scaled(x, 99.0)
    scaled(x, 100.0)
    assert len(w) == 1
    assert w[0].filename == __file__
