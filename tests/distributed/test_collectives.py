"""Collectives: values, gradients, batches, and the type rules' errors, on simulated processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.distributed import Mesh, SimulatedMesh
from graphfw.errors import AxisError, GradientError, GraphError, ShapeError
from tests.support.samples import Array

DTYPES = ["float32", "float64", "float16", "int32", "int64", "uint8", "complex64"]


COLLECTIVES = {
    "all_reduce": lambda x: gf.distributed.all_reduce(x, "data"),
    "shards": lambda x: gf.distributed.all_reduce(x, "data", shards=8),
    "reduce_scatter": lambda x: gf.distributed.reduce_scatter(x, "data"),
    "all_gather": lambda x: gf.distributed.all_gather(x, "data", axis=1),
    "all_to_all": lambda x: gf.distributed.all_to_all(x, "data", split_axis=0, concat_axis=1),
    "broadcast": lambda x: gf.distributed.broadcast(x, "data", root=1),
}


def results(
    count: int, function: Callable[[gf.Tensor], Any], arrays: list[Array], **options: Any
) -> list[Array]:
    """Return the value of a function of each process's own array."""

    def program(mesh: Mesh) -> Array:
        with gf.Graph(mesh=mesh) as g:
            x = gf.placeholder(arrays[0].shape, arrays[0].dtype, name="x")
            y = function(x)
        with gf.Session(g, threads=1, **options) as session:
            return session.run(y, {x: arrays[mesh.rank]})

    return SimulatedMesh(data=count).run(program)


def drawn(count: int, shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [(8 * rng.normal(size=shape)).astype(dtype) for _ in range(count)]


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_each_collective_computes_what_numpy_does(count: int, dtype: str):
    arrays = drawn(count, (2 * count, 3), dtype)
    total = np.sum(arrays, axis=0, dtype=dtype)
    close = {
        "rtol": 1e-2 if dtype == "float16" else 1e-5,
        "atol": 0.05 if dtype == "float16" else 1e-5,
    }

    def check(function: Callable[[gf.Tensor], Any], wanted: Callable[[int], Array]) -> None:
        for rank, found in enumerate(results(count, function, arrays)):
            assert found.dtype == dtype
            np.testing.assert_allclose(found, wanted(rank), **close)

    d = gf.distributed
    check(lambda x: d.all_reduce(x, "data"), lambda rank: total)
    check(lambda x: d.reduce_scatter(x, "data"), lambda r: total[2 * r : 2 * r + 2])
    check(lambda x: d.all_gather(x, "data", axis=1), lambda rank: np.concatenate(arrays, axis=1))
    check(lambda x: d.broadcast(x, "data", root=count - 1), lambda rank: arrays[-1])
    check(
        lambda x: d.all_to_all(x, "data", split_axis=0, concat_axis=1),
        lambda r: np.concatenate([a[2 * r : 2 * r + 2] for a in arrays], axis=1),
    )
    check(
        lambda x: d.all_to_all(x, "data", split_axis=0, concat_axis=0),
        lambda r: np.concatenate([a[2 * r : 2 * r + 2] for a in arrays], axis=0),
    )
    if dtype != "complex64":
        check(lambda x: d.all_reduce(x, "data", op="max"), lambda rank: np.max(arrays, axis=0))
        check(lambda x: d.all_reduce(x, "data", op="min"), lambda rank: np.min(arrays, axis=0))


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7, 5), (3000, 7)])
@pytest.mark.parametrize("reduction", ["ordered", "fast"])
def test_sums_of_all_sizes(shape: tuple[int, ...], reduction: str):
    arrays = drawn(3, shape)
    for found in results(3, COLLECTIVES["all_reduce"], arrays, reduction=reduction):
        np.testing.assert_array_equal(found, (arrays[0] + arrays[1]) + arrays[2])


def test_an_axis_of_a_mesh_of_two_axes():
    def program(mesh: Mesh) -> tuple[list[float], dict[str, int]]:
        with gf.Graph(mesh=mesh) as g:
            x = gf.placeholder((), name="x")
            d = gf.distributed
            sums = [d.all_reduce(x, name) for name in ("data", "model")]
            index = d.axis_index("model") + 10 * d.axis_index("data")
        with gf.Session(g) as session:
            return [float(y) for y in session.run([*sums, index], {x: mesh.rank})], mesh.coordinates

    found = SimulatedMesh(data=2, model=3).run(program)
    assert [sums for sums, _ in found] == [
        [r % 3 * 2 + 3, 3 + 9 * (r // 3), r % 3 + 10 * (r // 3)] for r in range(6)
    ]
    assert found[4][1] == {"data": 1, "model": 1}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_gradients_are_those_of_the_sum_of_all_losses(name: str):
    arrays = drawn(2, (4, 3), "float64")
    weights = np.random.default_rng(1).normal(size=(2, 100))

    def loss(x: gf.Tensor) -> gf.Tensor:
        y = gf.sin(COLLECTIVES[name](x))
        rows = gf.asarray(weights)[gf.distributed.axis_index("data"), : y.size]
        return gf.sum(gf.reshape(y, (-1,)) * rows)

    def total(arrays: list[Array]) -> float:
        return float(sum(results(2, loss, arrays)))

    found = results(2, lambda x: gf.grad(loss(x), x), arrays)
    for rank in range(2):
        wanted = np.zeros((4, 3))
        for index in np.ndindex(4, 3):
            sides = []
            for step in (1e-6, -1e-6):
                moved = [array.copy() for array in arrays]
                moved[rank][index] += step
                sides.append(total(moved))
            wanted[index] = (sides[0] - sides[1]) / 2e-6
        np.testing.assert_allclose(found[rank], wanted, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_vmap_and_jvp(name: str):
    arrays = drawn(2, (5, 4, 3))
    mapped = results(2, gf.vmap(COLLECTIVES[name]), arrays)
    singly = [results(2, COLLECTIVES[name], [a[i] for a in arrays]) for i in range(5)]
    for rank in range(2):
        np.testing.assert_array_equal(mapped[rank], [one[rank] for one in singly])
    ahead = results(2, lambda x: gf.jvp(COLLECTIVES[name], (x,), (x,))[1], [a[0] for a in arrays])
    for rank in range(2):
        np.testing.assert_allclose(ahead[rank], singly[0][rank], rtol=1e-6)


def opened(function: Callable[[gf.Tensor], Any]) -> None:
    with gf.Graph(mesh=Mesh(data=1)):
        function(gf.placeholder((4, 3), name="x"))


def test_mistakes_are_errors_where_the_graph_is_described():
    d = gf.distributed
    with gf.Graph(), pytest.raises(GraphError, match=r"in a graph without a mesh[\s\S]*mesh=mesh"):
        d.all_reduce(gf.ones(3), "data")
    with pytest.raises(GraphError, match="without a mesh"):
        d.all_reduce(gf.ones(3), "data")
    with pytest.raises(gf.ArgumentError, match=r"no axis 'date'[\s\S]*data"):
        opened(lambda x: d.all_reduce(x, "date"))
    with pytest.raises(gf.ArgumentError, match="axis_name is an int"):
        opened(lambda x: d.all_gather(x, 0))  # type: ignore[arg-type]  # meant
    with pytest.raises(gf.ArgumentError, match=r"op='mean' is no reduction[\s\S]*divide"):
        opened(lambda x: d.all_reduce(x, "data", op="mean"))  # type: ignore[arg-type]  # meant
    with pytest.raises(gf.ArgumentError, match="shards=-1"):
        opened(lambda x: d.all_reduce(x, "data", shards=-1))
    with pytest.raises(gf.ArgumentError, match="shards=0"):
        opened(lambda x: d.all_reduce(x, "data", shards=0))
    with pytest.raises(gf.ArgumentError, match="no process 1"):
        opened(lambda x: d.broadcast(x, "data", root=1))
    with pytest.raises(AxisError, match="axis 2 is out of range"):
        opened(lambda x: d.all_gather(x, "data", axis=2))
    with pytest.raises(ShapeError, match="no axis of shards"):
        opened(lambda x: d.all_reduce(gf.sum(x), "data", shards=2))
    with pytest.raises(GraphError, match=r"in the body of scan[\s\S]*before it or after it"):
        opened(lambda x: gf.scan(lambda c, row: (d.all_reduce(c + row, "data"), c), x[0], x))
    with pytest.raises(GradientError, match='op="max" has no gradient'):
        opened(lambda x: gf.grad(gf.sum(d.all_reduce(x, "data", op="max")), x))


def test_sizes_that_do_not_divide():
    def program(mesh: Mesh) -> None:
        with gf.Graph(mesh=mesh):
            gf.distributed.reduce_scatter(gf.placeholder((5, 2), name="x"), "data", axis=0)

    with pytest.raises(ShapeError, match="2, the number of processes, does not divide 5"):
        SimulatedMesh(data=2).run(program)


def test_meshes_that_are_none():
    with pytest.raises(gf.ArgumentError, match="a mesh has an axis or more"):
        Mesh()
    with pytest.raises(gf.ArgumentError, match="data=0 is no size"):
        Mesh(data=0)
    with pytest.raises(gf.ArgumentError, match=r"Mesh\(data=2\) is no grid of 1 process"):
        Mesh(data=2)
    with pytest.raises(gf.ArgumentError, match="two axes are -1"):
        Mesh(data=-1, model=-1)
    with pytest.raises(gf.ArgumentError, match="an axis is -1"):
        SimulatedMesh(data=-1)
    with pytest.raises(gf.ArgumentError, match="mesh is an int, not a mesh"):
        gf.Graph(mesh=2)  # type: ignore[arg-type]  # meant
    with gf.Graph(mesh=Mesh(data=1)) as g:
        gf.placeholder((), name="x")
    with pytest.raises(gf.ArgumentError, match=r"for Mesh\(data=1\), and the session has Mesh"):
        gf.Session(g, mesh=Mesh(model=1))
    with pytest.raises(gf.ArgumentError, match="reduction='slow'"):
        gf.Session(g, reduction="slow")  # type: ignore[arg-type]  # meant
