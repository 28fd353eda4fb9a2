"""`Module.summary`: its table, the forms of its arguments, and that it leaves no trace."""

import copy
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ShapeError
from graphfw.ir.dim import symbol
from graphfw.nn.summary import LayerSummary


class Model(gf.nn.Module):
    def __init__(self) -> None:
        self.body = gf.nn.Sequential(gf.nn.Linear(4, 8), gf.nn.BatchNorm(8), gf.nn.ReLU())
        self.head = gf.nn.Linear(8, 2)
        self.unused = gf.nn.Linear(3, 3)
        self.gain = gf.Variable(np.ones(2, np.float32))

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        return self.head(self.body(x)) * self.gain * scale


@pytest.fixture
def model() -> Model:
    with gf.Graph():
        return Model()


def test_rows(model: Model):
    table = model.summary(("batch", 4))
    batch = symbol("batch")
    kind = [gf.TensorType(gf.float32, (batch, n)) for n in (2, 8)]
    assert table.rows == (
        LayerSummary("model", "Model", kind[0], 1, 2, 2),
        LayerSummary("model.body", "Sequential", kind[1], 1, 0, 0),
        LayerSummary("model.body.0", "Linear", kind[1], 1, 40, 40),
        LayerSummary("model.body.1", "BatchNorm", kind[1], 1, 32, 16),
        LayerSummary("model.body.2", "ReLU", kind[1], 1, 0, 0),
        LayerSummary("model.head", "Linear", kind[0], 1, 18, 18),
        LayerSummary("model.unused", "Linear", None, 0, 12, 12),
    )
    assert (table.parameters, table.trained) == (104, 88)
    assert table.trained == sum(v.size for v in model.parameters())


def test_text(model: Model):
    lines = repr(model.summary(("batch", 4))).splitlines()
    assert lines == [
        "layer         class       output             parameters  trained",
        "model         Model       float32[batch, 2]           2        2",
        "model.body    Sequential  float32[batch, 8]           0        0",
        "model.body.0  Linear      float32[batch, 8]          40       40",
        "model.body.1  BatchNorm   float32[batch, 8]          32       16",
        "model.body.2  ReLU        float32[batch, 8]           0        0",
        "model.head    Linear      float32[batch, 2]          18       18",
        "model.unused  Linear      not called                 12       12",
        "total                                               104       88",
    ]


@pytest.mark.parametrize(
    "given",
    [
        (5, 4),
        [5, 4],
        ((5, 4), "float32"),
        gf.TensorType(gf.float32, (5, 4)),
        np.zeros((5, 4), np.float32),
        gf.zeros((5, 4)),
    ],
    ids=["tuple", "list", "pair", "type", "array", "tensor"],
)
def test_forms_of_arguments(model: Model, given: Any):
    assert model.summary(given).rows[0].output == gf.TensorType(gf.float32, (5, 2))
    assert model.summary(x=given, scale=2.0).rows[0].output == gf.TensorType(gf.float32, (5, 2))


def test_nested_arguments_and_results():
    class Paired(gf.nn.Module):
        def forward(self, pair: Any, named: Any, flag: Any = None) -> Any:
            return {"sum": pair[0] + pair[1], "pair": (named["x"], flag)}

    with gf.Graph():
        paired = Paired()
    output = paired.summary([(3,), (2, 1)], {"x": ((), "int64")}, flag=None).rows[0].output
    assert str(output) == "{'sum': float32[2, 3], 'pair': (int64[], None)}"


def test_dims_without_names(model: Model):
    first, second = model.summary((None, 4)).rows[0].output.shape
    assert second == 2
    assert not isinstance(first, int)


def test_a_placeholder_of_the_models_graph():
    with gf.Graph() as g:
        model = Model()
        x = gf.placeholder(("batch", 4), name="x")
        before = str(g)
        inside = model.summary(x)
    assert str(g) == before
    assert model.summary(x).rows == inside.rows
    assert inside.rows[0].output.shape == (*x.shape[:1], 2)


def test_it_leaves_no_trace():
    def make(looks: bool) -> gf.Graph:
        with gf.Graph() as g:
            model = Model()
            if looks:
                model.summary(("batch", 4), training=False)
                model.summary(("other", 4))
            x = gf.placeholder(("batch", 4), name="x")
            if looks:
                model.summary(x)
            y = model(x)
            gf.optim.Adam().minimize(gf.mean(y**2))
            Model()(x)
        return g

    seen, plain = make(True), make(False)
    assert str(seen) == str(plain)
    assert [v.name for v in seen.variables] == [v.name for v in plain.variables]
    for attribute in ("updates", "carried", "evaluations", "effects", "_counts", "_names"):
        assert len(getattr(seen, attribute)) == len(getattr(plain, attribute)), attribute


def test_what_forward_keeps_is_put_back():
    class Keeping(gf.nn.Module):
        def __init__(self) -> None:
            self.layer = gf.nn.Linear(2, 2)
            self.seen: list[Any] = [1]
            self.named: dict[str, Any] = {"a": 1}
            self.count = 0

        def forward(self, x: Any) -> Any:
            self.last = self.layer(x)
            self.seen.append(x)
            self.named["x"] = x
            self.count += 1
            if not hasattr(self, "late"):
                self.late = gf.nn.Linear(2, 3)
                self.gain = gf.Variable(np.ones(3, np.float32))
            return self.late(self.last) * self.gain

    with gf.Graph() as g:
        model = Keeping()
    seen, named = model.seen, model.named
    assert model.summary((5, 2)).rows[0].output.shape == (5, 3)
    assert not hasattr(model, "last")
    assert not hasattr(model, "late")
    assert [name for name, _ in model.named_variables()] == ["layer.weight", "layer.bias"]
    assert model.named_children() == [("layer", model.layer)]
    assert model.seen is seen == [1]
    assert model.named is named == {"a": 1}
    assert model.count == 0
    assert [v.name for v in g.variables] == ["keeping.layer.weight", "keeping.layer.bias"]
    with g:
        model(gf.placeholder((5, 2), name="x"))
    assert model.late.weight.name == "keeping.late.weight"


def test_it_puts_back_after_an_error(model: Model):
    with pytest.raises(ShapeError, match=r"matmul: ") as caught:
        model.summary((5, 3))
    assert caught.value.layer == "model.body.0"
    assert "in_features=3" in str(caught.value)
    assert model.summary((5, 4)).parameters == 104


@pytest.mark.parametrize("shape", [(5, -4), (5, 4.5), ("no name", 4)])
def test_shapes_that_are_none(model: Model, shape: Any):
    with pytest.raises(ShapeError, match="placeholder: ") as caught:
        model.summary(shape)
    assert caught.value.at.file == __file__


def test_layers_that_are_called_several_times_or_share_variables():
    class Twice(gf.nn.Module):
        def __init__(self) -> None:
            self.layer = gf.nn.Linear(2, 2)
            self.again = self.layer
            self.tied = gf.nn.Linear(2, 2)
            self.tied.weight = self.layer.weight

        def forward(self, x: Any) -> Any:
            return self.tied(self.layer(self.again(x)))

    with gf.Graph():
        table = Twice().summary((3, 2))
    assert [(row.path, row.calls, row.parameters) for row in table.rows] == [
        ("twice", 1, 0),
        ("twice.layer", 2, 6),
        ("twice.tied", 1, 2),
    ]
    assert "float32[3, 2] × 2" in repr(table)


def test_layers_inside_of_loops_and_vmap():
    class Looping(gf.nn.Module):
        def __init__(self) -> None:
            self.cell = gf.nn.Linear(2, 2)
            self.each = gf.nn.Linear(2, 3)
            self.total = gf.Variable(np.zeros(2, np.float32), trainable=False)

        def forward(self, x: Any) -> Any:
            carry, _ = gf.scan(lambda c, row: (self.cell(c + row), ()), x[0], x)
            gf.update(self.total, self.total + carry)
            return gf.vmap(self.each)(x), gf.grad(gf.sum(carry), x)

    with gf.Graph() as g:
        table = Looping().summary(("time", 2))
    shapes = {row.path: str(row.output) for row in table.rows}
    assert shapes == {
        "looping": "(float32[time, 3], float32[time, 2])",
        "looping.cell": "float32[2]",
        "looping.each": "float32[3]",
    }
    assert not g.updates


def test_tensors_of_the_graph_that_the_model_uses():
    class Using(gf.nn.Module):
        def __init__(self, weight: Any) -> None:
            self.outer = weight

        def forward(self, x: Any) -> Any:
            return x @ self.outer

    with gf.Graph() as g:
        model = Using(gf.placeholder((4, 3), name="w") * 2)
        count = len(g.nodes)
    assert model.summary((5, 4)).rows[0].output.shape == (5, 3)
    assert len(g.nodes) == count


def test_calls_for_evaluation_and_copies(model: Model):
    model.eval()
    expected = model.summary((1, 4)).rows  # in training, BatchNorm refuses a batch of one
    model.train()
    assert model.summary((1, 4), training=False).rows == expected
    assert copy.deepcopy(model).summary((1, 4), training=False).rows == expected


def test_default_dtype_and_opset():
    with gf.Graph(opset=1) as g:
        layer = gf.nn.GELU()
    with gf.default_dtype("float64"):
        assert layer.summary((3,)).rows[0].output.dtype is gf.float64
    assert g.opset == 1
