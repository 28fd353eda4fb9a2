"""The same bits for any number of processes."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfw as gf
from graphfw.distributed import Mesh, SimulatedMesh, tree
from tests.distributed.programs import SHARDS, train


@pytest.fixture(scope="module")
def alone() -> str:
    return train(Mesh(data=1))


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 7, 8])
def test_training_has_the_same_bits_for_any_number_of_processes(count: int, alone: str):
    assert set(SimulatedMesh(data=count).run(train)) == {alone}


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 40), st.data())
def test_the_tree_is_the_same_however_shards_are_held(shards: int, data: st.DataObject):
    count = data.draw(st.integers(1, shards))
    rng = np.random.default_rng(shards)
    x = (10.0 ** rng.integers(-6, 6, (shards, 3)) * rng.normal(size=(shards, 3))).astype("float32")
    whole = tree.joined_subtrees(x, range(shards), shards, np.add)
    assert len(whole) == 1
    values = {}
    for index in range(count):
        own = tree.held(shards, count, index)
        sums = tree.joined_subtrees(x[own.start : own.stop], own, shards, np.add)
        values.update(zip(tree.subtrees(own, shards), sums, strict=True))
    np.testing.assert_array_equal(tree.joined(values, tree.root(shards), shards, np.add), whole[0])
    np.testing.assert_allclose(whole[0], x.sum(axis=0, dtype=np.float64), rtol=1e-3)


def test_a_checkpoint_of_four_processes_goes_on_in_two(tmp_path):
    path = tmp_path / "model.safetensors"

    def program(mesh: Mesh, steps: int) -> np.ndarray:
        own = mesh.shards("data", SHARDS)
        rows = np.arange(SHARDS * 3, dtype=np.float32).reshape(SHARDS, 3) / 7
        with gf.Graph(mesh=mesh) as g:
            x = gf.placeholder(("k", 3), name="x")
            w = gf.Variable([0.1, 0.2, 0.3], name="w")
            noise = gf.random.normal((3,), name="noise")
            found = gf.vmap(lambda row: gf.sin(row * w) / 3)(x)
            mean = gf.distributed.all_reduce(found, "data", shards=SHARDS) / SHARDS
            step = gf.update(w, w + mean + 0.01 * noise)
        with gf.Session(g, threads=1) as session:
            if path.exists():
                session.restore(path)
            for _ in range(steps):
                session.run(step, {x: rows[own.start : own.stop]})
            if mesh.rank == 0:
                session.save(path)
            return session["w"]

    (whole,) = SimulatedMesh(data=1).run(lambda mesh: program(mesh, 5))
    path.unlink()
    SimulatedMesh(data=4).run(lambda mesh: program(mesh, 3))
    for found in SimulatedMesh(data=2).run(lambda mesh: program(mesh, 2)):
        np.testing.assert_array_equal(found, whole)


def test_graphs_with_collectives_are_copied_pickled_and_parsed():
    def program(mesh: Mesh) -> list[float]:
        with gf.Graph(mesh=mesh) as g:
            x = gf.placeholder((), name="x")
            total = gf.distributed.all_reduce(x, "data")
            g.outputs = (total,)
        found = []
        for graph in (copy.deepcopy(g), pickle.loads(pickle.dumps(g)), gf.parse(str(g))):
            with gf.Session(graph, mesh=mesh) as session:
                output = graph.nodes[-1].outputs[0]
                found.append(float(session.run(output, {"x": mesh.rank + 1})))
        return found

    assert SimulatedMesh(data=2).run(program) == [[3.0] * 3] * 2
