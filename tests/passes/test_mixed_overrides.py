"""Mixed precision: what users say of single nodes and layers."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, DTypeError
from tests.support.mixed_graphs import dtypes, mixed, nodes_of, weight


@pytest.fixture
def g():
    return gf.Graph()


def layered():
    with gf.Graph() as g:
        x = gf.placeholder((3, 4), name="x")
        with gf.name_scope("encoder"), gf.name_scope("inner"):
            h = gf.relu(x @ weight(4, 4) + weight(4, name="b"))
        with gf.name_scope("head"):
            y = gf.identity(h @ weight(4, 2), name="logits")
    return g, y


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (None, ["bfloat16", "bfloat16"]),
        ({"encoder.*": "float32"}, ["float32", "bfloat16"]),
        ({"encoder": gf.float32}, ["float32", "bfloat16"]),
        ({"*inner": np.float32}, ["float32", "bfloat16"]),
        ({"head.logits": "float32"}, ["bfloat16", "float32"]),
        ({"*": "float32"}, ["float32", "float32"]),
        ({"?*": "float32"}, ["float32", "float32"]),
        ({"*": "float32", "head": "bfloat16"}, ["float32", "bfloat16"]),
        ({"head": "bfloat16", "*": "float32"}, ["float32", "float32"]),
    ],
)
def test_overrides_by_name_and_by_layer(overrides, expected):
    g, y = layered()
    made, casts = mixed(g, [y], overrides)
    assert dtypes(made, "matmul") == expected
    if overrides == {"*": "float32"}:
        assert casts == []


def test_an_override_to_16_bits(g):
    with g:
        x = gf.placeholder((3, 4), name="x")
        with gf.name_scope("gate"):
            y = gf.exp(x)
    made, casts = mixed(g, [y], {"gate": "bfloat16"})
    assert dtypes(made, "exp") == ["bfloat16"]
    assert casts[0].reason == "'gate' is to be bfloat16"


def test_an_override_of_a_layer_holds_for_its_gradients():
    g, y = layered()
    with g:
        step = gf.optim.SGD(0.1).minimize(gf.sum(y))
    made, _ = mixed(g, [value for _, value in step.pairs], {"encoder": "float32"})
    by_layer = {
        (n.loc.layer, n.types[0].dtype.name, n.loc.grad_of is not None)
        for n in nodes_of(made, "matmul")
    }
    assert by_layer == {
        ("encoder.inner", "float32", False),
        ("encoder.inner", "float32", True),
        ("head", "bfloat16", True),
    }


def test_weights_stay_float32_in_updates_whatever_their_layer_is():
    g, y = layered()
    with g:
        step = gf.optim.SGD(0.1).minimize(gf.sum(y))
    made, _ = mixed(g, [value for _, value in step.pairs], {"encoder": "bfloat16"})
    assert set(dtypes(made, "subtract")) == {"float32"}
    assert set(dtypes(made, "variable")) == {"float32", "int64"}


def test_a_weight_by_name_does_not_go_along(g):
    with g:
        x = gf.placeholder((3, 4), name="x")
        h = x @ weight(4, 2) + weight(2, name="bias")
        y = h @ weight(2, 2, name="v")
    assert dtypes(mixed(g, [y])[0], "add") == ["bfloat16"]
    assert dtypes(mixed(g, [y], {"bias": "float32"})[0], "add") == ["float32"]


def test_what_can_not_be_16_bits_says_so(g):
    with g:
        x = gf.placeholder((3, 3), name="x")
        with gf.name_scope("solver"):
            y = gf.linalg.cholesky(x)
    with pytest.raises(Exception, match=r"'solver' is to be bfloat16, and cholesky can't be"):
        mixed(g, [y], {"solver": "bfloat16"})


def test_unknown_names_are_errors():
    g, y = layered()
    with pytest.raises(ArgumentError, match=r"no.* 'encoder.outer'") as caught:
        mixed(g, [y], {"encoder.outer": "float32"})
    assert caught.value.fix == 'did you mean "encoder.inner"?'
    with pytest.raises(ArgumentError) as caught:
        mixed(g, [y], {"???????????????????????": "float32"})
    assert caught.value.fix.startswith("there are: x, encoder.inner.w")


def test_layers_inside_of_loops_have_names(g):
    with g:
        xs = gf.placeholder((5, 3, 3), name="xs")

        def iteration(h, x):
            with gf.name_scope("work_item"):
                h = h @ x
            return h, h

        last, _ = gf.scan(iteration, gf.zeros((3, 3)), xs)
    made, casts = mixed(g, [last], {"work_item": "float32"})
    assert casts == []


@pytest.mark.parametrize(
    ("precision", "overrides", "error", "message"),
    [
        ("bf16", None, ArgumentError, "precision='bf16' is no precision"),
        (gf.bfloat16, None, ArgumentError, "is no precision"),
        (None, {"a": "float32"}, ArgumentError, "the session's precision is not mixed"),
        ("mixed-bf16", ["a"], ArgumentError, "precision_overrides is a list, not a dict"),
        ("mixed-bf16", {3: "float32"}, ArgumentError, "3 is no name"),
        ("mixed-bf16", {"a": "float16"}, ArgumentError, "'a' can't be float16 here"),
        ("mixed-fp16", {"a": "int8"}, ArgumentError, "'a' can't be int8 here"),
        ("mixed-bf16", {"a": "float23"}, DTypeError, "float23"),
    ],
)
def test_bad_arguments(precision, overrides, error, message):
    with gf.Graph() as g, pytest.raises(error, match=message):
        gf.Session(g, precision=precision, precision_overrides=overrides)
