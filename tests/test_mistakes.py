"""The mistakes that people make, and what graphfw says to each.

Every mistake is a function whose faulty line is marked `# here`. The test asserts the error's class
and text, that it points at that line, which operands it shows with their own lines, and the fix.
Those in `BUILD` are found while the graph is described.

Long: it is one list of mistakes.
"""

from __future__ import annotations

import inspect
import re
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import graphfw as gf


@dataclass(frozen=True)
class Mistake:
    """What is expected of one mistake."""

    make: Callable[..., object]
    error: type[Exception]
    text: str
    operands: tuple[str, ...]
    fix: str
    builtin: type[Exception]

    def marked(self, mark: str) -> int:
        """Return the number of the line that ends with `# mark`."""
        lines, first = inspect.getsourcelines(self.make)
        return first + next(
            i for i, line in enumerate(lines) if line.rstrip().endswith(f"# {mark}")
        )


BUILD: list[Mistake] = []
RUN: list[Mistake] = []


def mistake(
    where: list[Mistake],
    error: type[Exception],
    text: str,
    *operands: str,
    fix: str,
    builtin: type[Exception] = ValueError,
):
    """Add a function to the matrix. `operands` are names; each is made on a line marked with it."""

    def add(make):
        where.append(Mistake(make, error, text, operands, fix, builtin))
        return make

    return add


def check(made: Mistake, error: gf.GraphfwError) -> None:
    """Compare an error with what is expected."""
    assert isinstance(error, made.error)
    assert isinstance(error, made.builtin)
    assert made.text in error.summary
    assert made.fix in error.fix
    assert error.fix
    text = str(error)
    assert error.summary in text
    assert len(text.splitlines()) <= 7
    assert error.at.file == __file__
    assert error.at.line == made.marked("here")
    assert f"test_mistakes.py:{error.at.line}" in text
    shown = {o.name: o for o in error.operands}
    for name in made.operands:
        assert shown[name].loc.file == __file__
        assert shown[name].loc.line == made.marked(name)
        assert f'"{name}"' in text


@pytest.mark.parametrize("made", BUILD, ids=lambda m: m.make.__name__)
def test_found_while_building(made):
    with pytest.raises(made.error) as caught, gf.Graph():
        made.make()
    check(made, caught.value)


@pytest.mark.parametrize("made", RUN, ids=lambda m: m.make.__name__)
def test_found_when_running(made):
    with pytest.raises(made.error) as caught:
        made.make()
    check(made, caught.value)


def test_there_are_enough():
    assert len(BUILD) + len(RUN) >= 40
    assert len(BUILD) > len(RUN)


# Shapes.


@mistake(
    BUILD,
    gf.ShapeError,
    "matmul: contracting dims differ: x1[-1] = 128, x2[-2] = 64",
    "x",
    "w",
    fix="128 rows",
)
def matmul_dims():
    x = gf.placeholder(("batch", 128), name="x")  # x
    w = gf.placeholder((64, 10), name="w")  # w
    x @ w  # here


@mistake(BUILD, gf.ShapeError, "matmul: contracting dims differ", "w", fix="x2.mT")
def transposed_weights():
    x = gf.placeholder(("batch", 64), name="x")
    w = gf.Variable(np.zeros((10, 64), np.float32), name="w")  # w
    x @ w  # here


@mistake(BUILD, gf.ShapeError, "queries must have 2 dims or more, not 1", "word", fix="[None]")
def missing_batch_dim():
    word = gf.placeholder((28,), name="word")  # word
    gf.nn.MultiHeadAttention(28, 4)(word)  # here


@mistake(
    BUILD,
    gf.ShapeError,
    "a symbolic dim broadcasts with 1 and itself only",
    "x",
    "y",
    fix="assert_shape",
)
def symbol_with_int():
    x = gf.placeholder(("batch", 3), name="x")  # x
    y = gf.placeholder((5, 3), name="y")  # y
    x + y  # here


@mistake(
    BUILD,
    gf.ShapeError,
    "shapes don't broadcast: x1[-1] = 3, x2[-1] = 2",
    "h",
    "table",
    fix="make the dims equal",
)
def columns_beside_a_symbol():
    h = gf.placeholder(("batch", 3), name="h")  # h
    # The batch may well be 4, but 3 columns are no 2.
    table = gf.constant(np.zeros((4, 2), np.float32), name="table")  # table
    h + table  # here


@mistake(BUILD, gf.ShapeError, "x1[-1] = batch, x2[-1] = n", "x", "y", fix='"batch"')
def two_symbols():
    x = gf.placeholder(("batch",), name="x")  # x
    y = gf.placeholder(("n",), name="y")  # y
    x * y  # here


@mistake(BUILD, gf.ShapeError, "shapes don't broadcast: x1[-1] = 4, x2[-1] = 3", "x", "y", fix="")
def shapes_that_do_not_broadcast():
    x = gf.placeholder((2, 4), name="x")  # x
    y = gf.placeholder((2, 3), name="y")  # y
    gf.maximum(x, y)  # here


@mistake(BUILD, gf.ShapeError, "reshape: 12 elements don't divide into shape [-1, 5]", "x", fix="")
def reshape_that_can_not_divide():
    x = gf.placeholder((3, 4), name="x")  # x
    gf.reshape(x, (-1, 5))  # here


@mistake(
    BUILD, gf.ShapeError, "reshape: 12 elements don't fill shape [4, 4], which has 16", "x", fix=""
)
def reshape_of_wrong_size():
    x = gf.placeholder((3, 4), name="x")  # x
    x.reshape(4, 4)  # here


@mistake(BUILD, gf.ShapeError, "32*batch elements don't fill shape", "x", fix="-1")
def reshape_with_a_forgotten_batch():
    x = gf.placeholder(("batch", 32), name="x")  # x
    gf.reshape(x, (16, 2))  # here


@mistake(BUILD, gf.ShapeError, "concat", "x", "y", fix="")
def concat_mismatch():
    x = gf.placeholder(("batch", 3), name="x")  # x
    y = gf.placeholder(("batch", 4), name="y")  # y
    gf.concat([x, y], axis=0)  # here


@mistake(BUILD, gf.ShapeError, "stack", "x", "y", fix="")
def stack_mismatch():
    x = gf.placeholder((3,), name="x")  # x
    y = gf.placeholder((4,), name="y")  # y
    gf.stack([x, y])  # here


@mistake(
    BUILD,
    gf.AxisError,
    "sum: axis 2 is out of range for 2 dims",
    "x",
    fix="-2 to 1",
    builtin=IndexError,
)
def wrong_axis():
    x = gf.placeholder((3, 4), name="x")  # x
    gf.sum(x, axis=2)  # here


@mistake(BUILD, gf.ShapeError, "squeeze: dim 0 has size 3, not 1", "x", fix="")
def squeeze_of_a_full_dim():
    x = gf.placeholder((3, 4), name="x")  # x
    gf.squeeze(x, axis=0)  # here


@mistake(
    BUILD,
    gf.AxisError,
    "index 5 is out of range for dim 0 of size 3",
    "x",
    fix="",
    builtin=IndexError,
)
def index_out_of_range():
    x = gf.placeholder((3, 4), name="x")  # x
    x[5]  # here


@mistake(BUILD, gf.ShapeError, "too many indices", "x", fix="", builtin=ValueError)
def too_many_indices():
    x = gf.placeholder((3, 4), name="x")  # x
    x[0, 1, 2]  # here


@mistake(
    BUILD, gf.AxisError, "permute_dims: axis (0, 0) names a dim twice", "x", fix="each dim once"
)
def permutation_with_a_double():
    x = gf.placeholder((3, 4), name="x")  # x
    gf.permute_dims(x, (0, 0))  # here


@mistake(
    BUILD,
    gf.ShapeError,
    "contracting dims differ",
    "x",
    fix="Linear(in_features=64) receives 128 features: use in_features=128",
)
def linear_with_wrong_features_inside():
    x = gf.placeholder(("batch", 128), name="x")  # x
    model = gf.nn.Sequential(gf.nn.Flatten(), gf.nn.Sequential(gf.nn.Linear(64, 10)))
    model(x)  # here


@mistake(
    BUILD,
    gf.ShapeError,
    '"j" of "ij,jk->ik" has two sizes: 4 in operand 1, 5 in operand 2',
    "x",
    "y",
    fix="letters",
)
def einsum_sizes():
    x = gf.placeholder((3, 4), name="x")  # x
    y = gf.placeholder((5, 6), name="y")  # y
    gf.einsum("ij,jk->ik", x, y)  # here


@mistake(
    BUILD,
    gf.ShapeError,
    "target class indices must have shape [batch], not [n]",
    "logits",
    "labels",
    fix="one class index",
)
def labels_of_another_batch():
    logits = gf.placeholder(("batch", 10), name="logits")  # logits
    labels = gf.placeholder(("n",), gf.int64, name="labels")  # labels
    gf.nn.cross_entropy(logits, labels)  # here


@mistake(BUILD, gf.ShapeError, "update", "w", fix="")
def update_of_another_shape():
    w = gf.Variable([1.0, 2.0], name="w")  # w
    gf.update(w, gf.sum(w))  # here


@mistake(BUILD, gf.ShapeError, "'batch size' can't name a dim", fix="underscores")
def dim_name_with_a_space():
    gf.placeholder(("batch size", 3), name="x")  # here


@mistake(BUILD, gf.ShapeError, "a dim can't be -1", fix="None")
def negative_dim():
    gf.placeholder((-1, 3), name="x")  # here


# Dtypes.


@mistake(BUILD, gf.DTypeError, "where", "mask", fix="mask", builtin=TypeError)
def float_mask():
    mask = gf.placeholder((3,), name="mask")  # mask
    gf.where(mask, 1.0, 0.0)  # here


@mistake(BUILD, gf.GradientError, "int64", "count", fix="floating-point")
def integer_loss():
    w = gf.Variable([1.0], name="w")
    count = gf.identity(gf.sum(gf.astype(w, gf.int64)), name="count")  # count
    gf.grad(count, w)  # here


@mistake(
    BUILD,
    gf.DTypeError,
    "a tensor float32[2] is no index",
    "position",
    fix="gf.int64",
    builtin=TypeError,
)
def wrong_dtype_index():
    x = gf.placeholder((3, 4), name="x")
    position = gf.placeholder((2,), name="position")  # position
    x[position]  # here


@mistake(
    BUILD,
    gf.ShapeError,
    "target probabilities must have the logits' shape",
    "labels",
    fix="gf.astype(target, gf.int64)",
)
def float_class_labels():
    logits = gf.placeholder(("batch", 10), name="logits")
    labels = gf.placeholder(("batch",), name="labels")  # labels
    gf.nn.cross_entropy(logits, labels)  # here


@mistake(BUILD, gf.DTypeError, "300 does not fit uint8", fix="0 to 255", builtin=TypeError)
def scalar_that_does_not_fit():
    image = gf.placeholder((28, 28), gf.uint8, name="image")
    image + 300  # here


@mistake(BUILD, gf.DTypeError, "uint64", "x", fix="convert one", builtin=TypeError)
def no_common_integer():
    x = gf.placeholder((3,), gf.uint64, name="x")  # x
    x + gf.placeholder((3,), gf.int8, name="y")  # here


@mistake(
    BUILD,
    gf.DTypeError,
    "'float31' is not a dtype",
    fix='did you mean "float32"?',
    builtin=TypeError,
)
def misspelt_dtype():
    gf.placeholder((3,), "float31")  # here


@mistake(BUILD, gf.DTypeError, "update", "w", fix="gf.astype", builtin=TypeError)
def update_of_another_dtype():
    w = gf.Variable([1, 2], name="w")  # w
    gf.update(w, w * 0.5)  # here


# Graphs.


@mistake(
    BUILD, gf.ConcreteValueError, "bool() wants a value", "x", fix="gf.where", builtin=TypeError
)
def if_tensor():
    x = gf.placeholder((), name="x")  # x
    if x:  # here
        pass


@mistake(
    BUILD,
    gf.ConcreteValueError,
    "length `n` is not known",
    "x",
    fix="whole tensor",
    builtin=TypeError,
)
def iteration_over_unknown_length():
    x = gf.placeholder(("n", 2), name="x")  # x
    list(x)  # here


@mistake(
    BUILD,
    gf.ConcreteValueError,
    "float() wants a value",
    "loss",
    fix="session.run",
    builtin=TypeError,
)
def float_of_a_symbolic_tensor():
    loss = gf.identity(gf.placeholder((), name="x") * 2, name="loss")  # loss
    float(loss)  # here


@mistake(
    BUILD, gf.GraphError, 'the name "x" is taken', "x", fix="its own name", builtin=RuntimeError
)
def two_placeholders_of_one_name():
    gf.placeholder((3,), name="x")  # x
    gf.placeholder((4,), name="x")  # here


@mistake(
    BUILD,
    gf.GraphError,
    'a variable named "w" exists already',
    "w",
    fix="name_scope",
    builtin=RuntimeError,
)
def duplicate_variable_names():
    gf.Variable([1.0], name="w")  # w
    gf.Variable([2.0], name="w")  # here


@mistake(RUN, gf.GraphError, "outside the graph", "x", fix="session.run", builtin=RuntimeError)
def building_outside_the_graph():
    with gf.Graph():
        x = gf.placeholder((3,), name="x")  # x
    x * 2  # here


@mistake(RUN, gf.GraphError, "belongs to another graph", "x", fix="one graph", builtin=RuntimeError)
def tensor_of_another_graph():
    with gf.Graph():
        x = gf.placeholder((3,), name="x")  # x
    with gf.Graph():
        x * 2  # here


@mistake(
    RUN,
    gf.GraphError,
    "a Variable belongs to a graph",
    fix="with graphfw.Graph()",
    builtin=RuntimeError,
)
def layer_outside_a_graph():
    gf.nn.Linear(3, 4)  # here


@mistake(RUN, gf.GraphError, "built by another thread", fix="one thread", builtin=RuntimeError)
def two_threads_build_one_graph():
    g = gf.Graph()
    errors: list[Exception] = []

    def build():
        try:
            g.__enter__()  # here
        except gf.GraphError as error:
            errors.append(error)

    with g:
        thread = threading.Thread(target=build)
        thread.start()
        thread.join()
    raise errors[0]


@mistake(
    BUILD,
    gf.GraphError,
    "initial value depends on a placeholder",
    "x",
    fix="initialiser",
    builtin=RuntimeError,
)
def variable_that_starts_from_a_placeholder():
    x = gf.placeholder((3,), name="x")  # x
    gf.Variable(x * 2, name="w")  # here


@mistake(BUILD, gf.ArgumentError, "an initialiser needs to know the shape", fix="shape=")
def initialiser_without_a_shape():
    gf.Variable(gf.nn.init.zeros, name="w")  # here


@mistake(BUILD, gf.ArgumentError, "only variables can be updated", fix="gf.Variable")
def update_of_a_placeholder():
    x = gf.placeholder((3,), name="x")
    gf.update(x, x + 1)  # here


@mistake(
    BUILD, gf.ArgumentError, "Model.layers is a plain list with a Linear in it", fix="ModuleList"
)
def layers_in_a_plain_list():
    class Model(gf.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = [gf.nn.Linear(2, 2)]  # here

    Model()


@mistake(BUILD, gf.ArgumentError, "rate", fix="")
def dropout_rate_in_percent():
    x = gf.placeholder((3,), name="x")
    gf.dropout(x, 50)  # here


# Gradients.


@mistake(BUILD, gf.GradientError, "only a scalar has one gradient", "y", fix="gf.sum or gf.mean")
def gradient_of_a_vector():
    x = gf.placeholder((3,), name="x")
    y = gf.identity(x * x, name="y")  # y
    gf.grad(y, x)  # here


@mistake(BUILD, gf.GradientError, 'y does not depend on x "w"', "w", fix='missing="zeros"')
def gradient_with_no_path():
    x = gf.placeholder((3,), name="x")
    w = gf.Variable([1.0], name="w")  # w
    gf.grad(gf.sum(x), w)  # here


@mistake(
    BUILD,
    gf.GradientError,
    "only through argmax, which no gradient passes",
    "x",
    fix="differentiable",
)
def gradient_through_argmax():
    x = gf.placeholder((3, 4), name="x")  # x
    best = gf.astype(gf.argmax(x, axis=1), gf.float32)
    gf.grad(gf.sum(best), x)  # here


@mistake(BUILD, gf.GradientError, "scalar", "loss", fix="gf.mean")
def minimising_a_vector():
    w = gf.Variable([1.0, 2.0], name="w")
    loss = gf.identity(w * w, name="loss")  # loss
    gf.optim.SGD(0.1).minimize(loss)  # here


@mistake(BUILD, gf.GradientError, "no trainable", "loss", fix="")
def minimising_without_variables():
    x = gf.placeholder((), name="x")
    loss = gf.identity(x * x, name="loss")  # loss
    gf.optim.SGD(0.1).minimize(loss)  # here


# Sessions.


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
    fix="gf.where or gf.index_set",
    builtin=TypeError,
)
def assigning_to_an_element():
    x = gf.placeholder((3,), name="x")  # x
    x[0] = 1.0  # here


@mistake(BUILD, gf.ArgumentError, 'the name "session/step" begins with', fix="another name")
def a_variable_with_a_sessions_own_name():
    gf.Variable(0, name="session/step")  # here


@mistake(RUN, gf.FeedError, '"x" is [batch, 4] and is fed [4]: 1 dims, not 2', fix="array[None]")
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


@mistake(RUN, gf.ShapeError, "assert_shape: the dim `n` is 4 in this run, not 3", fix="agree")
def a_promise_that_does_not_hold():
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        y = gf.assert_shape(x, (3,)) * 2  # here
    gf.Session(g).run(y, {x: [1.0, 2.0, 3.0, 4.0]})


# All at once.


def test_all_independent_mistakes_of_one_build_at_once():
    with pytest.raises(gf.GraphErrors) as caught, gf.Graph(collect_errors=True):
        x = gf.placeholder(("batch", 4), name="x")
        h = x @ gf.ones((5, 2))
        after = gf.exp(h) + 1.0  # follows from the first: not reported
        gf.concat([x, gf.ones((3, 3))], axis=0)
        gf.where(after, 1.0, 0.0)  # follows too: would be a mistake of its own
        x + gf.placeholder((3, 4), name="y")
    errors = caught.value.errors
    assert [type(e) for e in errors] == [gf.ShapeError] * 3
    assert [re.match(r"\w+", e.summary)[0] for e in errors] == ["matmul", "concat", "add"]
    first = inspect.getsourcelines(test_all_independent_mistakes_of_one_build_at_once)[1]
    assert [e.at.line - first for e in errors] == [3, 5, 7]
    assert str(caught.value).startswith("3 mistakes in this graph\n[1] ShapeError: matmul")


def test_a_session_refuses_a_graph_with_mistakes():
    g = gf.Graph(collect_errors=True)
    with pytest.raises(gf.GraphErrors), g:
        gf.ones((2, 3)) @ gf.ones((2, 3))
    with pytest.raises(gf.GraphErrors, match="1 mistake in this graph"):
        gf.Session(g)


def test_a_traceback_ends_at_the_users_line():
    """graphfw's own frames and the requirement that failed inside are not shown."""
    with pytest.raises(gf.ShapeError) as caught, gf.Graph():
        gf.ones((2, 3)) @ gf.ones((2, 3))
    text = "".join(traceback.format_exception(caught.value))
    assert "During handling" not in text
    assert "graphfw/ir" not in text.replace("\\", "/")


def test_all_frames_can_be_kept(monkeypatch):
    monkeypatch.setenv("GRAPHFW_ERRORS", "full")
    with pytest.raises(gf.ShapeError) as caught, gf.Graph():
        gf.ones((2, 3)) @ gf.ones((2, 3))
    assert "ir/build.py" in "".join(traceback.format_exception(caught.value)).replace("\\", "/")
