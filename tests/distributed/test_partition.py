"""Graphs with split dims: the bits of one process, in any number of them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import graphfw as gf
from graphfw.distributed import Mesh, SimulatedMesh
from graphfw.ir.mesh import Reduction

ROWS = 24
_rng = np.random.default_rng(0)


class Trained(NamedTuple):
    """The result of one process: the last loss, its rows of a prediction, and all contents."""

    loss: np.ndarray
    rows: np.ndarray
    state: dict[str, np.ndarray]

    @property
    def bits(self) -> bytes:
        """The loss and the contents."""
        return b"".join([self.loss.tobytes(), *[v.tobytes() for v in self.state.values()]])


def perceptron(x: gf.Tensor, y: gf.Tensor) -> tuple[gf.Tensor, gf.Tensor]:
    """Return the prediction and the loss of a network with dropout."""
    hidden, out = gf.nn.Linear(20, 16), gf.nn.Linear(16, 3)
    found = out(gf.nn.Dropout(0.2)(gf.tanh(hidden(x))))
    return found, gf.nn.cross_entropy(found, y)


def convolutional(x: gf.Tensor, y: gf.Tensor) -> tuple[gf.Tensor, gf.Tensor]:
    """Return the same of convolutions, whose statistics are those of all rows."""
    model = gf.nn.Sequential(
        gf.nn.Conv2d(3, 4, 3, padding=1, bias=False),
        gf.nn.BatchNorm2d(4),
        gf.nn.ReLU(),
        gf.nn.MaxPool2d(2),
        gf.nn.AvgPool2d(2),
        gf.nn.Flatten(),
        gf.nn.Linear(16, 3),
    )
    found = model(x)
    return found, gf.nn.cross_entropy(found, y)


def language(x: gf.Tensor, y: gf.Tensor) -> tuple[gf.Tensor, gf.Tensor]:
    """Return the same of a transformer's layer on 6 tokens a row."""
    embedding, layer = gf.nn.Embedding(5, 8), gf.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1)
    found = gf.nn.Linear(8, 5)(layer(embedding(x)))
    return found, gf.nn.cross_entropy(gf.reshape(found, (-1, 5)), gf.reshape(y, (-1,)))


def recurrent(x: gf.Tensor, y: gf.Tensor) -> tuple[gf.Tensor, gf.Tensor]:
    """Return the same of a recurrent layer, whose gradient sums in a loop."""
    found = gf.nn.Linear(6, 3)(gf.nn.LSTM(5, 6)(gf.moveaxis(x, 1, 0))[0][-1])
    return found, gf.nn.cross_entropy(found, y)


@gf.custom_gradient
def clipped(x: gf.Tensor) -> Any:
    """Return sin(x), with small cotangents."""
    return gf.sin(x), lambda ct: gf.clip(ct, -0.01, 0.01) * gf.cos(x)


def checkpointed(x: gf.Tensor, y: gf.Tensor) -> tuple[gf.Tensor, gf.Tensor]:
    """Return the same of a network whose middle is computed again, with a rule and a check."""
    first, middle, out = gf.nn.Linear(20, 16), gf.nn.Linear(16, 16), gf.nn.Linear(16, 3)
    dropout = gf.nn.Dropout(0.3)
    gf.check(gf.all(x < 100), "x reaches {}", gf.max(x))
    hidden = gf.checkpoint(lambda h: dropout(gf.relu(middle(h))) + h)(gf.tanh(first(x)))
    found = out(clipped(hidden))
    return found, gf.nn.cross_entropy(found, y)


def regression(x: gf.Tensor, y: gf.Tensor) -> tuple[gf.Tensor, gf.Tensor]:
    """Return the same with reductions of all kinds, row numbers, and the number of rows."""
    found = gf.nn.Linear(20, 3)(x)
    weight = gf.astype(gf.arange(x.shape[0]), gf.float32) / x.shape[0]
    loss = gf.mean((found - y) ** 2 * weight[:, None]) + gf.var(found) + gf.max(found)
    return found, loss + gf.where(gf.all(x > -9) & ~gf.any(x > 9), gf.min(gf.sum(x, axis=1)), 0.0)


CASES: dict[str, tuple[Callable[..., Any], np.ndarray, np.ndarray]] = {
    "perceptron": (
        perceptron,
        _rng.normal(size=(ROWS, 20)).astype(np.float32),
        _rng.integers(0, 3, ROWS),
    ),
    "checkpointed": (
        checkpointed,
        _rng.normal(size=(ROWS, 20)).astype(np.float32),
        _rng.integers(0, 3, ROWS),
    ),
    "convolutional": (
        convolutional,
        _rng.normal(size=(ROWS, 3, 8, 8)).astype(np.float32),
        _rng.integers(0, 3, ROWS),
    ),
    "recurrent": (
        recurrent,
        _rng.normal(size=(ROWS, 7, 5)).astype(np.float32),
        _rng.integers(0, 3, ROWS),
    ),
    "language": (language, _rng.integers(0, 5, (ROWS, 6)), _rng.integers(0, 5, (ROWS, 6))),
    "regression": (
        regression,
        _rng.normal(size=(ROWS, 20)).astype(np.float32),
        _rng.normal(size=(ROWS, 3)).astype(np.float32),
    ),
}


def train(mesh: Mesh, name: str, split: bool, **options: Any) -> Trained:
    """Make two steps; each process has some of the rows."""
    network, features, targets = CASES[name]
    with gf.Graph(mesh=mesh) as g:
        how = {"batch": "data"} if split else None
        x = gf.placeholder(("batch", *features.shape[1:]), features.dtype, name="x", split=how)
        y = gf.placeholder(("batch", *targets.shape[1:]), targets.dtype, name="y")
        found, loss = network(x, y)
        step = gf.optim.SGD(0.1, momentum=0.9, clip_norm=0.5).minimize(loss)
    own = mesh.shards("data", ROWS)
    feeds = {x: features[own.start : own.stop], y: targets[own.start : own.stop]}
    with gf.Session(g, seed=0, threads=1, **options) as session:
        for _ in range(2):
            value, rows, _ = session.run([loss, found, step], feeds)
        state = {name: np.asarray(v) for name, v in session.state_dict().items()}
    return Trained(value, rows, state)


def check_close(processes: list[Trained], whole: Trained) -> None:
    """See that processes have what one process has whose graph is not split."""
    rows = np.concatenate([one.rows for one in processes])
    np.testing.assert_allclose(rows, whole.rows, rtol=1e-4, atol=1e-5)
    for one in processes:
        np.testing.assert_allclose(one.loss, whole.loss, rtol=1e-5)
        for name, contents in whole.state.items():
            np.testing.assert_allclose(one.state[name], contents, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_two_processes_compute_the_bits_of_one(name: str):
    check_bits(name, 4, (1, 2))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("shards", "counts"), [(8, (1, 2, 4, 8)), (3, (1, 3)), (6, (2, 3, 6))])
def test_any_number_of_processes_computes_the_same_bits(name, shards, counts):
    check_bits(name, shards, counts)


def check_bits(name: str, shards: int, counts: tuple[int, ...]) -> None:
    """See that numbers of processes give the same bits, close to those without any split."""
    found = [
        SimulatedMesh(data=n).run(lambda m: train(m, name, True, shards=shards)) for n in counts
    ]
    assert len({one.bits for processes in found for one in processes}) == 1
    rows = {np.concatenate([one.rows for one in processes]).tobytes() for processes in found}
    assert len(rows) == 1
    check_close(found[-1], train(Mesh(data=1), name, split=False))


@pytest.mark.parametrize(
    ("name", "reduction"),
    [("perceptron", "fast"), ("regression", "ordered"), ("regression", "fast")],
)
def test_each_process_has_one_shard_if_none_are_asked_for(name: str, reduction: Reduction):
    found = SimulatedMesh(data=2).run(lambda mesh: train(mesh, name, True, reduction=reduction))
    check_close(found, train(Mesh(data=1), name, split=False))
    assert len({one.bits for one in found}) == 1


def test_one_process_without_shards_computes_the_bits_of_a_graph_that_is_not_split():
    split = train(Mesh(data=1), "perceptron", split=True)
    assert split.bits == train(Mesh(data=1), "perceptron", split=False).bits


@pytest.mark.slow
def test_mixed_precision_keeps_the_bits():
    options = {"shards": 4, "precision": "mixed-bf16"}
    found = [
        SimulatedMesh(data=n).run(lambda m: train(m, "perceptron", True, **options)) for n in (1, 4)
    ]
    assert len({one.bits for processes in found for one in processes}) == 1


@pytest.mark.parametrize("options", [{"debug": True}, {"check_finite": True}], ids=str)
def test_other_ways_to_run(options: dict[str, Any]):
    whole = train(Mesh(data=1), "perceptron", split=False)
    found = SimulatedMesh(data=2).run(lambda m: train(m, "perceptron", True, shards=4, **options))
    check_close(found, whole)


def test_a_checkpoint_of_four_processes_goes_on_in_two(tmp_path):
    path = tmp_path / "model.safetensors"
    _, features, targets = CASES["perceptron"]

    def program(mesh: Mesh, steps: int) -> bytes:
        with gf.Graph(mesh=mesh) as g:
            x = gf.placeholder(("batch", 20), name="x", split={"batch": "data"})
            y = gf.placeholder(("batch",), gf.int64, name="y")
            step = gf.optim.Adam(1e-2).minimize(perceptron(x, y)[1])
        own = mesh.shards("data", ROWS)
        with gf.Session(g, threads=1, shards=4) as session:
            if path.exists():
                session.restore(path)
            for _ in range(steps):
                session.run(
                    step, {x: features[own.start : own.stop], y: targets[own.start : own.stop]}
                )
            if mesh.rank == 0:
                session.save(path)
            return b"".join([np.asarray(v).tobytes() for v in session.state_dict().values()])

    (whole,) = SimulatedMesh(data=1).run(lambda mesh: program(mesh, 3))
    path.unlink()
    SimulatedMesh(data=4).run(lambda mesh: program(mesh, 2))
    assert SimulatedMesh(data=2).run(lambda mesh: program(mesh, 1)) == [whole] * 2


def test_texts_pickles_and_copies_keep_what_is_split():
    def program(mesh: Mesh) -> list[float]:
        with gf.Graph(mesh=mesh) as g:
            x = gf.placeholder(("batch", 2), name="x", split={"batch": "data"})
            gf.identity(gf.mean(x), name="mean")
        found = []
        for graph in (g, copy.deepcopy(g), pickle.loads(pickle.dumps(g)), gf.parse(str(g))):
            with gf.Session(graph, mesh=mesh) as session:
                found.append(float(session.run("mean", {"x": [[mesh.rank, mesh.rank + 2]]})))
        return found

    assert SimulatedMesh(data=2).run(program) == [[1.5] * 4] * 2


def test_a_run_that_exchanges_nothing_needs_no_other_process():
    def program(mesh: Mesh) -> list[float]:
        with gf.Graph(mesh=mesh) as g:
            x = gf.placeholder(("batch",), name="x", split={"batch": "data"})
            w = gf.Variable(3.0, name="w")
            double, count = gf.sin(x) * w, gf.dim_size(x, 0)
            number = gf.arange(x.shape[0])
        with gf.Session(g, shards=2) as session:
            feeds = {x: np.zeros(2, np.float32)}
            if mesh.rank == 0:
                session.run(double, {x: np.zeros(6, np.float32)})
            return [int(session.run(count, feeds)), *session.run(number, feeds)]

    assert SimulatedMesh(data=2).run(program) == [[4, 0, 1], [4, 2, 3]]


def test_other_sizes_that_only_a_run_knows():
    tokens = _rng.integers(0, 5, (ROWS, 9))

    def program(mesh: Mesh, split: bool) -> list[np.ndarray]:
        with gf.Graph(mesh=mesh) as g:
            how = {"batch": "data"} if split else None
            x = gf.placeholder(("batch", "time"), gf.int64, name="x", split=how)
            embedding, layer = gf.nn.Embedding(5, 8), gf.nn.GRU(8, 5)
            found = layer(gf.swapaxes(embedding(x), 0, 1))[0]
            logits = gf.reshape(gf.swapaxes(found, 0, 1)[:, :-1], (-1, 5))
            loss = gf.nn.cross_entropy(logits, gf.reshape(x[:, 1:], (-1,)))
            gradients = gf.grad(loss, [*embedding.parameters(), *layer.parameters()])
        own = mesh.shards("data", ROWS)
        with gf.Session(g, shards=4) as session:
            return session.run([loss, *gradients], {x: tokens[own.start : own.stop]})

    whole = program(Mesh(data=1), False)
    for found in SimulatedMesh(data=2).run(lambda mesh: program(mesh, True)):
        for array, expected in zip(found, whole, strict=True):
            np.testing.assert_allclose(array, expected, rtol=1e-4, atol=1e-6)


def test_shapes_alone():
    def program(mesh: Mesh) -> Any:
        with gf.Graph(mesh=mesh) as g:
            x = gf.placeholder(("batch", 5), name="x", split={"batch": "data"})
            scale = gf.placeholder((), name="scale")
            found = [x * scale, gf.sum(x, axis=0) * scale]
        with gf.Session(g, shards=4, executor="meta") as session:
            return [str(t) for t in session.run(found, {x: (6, 5), scale: ()})]

    assert SimulatedMesh(data=2).run(program) == [["float32[6, 5]", "float32[5]"]] * 2


def test_dims_that_are_not_split_are_as_before():
    def program(mesh: Mesh) -> float:
        with gf.Graph(mesh=mesh) as g:
            gf.placeholder(("batch",), name="x", split={"batch": "data"})
            y = gf.placeholder(("n",), name="y")
            total = gf.sum(y)
        with gf.Session(g, shards=2) as session:
            return float(session.run(total, {y: np.ones(3, np.float32)}))

    assert SimulatedMesh(data=2).run(program) == [3.0, 3.0]
