"""Options of the sessions of models and functions that are made outside of graphs."""

import copy
import inspect
import pickle
import warnings

import numpy as np
import pytest

import graphfw as gf

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


def finite():
    return gf.model_session_options(check_finite=True)


def is_checked(session):
    return session._runs.check_finite


def test_the_options_are_those_of_a_session():
    own = inspect.signature(gf.model_session_options).parameters
    kinds = inspect.signature(gf.Session).parameters.items()
    # Programs of several processes describe a graph.
    wanted = [name for name, p in kinds if p.kind is p.KEYWORD_ONLY]
    assert list(own) == [name for name in wanted if name not in ("mesh", "reduction", "shards")]


def test_a_model_keeps_them_after_the_block():
    with gf.model_session_options(threads=1, timeout=60, verify="each"):
        model = gf.nn.Linear(3, 1)
    other = gf.nn.Linear(3, 1)
    assert (model.session.options.threads, model.session.timeout) == (1, 60)
    assert model.session._verify == "each"
    assert (other.session.options.threads, other.session.timeout) == (None, None)
    model(X)


def test_a_function_has_those_of_its_definition():
    with finite():
        log = gf.function(lambda x: gf.log(x))

        @gf.function(seed=1)
        def draws(x):
            return x + gf.random.normal(x.shape)

    with pytest.raises(gf.ExecutionError, match="log gives -inf"):
        log(np.zeros(2, np.float32))
    assert is_checked(draws.session)
    other = gf.function(lambda x: gf.log(x))
    with finite(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.isneginf(other(np.zeros(2, np.float32))).all()


def test_a_step_has_those_of_its_model():
    with finite():
        model = gf.nn.Linear(3, 1)
    optimizer = gf.optim.SGD(np.inf)

    @gf.function
    def step(x):
        loss = gf.mean(model(x) ** 2)
        optimizer.minimize(loss)
        return loss

    before = model.weight.numpy()
    with pytest.raises(gf.ExecutionError):
        step(X)
    np.testing.assert_array_equal(model.weight.numpy(), before)


def test_debug_and_passes():
    seen = []
    with gf.model_session_options(debug=lambda node, ins, outs: seen.append(node.op.name)):
        model = gf.nn.Linear(3, 1)
    expected = X @ model.weight.numpy() + model.bias.numpy()
    np.testing.assert_allclose(model(X), expected, rtol=1e-5, atol=1e-6)
    assert "matmul" in seen


def test_a_block_inside_of_another_changes_what_it_names():
    with gf.model_session_options(check_finite=True, threads=2):
        with gf.model_session_options(threads=1):
            inner = gf.nn.Linear(3, 1)
        outer = gf.nn.Linear(3, 1)
    assert (inner.session.options.threads, is_checked(inner.session)) == (1, True)
    assert (outer.session.options.threads, is_checked(outer.session)) == (2, True)


@pytest.mark.parametrize("used", [(), (0,), (1,), (0, 1)], ids=str)
@pytest.mark.parametrize("layers", [1, 3])
def test_what_joins_takes_the_options_of_the_other(used, layers):
    with finite():
        chosen = gf.nn.Linear(3, 3)
    plain = gf.nn.Sequential(*[gf.nn.Linear(3, 3) for _ in range(layers)])
    models = [chosen, plain]
    before = {i: models[i](X) for i in used}
    both = gf.nn.Sequential(chosen, plain)
    both(X)
    assert is_checked(both.session)
    assert chosen.session is plain.session is both.session
    for i, found in before.items():
        np.testing.assert_array_equal(models[i](X), found)


def test_a_block_around_the_call_of_a_model_changes_nothing():
    with gf.model_session_options(threads=1):
        model = gf.nn.Linear(3, 1)
    with finite():
        model(X)
    assert not is_checked(model.session)
    assert model.session.options.threads == 1


def test_options_that_differ_are_refused_and_nothing_changes():
    with finite():
        a = gf.nn.Linear(3, 3)
    with gf.model_session_options(threads=1):
        b = gf.nn.Linear(3, 3)
    sessions = a.session, b.session
    found = a(X), b(X)
    with pytest.raises(gf.GraphError, match="check_finite=True, the other one with threads=1"):
        gf.nn.Sequential(a, b)
    both = gf.function(lambda x: a(x) + b(x))
    with pytest.raises(gf.GraphError, match="a session with") as caught:
        both(X)
    assert "the same `with gf.model_session_options" in caught.value.fix
    assert (a.session, b.session) == sessions
    np.testing.assert_array_equal([a(X), b(X)], found)


def test_an_executor_that_refuses_the_options_changes_nothing():
    with gf.default_executor("meta"):
        shapes = gf.nn.Linear(3, 3)
    assert shapes.session.executor.name == "meta"
    with gf.model_session_options(debug=True):
        debugged = gf.nn.Linear(3, 3)
    both = gf.function(lambda x: shapes(x) + debugged(x))
    for _ in range(2):
        with pytest.raises(gf.errors.ExecutorError, match="debug"):
            both(X)
    assert shapes(X).shape == (4, 3)
    assert debugged(X).shape == (4, 3)


def test_copies_have_the_options_of_their_block():
    with gf.model_session_options(debug=lambda *node: None):
        model = gf.nn.Sequential(gf.nn.Linear(None, 2), gf.nn.ReLU())
    y = model(X)
    assert model.session.graph.options
    plain = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    with finite():
        chosen = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    assert [is_checked(other.session) for other in (*plain, *chosen)] == [False, False, True, True]
    for other in (*plain, *chosen):
        np.testing.assert_allclose(other(X), y, rtol=1e-5, atol=1e-6)


def test_the_executor_of_the_block():
    """It is that of the block in which a model or function is made, not of the first call."""
    with gf.default_executor("meta"):
        model = gf.nn.Linear(3, 1)
        function = gf.function(lambda x: x + 1)
        other, third = gf.nn.Linear(1, 1), gf.nn.Linear(1, 1)
    assert model.session.executor.name == function.session.executor.name == "meta"
    assert gf.nn.Sequential(model, other).session.executor.name == "meta"
    numpy = gf.nn.Linear(1, 1)
    numpy.weight.numpy()
    with gf.default_executor("numpy"):
        named = gf.nn.Linear(3, 1)
    of_object = gf.function(executor=numpy.session.executor)(lambda x: named(x))
    assert of_object(X).shape == (4, 1)
    with pytest.raises(gf.GraphError, match="is to run on 'meta', and the weights of the other"):
        gf.nn.Sequential(third, numpy)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"check_finit": True}, "unexpected keyword argument 'check_finit'"),
        ({"executor": "meta"}, "unexpected keyword argument 'executor'"),
        ({"check_finite": "yes"}, "check_finite='yes' is neither True nor False"),
        ({"threads": 0}, "threads=0 is no number of threads"),
        ({"verify": "all"}, "'all' is no level of checking"),
        ({"memory_limit": "much"}, "memory_limit='much' is no number of bytes"),
        ({"timeout": -1}, "timeout"),
        ({"precision_overrides": {"x": "float32"}}, "precision"),
    ],
)
def test_what_is_no_option(options, why):
    with pytest.raises(gf.ArgumentError, match=why) as caught:
        gf.model_session_options(**options)
    if "executor" in options:
        assert "verify, check_finite, threads, memory_limit" in caught.value.fix
