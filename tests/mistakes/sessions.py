"""Mistakes with sessions: what is fed, fetched, assigned, and found in a run."""

from __future__ import annotations

import numpy as np

import graphfw as gf
from tests.mistakes.matrix import BUILD, RUN, mistake


def model():
    with gf.Graph() as g:
        x = gf.placeholder(("batch", 4), name="x")
        labels = gf.placeholder(("batch",), gf.int64, name="labels")
        w = gf.Variable(np.ones((4, 2), np.float32), name="w")
        loss = gf.nn.cross_entropy(x @ w, labels)
        train = gf.optim.SGD(0.1).minimize(loss)
    return gf.Session(g), x, labels, w, loss, train


ROWS = np.ones((3, 4), np.float32)


@mistake(
    RUN,
    gf.FeedError,
    '"x" is [batch, 4] and is fed [3, 5]: dim 1 is 5, not 4',
    fix="feed an array of shape [batch, 4]",
)
def feeding_the_wrong_shape():
    session, x, _, w, *_ = model()
    session.run(w, {x: np.ones((3, 5), np.float32)})  # here


@mistake(
    RUN,
    gf.DTypeError,
    '"w" is float32 and is given float64, which can\'t be converted without loss',
    "w",
    fix='array.astype("float32")',
    builtin=TypeError,
)
def assigning_the_wrong_dtype():
    with gf.Graph() as g:
        w = gf.Variable([1.0, 2.0], name="w")  # w
    gf.Session(g)[w] = np.zeros(2)  # here


@mistake(
    BUILD,
    gf.ConcreteValueError,
    "x[i] = v has no meaning in a graph",
    "x",
    fix="x.at[i].set(v)",
    builtin=TypeError,
)
def assigning_to_an_element():
    x = gf.placeholder((3,), name="x")  # x
    x[0] = 1.0  # here


@mistake(BUILD, gf.ArgumentError, 'the name "session/step" begins with', fix="another name")
def a_variable_with_a_sessions_own_name():
    gf.Variable(0, name="session/step")  # here


@mistake(RUN, gf.FeedError, '"x" is [batch, 4] and is fed [4]: 1 dim, not 2', fix="array[None]")
def feeding_one_example():
    session, x, _, w, *_ = model()
    session.run(w, {x: ROWS[0]})  # here


@mistake(
    RUN,
    gf.FeedError,
    "float64, which can't be converted without loss",
    fix='array.astype("float32")',
)
def feeding_the_wrong_dtype():
    session, x, _, w, *_ = model()
    session.run(w, {x: np.ones((3, 4))})  # here


@mistake(
    RUN, gf.FeedError, 'the dim `batch` is 3 in "x" (dim 0) and 5 in "labels" (dim 0)', fix="agree"
)
def feeding_two_batch_sizes():
    session, x, labels, _, loss, _ = model()
    session.run(loss, {x: ROWS, labels: [0, 1, 0, 1, 0]})  # here


@mistake(RUN, gf.FeedError, 'nothing in this graph is named "X"', fix='"x"')
def feeding_an_unknown_name():
    session, *_, loss, _ = model()
    session.run(loss, {"X": ROWS})  # here


@mistake(RUN, gf.FeedError, "only placeholders are fed", fix="session[variable]")
def feeding_a_variable():
    session, _, _, w, *_ = model()
    session.run(w, {w: np.ones((4, 2))})  # here


@mistake(
    RUN,
    gf.FeedError,
    'the value of "x" is needed and nothing is fed for it',
    fix="session.run(fetches, {",
)
def feeding_nothing():
    session, *_, loss, _ = model()
    session.run(loss)  # here


@mistake(RUN, gf.FeedError, "is fed a tensor", fix="array")
def feeding_a_tensor():
    session, x, _, w, *_ = model()
    session.run(w, {x: w})  # here


@mistake(RUN, gf.FetchError, "another graph", fix="session for that graph")
def fetching_from_another_graph():
    session, *_ = model()
    with gf.Graph():
        y = gf.placeholder((3,), name="y")
    session.run(y)  # here


@mistake(
    RUN, gf.FetchError, 'nothing in this graph is named "lables"', fix='did you mean "labels"?'
)
def fetching_a_misspelt_name():
    session, *_ = model()
    session.run("lables")  # here


@mistake(RUN, gf.FetchError, "can't be fetched", fix="tensors, variables, updates or names")
def fetching_an_array():
    session, *_ = model()
    session.run(ROWS)  # here


@mistake(RUN, gf.FetchError, "can't be fetched", fix="fetch the result: y = model(x)")
def fetching_a_layer():
    with gf.Graph() as g:
        layer = gf.nn.Linear(2, 3)
    gf.Session(g).run(layer)  # here


@mistake(RUN, gf.FeedError, '"labels" is needed', fix='session.run(fetches, {"labels": array})')
def forgetting_the_second_feed():
    session, x, _, _, loss, _ = model()
    session.run(loss, {x: ROWS})  # here


@mistake(RUN, gf.ArgumentError, "a Linear is not a Graph", fix="gf.Session(g)")
def a_session_of_a_layer():
    with gf.Graph():
        layer = gf.nn.Linear(2, 3)
    gf.Session(layer)  # here


@mistake(
    BUILD,
    gf.GraphError,
    "minimize: its operand belongs to another graph",
    fix="build both in one graph",
    builtin=RuntimeError,
)
def minimising_the_loss_of_another_graph():
    with gf.Graph():
        loss = gf.sum(gf.Variable(ROWS, name="w"))
    with gf.Graph():
        gf.optim.SGD(0.1).minimize(loss)  # here


@mistake(RUN, gf.GraphError, "outside the graph", fix="session.run", builtin=RuntimeError)
def a_graph_that_grows_in_the_loop():
    session, *_, loss, _ = model()
    session.run(-loss)  # here


@mistake(RUN, gf.SessionError, "this session is closed", fix="with", builtin=RuntimeError)
def using_a_closed_session():
    session, x, *_, w, _, _ = model()
    session.close()
    session.run(w, {x: ROWS})  # here


@mistake(
    RUN,
    gf.ExecutorError,
    'no executor named "nunpy"',
    fix='did you mean "numpy"?',
    builtin=RuntimeError,
)
def misspelt_executor():
    gf.Session(gf.Graph(), "nunpy")  # here


@mistake(
    RUN, gf.ShapeError, 'the variable "w" is float32[4, 2] and is given the shape [2, 4]', fix=""
)
def assigning_the_wrong_shape():
    session, *_, w, _, _ = model()
    session["w"] = np.ones((2, 4))  # here


@mistake(
    RUN, gf.GraphError, 'two updates give "w" different values', fix="combine", builtin=RuntimeError
)
def two_updates_of_one_variable():
    with gf.Graph() as g:
        w = gf.Variable(0.0, name="w")
        up = gf.update(w, w + 1.0)
        down = gf.update(w, w - 1.0)  # here
    gf.Session(g).run([up, down])


@mistake(RUN, gf.ExecutionError, "log gives -inf", "x", fix="", builtin=RuntimeError)
def a_step_that_makes_infinity():
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")  # x
        y = gf.sum(gf.log(x))  # here
    gf.Session(g, check_finite=True).run(y, {x: [1.0, 0.0, 2.0]})


@mistake(RUN, gf.ExecutionError, "out of", "x", fix="", builtin=RuntimeError)
def an_index_that_is_out_of_range_in_a_run():
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")  # x
        i = gf.placeholder((), gf.int64, name="i")
        y = gf.take(x, i, axis=0)  # here
    gf.Session(g).run(y, {x: [1.0, 2.0, 3.0], i: 7})


@mistake(RUN, gf.ShapeError, "assert_shape: the dim `n` is 4 in this run, not 3", fix="3 at dim 0")
def a_promise_that_does_not_hold():
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        y = gf.assert_shape(x, (3,)) * 2  # here
    gf.Session(g).run(y, {x: [1.0, 2.0, 3.0, 4.0]})
