"""Annotations that contradict each other, and ops without a rule, are errors on their lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.distributed import Mesh, SimulatedMesh
from graphfw.errors import DistributedError, ShardingError
from graphfw.extend import ELEMENTWISE, NONDIFF, PURE, RANDOM


def split_placeholder(mesh: Mesh | None, split: Any, shape: Any = ("batch", 3)) -> None:
    with gf.Graph(mesh=mesh):
        gf.placeholder(shape, name="x", split=split)


@pytest.mark.parametrize(
    ("split", "error", "text"),
    [
        ({"bach": "data"}, gf.ArgumentError, "split names 'bach', and the shape [batch, 3]"),
        ({"batch": "dat"}, gf.ArgumentError, "the mesh has no axis 'dat'"),
        ({"batch": 0}, gf.ArgumentError, "split has an int for the dim 'batch'"),
        ({0: "data"}, gf.ArgumentError, "should name dims"),
        (("batch", "data"), gf.ArgumentError, "split is a tuple"),
        ("batch", gf.ArgumentError, "split is a str"),
    ],
)
def test_annotations_that_name_what_there_is_not(split, error, text):
    with pytest.raises(error) as caught:
        split_placeholder(Mesh(data=1), split)
    assert text in str(caught.value)
    assert "test_partition_errors.py" in str(caught.value)


def test_annotations_in_a_graph_without_a_mesh():
    with pytest.raises(gf.GraphError, match=r"with gf.Graph\(mesh=mesh\)"):
        split_placeholder(None, {"batch": "data"})


def test_a_split_dim_that_is_two_axes():
    with pytest.raises(ShardingError, match="is the size of axes 0 and 1"):
        split_placeholder(Mesh(data=1), {"batch": "data"}, ("batch", "batch"))


@pytest.mark.parametrize("dim", ["batch", "queries"])
def test_annotations_that_contradict_each_other_are_shown_with_both_lines(dim: str):
    with gf.Graph(mesh=Mesh(data=1, model=1)):
        gf.placeholder(("batch", 3), name="x", split={"batch": "data"})
        with pytest.raises(ShardingError) as caught:
            gf.placeholder((dim, 2), name="y", split={dim: "model"})
        with pytest.raises(ShardingError, match="two axes of the mesh"):
            gf.placeholder(("a", "b"), split={"a": "data", "b": "model"})
    text = str(caught.value)
    assert f'`{dim}` is to be split over "model", and `batch` is split over "data" by "x"' in text
    assert text.count("test_partition_errors.py:") >= 2


def compiled(mesh: Mesh, function: Callable[[gf.Tensor], gf.Tensor]) -> None:
    with gf.Graph(mesh=mesh) as g:
        x = gf.placeholder(("batch", 4), name="x", split={"batch": "data"})
        found = function(x)
    with gf.Session(g) as session:
        session.compile(found, feeds=[x])


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: gf.cumulative_sum(x, axis=0), "cumulative_sum: there is no rule that computes"),
        (lambda x: gf.sort(x, axis=0), "sort: there is no rule"),
        (lambda x: gf.concat([x, x]), "concat: there is no rule"),
        (lambda x: gf.flip(x, axis=0), "flip: there is no rule"),
        (lambda x: x[0], "slice: there is no rule by which it reduces over `batch`"),
        (lambda x: x[1:], "slice: axis 0 would be `max(batch - 1, 0)`"),
        (lambda x: gf.argmax(x, axis=0), "argmax: there is no rule by which it reduces"),
        (lambda x: gf.prod(x), "prod: there is no rule by which it reduces"),
        (lambda x: gf.take(x, gf.asarray([1, 0]), axis=0), "gather: there is no rule"),
        (lambda x: x @ gf.matrix_transpose(x), "matmul: axis 0, `batch`, and axis 1, `batch`,"),
        (lambda x: gf.reshape(x, (4, x.shape[0])), "reshape: it would put rows of `batch` between"),
        (lambda x: gf.flatten(gf.matrix_transpose(x)), "an axis of it is made of `batch` and of"),
        (
            lambda x: gf.flatten(gf.matrix_transpose(x)) + gf.flatten(x),
            "add: its operands have the rows of `batch` in different orders",
        ),
        (
            lambda x: gf.sort(gf.reshape(gf.matrix_transpose(x), (-1, 1)), axis=1),
            "sort: an axis of its operand is made of `batch` and of one before it",
        ),
        (lambda x: gf.reshape(x, (-1, 8)), "only multiples of `batch` can be split"),
        (lambda x: gf.distributed.all_reduce(x, "data"), "all_reduce: there is no rule"),
        (
            lambda x: gf.cond(gf.sum(x) > 0, lambda: x - gf.mean(x), lambda: x),
            "branch: sum in its body reduces over `batch`",
        ),
        (lambda x: gf.map(lambda row: row * 2, x), "scan: its length depends on `batch`"),
        (
            lambda x: gf.scan(lambda c, _: (c + gf.mean(x), None), 0.0, length=3)[0],
            "scan: dim_value in its body uses the size of `batch`",
        ),
        (
            lambda x: gf.scan(lambda c, _: (c * gf.sum(x), None), 0.0, length=3)[0],
            "scan: multiply in its body uses a sum over `batch` of one shard alone",
        ),
        (
            lambda x: gf.scan(lambda c, _: (c + gf.tanh(gf.sum(x)), None), 0.0, length=3)[0],
            "scan: tanh in its body uses a sum over `batch`",
        ),
        (
            lambda x: gf.scan(lambda c, _: (c + gf.sum(x), None), 1.0, length=3)[0],
            "scan: a sum over `batch` in its body does not begin with 0",
        ),
        (
            lambda x: gf.scan(lambda c, _: (c + gf.max(x), None), 0.0, length=3)[0],
            "scan: max in its body reduces over `batch`",
        ),
        (
            lambda x: gf.scan(lambda c, _: (c + 1, x * 2), 0.0, length=3)[1] * 1,
            "scan: some of its results have `batch`, and others don't",
        ),
    ],
)
def test_what_has_no_rule(function: Callable[[gf.Tensor], gf.Tensor], text: str):
    with pytest.raises(ShardingError) as caught:
        compiled(Mesh(data=1), function)
    shown = str(caught.value)
    assert text in shown
    assert '`batch` is split over "data" by "x" (' in shown
    assert shown.count("test_partition_errors.py:") >= 2  # of the op and of the annotation


def test_split_dims_that_meet():
    with gf.Graph(mesh=Mesh(data=1)) as g:
        x = gf.placeholder(("batch", 1), name="x", split={"batch": "data"})
        y = gf.placeholder(("queries",), name="y", split={"queries": "data"})
        product = x * y
    with gf.Session(g) as session, pytest.raises(ShardingError) as caught:
        session.compile(product, feeds=[x, y])
    text = str(caught.value)
    assert "multiply: axis 0, `batch`, and axis 1, `queries`, would both be split" in text
    assert '`batch` is split over "data" by "x"' in text
    assert '`queries` is split over "data" by "y"' in text


def summed(mesh: Mesh, rows: int, **options: Any) -> float:
    with gf.Graph(mesh=mesh) as g:
        x = gf.placeholder(("batch",), name="x", split={"batch": "data"})
        w = gf.Variable(0.0, name="w")
        step = gf.update(w, w + gf.sum(x))
    with gf.Session(g, **options) as session:
        try:
            session.run(step, {x: np.ones(rows, np.float32)})
        except (gf.FeedError, DistributedError):
            assert float(session["w"]) == 0
            raise
        return float(session["w"])


def errors_of(program: Callable[[Mesh], Any]) -> list[str]:
    """Return the errors of two processes."""

    def caught(mesh: Mesh) -> str:
        try:
            program(mesh)
        except gf.GraphfwError as error:
            return f"{type(error).__name__}: {error}"
        return ""

    return SimulatedMesh(data=2).run(caught)


def test_rows_that_the_shards_of_a_process_do_not_divide():
    first, second = errors_of(lambda mesh: summed(mesh, 4 + mesh.rank, shards=4))
    assert first.startswith("DistributedError: process 1 of 2 failed: FeedError")
    text = 'FeedError: "x" is [2*batch] and is fed [5]: dim 0 is 5, which is no multiple of 2'
    assert second.startswith(text)


@pytest.mark.parametrize("options", [{}, {"shards": 2}, {"reduction": "fast"}], ids=str)
def test_processes_with_different_numbers_of_rows(options: dict[str, Any]):
    for text in errors_of(lambda mesh: summed(mesh, 4 + mesh.rank, **options)):
        assert text.startswith("DistributedError: the processes don't do the same")
        assert "4 for `batch`" in text


def test_shards_that_processes_do_not_divide():
    for text in errors_of(lambda mesh: summed(mesh, 3, shards=3)):
        assert text.startswith(
            'ArgumentError: 3 shards don\'t divide among 2 processes along "data"'
        )

    def on_a_grid(mesh: Mesh) -> None:
        summed(Mesh._of(mesh._grid.processes, {"data": 2, "model": 1}), 3, shards=3)

    assert all("3 shards don't divide" in text for text in errors_of(on_a_grid))


@pytest.mark.parametrize("shards", [0, -1, 2.0, "8", True])
def test_shards_that_are_no_number(shards: Any):
    with pytest.raises(gf.ArgumentError, match="shards"):
        gf.Session(gf.Graph(mesh=Mesh(data=1)), shards=shards)


def test_shards_without_a_mesh():
    with pytest.raises(gf.ArgumentError, match="there is none"):
        gf.Session(gf.Graph(), shards=8)


def test_processes_with_other_values_of_what_is_not_split():
    def program(mesh: Mesh, rate: Any) -> None:
        with gf.Graph(mesh=mesh) as g:
            x = gf.placeholder(("batch",), name="x", split={"batch": "data"})
            r = gf.placeholder(rate.shape, name="rate")
            total = gf.sum(x) * r
        with gf.Session(g) as session:
            session.run(total, {x: np.ones(2, np.float32), r: rate})

    rates = np.asarray([0.5, 0.25], np.float32)
    for text in errors_of(lambda mesh: program(mesh, rates[mesh.rank])):
        assert text.startswith("DistributedError: the processes don't do the same")
        assert '0.5 fed to "rate", which is not split' in text
    rates = np.asarray([[0.5, 1.0], [0.25, 1.0]], np.float32)
    for text in errors_of(lambda mesh: program(mesh, rates[mesh.rank])):
        assert 'fed to "rate", which is not split' in text
    assert errors_of(lambda mesh: program(mesh, rates[0])) == ["", ""]


def test_collectives_beside_split_dims():
    def call(x: gf.Tensor) -> gf.Tensor:
        return x * gf.astype(gf.distributed.axis_index("data"), gf.float32)

    with pytest.raises(ShardingError, match="a graph with `batch` has collectives of its own"):
        compiled(Mesh(data=1), call)


def test_draws_of_other_packages_have_no_rule():
    @gf.op("tests.noise_of_rows")
    class Noise(gf.Op):
        """Noise that is added by rows.  x: [*A]  ->  [*A]"""

        key: str = "noise"
        traits = frozenset({PURE, ELEMENTWISE, RANDOM})
        vjp = NONDIFF

        def shape(self, x: Any) -> Any:
            return x

        def dtype(self, x: Any) -> Any:
            return x

        def eval(self, xp: Any, x: Any, *, rng: Any) -> Any:
            return x

    with pytest.raises(ShardingError, match="is done once, and not for each shard of `batch`"):
        compiled(Mesh(data=1), lambda x: gf.apply(Noise(), x))
