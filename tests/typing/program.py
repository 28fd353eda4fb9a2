"""A user's program: type checkers find no mistakes in it, and the types that it says."""

# pyright: strict

from typing import Any, NamedTuple, assert_type

import numpy as np
import numpy.typing as npt

import graphfw as gf

Array = np.ndarray[Any, np.dtype[Any]]


class Block(gf.nn.Module):
    """A layer of the user's own."""

    def __init__(self, features: int, *, name: str | None = None) -> None:
        super().__init__(name=name)
        self.norm = gf.nn.LayerNorm(features)
        self.linear = gf.nn.Linear(None, features)
        self.scale = gf.Variable(np.ones(features, np.float32))

    def forward(self, x: gf.Tensor, *, skip: bool = True) -> gf.Tensor:
        y = gf.relu(self.linear(self.norm(x))) * self.scale
        return x + y if skip else y


class Classifier(gf.nn.Module):
    """A model that returns two tensors."""

    def __init__(self) -> None:
        self.blocks = gf.nn.ModuleList(Block(8) for _ in range(2))
        self.first = gf.nn.Sequential(gf.nn.Linear(4, 8), gf.nn.ReLU())
        self.head = gf.nn.Linear(8, 3)

    def features(self, x: gf.Tensor) -> gf.Tensor:
        return self.first(x)

    def forward(self, x: gf.Tensor) -> tuple[gf.Tensor, gf.Tensor]:
        x = self.features(x)
        for block in self.blocks:
            x = block(x, skip=True)
        return self.head(x), x


class Outputs(NamedTuple):
    """Results by name."""

    loss: gf.Tensor
    scores: gf.Tensor


def rows(plan: gf.Plan, batch: Array) -> int:
    """Take any plan."""
    return len(plan(batch))


@gf.function
def distance(a: gf.Tensor, b: gf.Tensor, *, squared: bool = False) -> gf.Tensor:
    """Compute a function of arrays."""
    total = gf.sum((a - b) ** 2)
    return total if squared else gf.sqrt(total)


@gf.function(seed=1)
def halves(a: Any) -> tuple[gf.Tensor, gf.Tensor]:
    """Return two arrays."""
    return a[:1], a[1:]


class Counter:
    """A class with a method that is compiled."""

    @gf.function
    def double(self, a: gf.Tensor) -> gf.Tensor:
        """Double."""
        return a + a


def check_sessions() -> None:
    """Describe a graph, and run it."""
    with gf.Graph() as graph:
        x = gf.placeholder(("batch", 4), name="x")
        labels = gf.placeholder(("batch",), gf.int64, name="labels")
        block, model = Block(4), Classifier()
        assert_type(block(x), gf.Tensor)
        assert_type(block(x, skip=False), gf.Tensor)
        assert_type(block(x, training=False), gf.Tensor)
        assert_type(model(x), tuple[gf.Tensor, gf.Tensor])
        assert_type(gf.nn.Conv1d(4, 2, 3)(gf.zeros((1, 4, 8))), gf.Tensor)
        assert_type(gf.nn.MaxPool1d(2)(gf.zeros((1, 4, 8))), gf.Tensor)
        # A tensor, and with a cache that and the cache.
        assert_type(gf.nn.MultiHeadAttention(4, 2)(x[None]), gf.Tensor | Any)
        steps, (h, c) = gf.nn.LSTM(4, 3)(x)
        assert_type(steps, gf.Tensor)
        assert_type(h, gf.Tensor)
        assert_type(c, gf.Tensor)
        assert_type(gf.nn.GRU(4, 3)(x), tuple[gf.Tensor, gf.Tensor])
        assert_type(gf.nn.LSTMCell(4, 3)(x), tuple[gf.Tensor, gf.Tensor])
        assert_type(gf.nn.GRUCell(4, 3)(x), gf.Tensor)
        scores, _ = model(x)
        loss = gf.nn.cross_entropy(scores, labels)
        train = gf.optim.AdamW(1e-3).minimize(loss, model.parameters())
        assert_type(train, gf.Update)

    data: npt.NDArray[np.float32] = np.zeros((2, 4), np.float32)
    feeds = {x: data, labels: np.zeros(2, np.int64)}
    by_name: dict[str, Any] = {"x": data, "labels": [0, 1]}

    with gf.Session(graph) as session:
        assert_type(session.run(scores, feeds), Array)
        assert_type(session.run("x", by_name), Array)
        assert_type(session.run(model.head.weight), Array)
        assert_type(session.run(train, {x: data, labels: [0, 1]}), None)
        assert_type(session.run([loss, block.scale], feeds, host=True), list[Array])
        assert_type(session.run([v for v in model.parameters()]), list[Array])
        assert_type(session.run((loss, scores), feeds), tuple[Array, ...])
        assert_type(session.run({"loss": loss, "w": block.scale}, feeds), dict[str, Array])
        value, _ = session.run([loss, train], feeds)
        assert float(value) > 0
        assert session.run(Outputs(loss, scores), feeds).scores.shape == (2, 3)
        assert session.run({"all": [loss, (scores, train)]}, feeds)["all"][1][1] is None
        plan = session.compile(scores, feeds=[x])
        assert_type(plan, gf.Plan[Array])
        assert_type(plan(data), Array)
        assert_type(session.compile([loss, scores], [x, labels])(data, [0, 1]), list[Array])
        assert_type(session[model.head.weight], Array)
        assert rows(plan, data) == 2


def check_functions() -> None:
    """Call functions with tensors and with arrays."""
    data = np.ones((2, 3), np.float32)
    with gf.Graph():
        assert_type(distance(gf.zeros(3), gf.ones(3), squared=True), gf.Tensor)
    assert_type(distance(data, data), Array)
    assert_type(distance(data, data, squared=True), Array)
    assert_type(halves(data), tuple[Array, ...])
    assert_type(Counter().double(data), Array)
    assert_type(distance.plan(data, data), gf.Plan[Array])
    assert_type(halves.plan(data)(data), tuple[Array, ...])
    assert_type(Counter.double.session, gf.Session)
    assert "sqrt" in distance.plan(data, data).explain()
    assert distance.session.seed == 0
