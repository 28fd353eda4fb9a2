"""Mistakes in dtypes, in the building of graphs and in gradients."""

from __future__ import annotations

import threading

import graphfw as gf
from tests.mistakes.matrix import BUILD, RUN, mistake

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
    "a placeholder belongs to a graph",
    fix="with graphfw.Graph()",
    builtin=RuntimeError,
)
def placeholder_outside_a_graph():
    gf.placeholder((3, 4))  # here


@mistake(
    RUN,
    gf.GraphError,
    "belongs to another graph",
    fix="make the layer or variable inside of the same `with graph:`",
    builtin=RuntimeError,
)
def layer_from_outside_a_graph():
    layer = gf.nn.Linear(3, 4)
    with gf.Graph():
        layer(gf.placeholder((2, 3)))  # here


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


@mistake(BUILD, gf.ArgumentError, "p=50", fix="")
def dropout_in_percent():
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
