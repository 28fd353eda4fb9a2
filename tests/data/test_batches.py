"""`gf.data.batches`: rows of arrays, each once an epoch, in an order that a seed draws."""

import sys

import numpy as np
import pytest

import graphfw as gf


@pytest.mark.parametrize("rows", [1, 7, 8, 64])
@pytest.mark.parametrize("size", [1, 3, 8, 100])
@pytest.mark.parametrize("seed", [None, 0, 5])
def test_each_row_once_an_epoch(rows, size, seed):
    x = np.arange(rows)
    made = gf.data.batches({"x": x, "y": -x}, size, seed=seed, epochs=3)
    assert len(made) == 3 * -(-rows // size)
    for epoch in range(3):
        own = made[epoch * len(made) // 3 : (epoch + 1) * len(made) // 3]
        assert all([len(b["x"]) == size for b in own[:-1]])
        found = np.concatenate([b["x"] for b in own])
        np.testing.assert_array_equal(np.sort(found), x)
        np.testing.assert_array_equal(np.concatenate([b["y"] for b in own]), -found)
        assert seed is not None or found.tolist() == x.tolist()


def test_epochs_and_seeds_have_orders_of_their_own():
    def order(seed, epoch):
        made = gf.data.batches(np.arange(100), 100, seed=seed, epochs=2)
        return tuple(made[epoch])

    orders = {order(seed, epoch) for seed in range(3) for epoch in range(2)}
    assert len(orders) == 6
    assert order(1, 1) == order(1, 1)


def test_what_is_left_of_an_epoch():
    made = gf.data.batches(np.arange(10), 4, epochs=2, drop_remainder=True)
    assert [b.tolist() for b in made] == [[0, 1, 2, 3], [4, 5, 6, 7]] * 2
    assert made[-1].tolist() == [4, 5, 6, 7]
    with pytest.raises(IndexError, match="there are 4 batches"):
        made[4]


def test_no_end():
    made = gf.data.batches(np.arange(10), 4, seed=1, epochs=None)
    assert len(made) == sys.maxsize
    assert sorted(np.concatenate(made[300_000:300_003])) == list(range(10))
    assert repr(made) == "<endless batches of 4 of 10 rows>"


def test_forms():
    x, y = np.arange(4), np.arange(8).reshape(4, 2)
    assert gf.data.batches([x, y], 2)[1][1].tolist() == [[4, 5], [6, 7]]
    assert isinstance(gf.data.batches((x, y), 2)[0], tuple)
    assert gf.data.batches([[1, 2], [3, 4]], 1)[0][0].tolist() == [1]


def test_memory_mapped_files_stay_on_the_disk(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(1000).reshape(100, 10))
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    made = gf.data.batches({"x": x}, 8, seed=0)
    assert isinstance(made._source._arrays["x"], np.memmap)
    assert made[0]["x"].shape == (8, 10)


@pytest.mark.parametrize("seed", [None, 4])
def test_rows_of_similar_lengths(rng, seed):
    lengths = rng.integers(1, 500, 1003)
    made = gf.data.batches(lengths, 10, seed=seed, epochs=2, lengths=lengths)
    found = [batch for batch in made]
    first, second = found[:101], found[101:]
    assert sorted(np.concatenate(first)) == sorted(np.concatenate(second)) == sorted(lengths)
    padding = sum([len(batch) * batch.max() - batch.sum() for batch in first])
    plain = gf.data.batches(lengths, 10, seed=3)
    assert padding < sum([len(batch) * batch.max() - batch.sum() for batch in plain]) / 10
    longest = [batch.max() for batch in first[:64]]
    assert (longest == sorted(longest)) == (seed is None)
    assert seed is None or not np.array_equal(first[0], second[0])
    assert made.signature != gf.data.batches(lengths, 10, seed=seed).signature


@pytest.mark.parametrize(
    ("columns", "options", "error", "why"),
    [
        ({}, {}, gf.ArgumentError, "there are no columns"),
        ({"x": np.ones(3), "y": np.ones(4)}, {}, gf.ShapeError, "'x' has 3 rows and 'y' has 4"),
        ((np.ones(3), np.ones(4)), {}, gf.ShapeError, "0 has 3 rows and 1 has 4"),
        ({"x": 5.0}, {}, gf.ShapeError, "'x' is one number"),
        ({"x": ["a", "b"]}, {}, gf.ArgumentError, "which are no numbers"),
        (np.ones((0, 3)), {}, gf.ShapeError, "0 rows make no batch"),
        (np.ones(3), {"size": 4, "drop_remainder": True}, gf.ShapeError, "3 rows make no batch"),
        (np.ones(3), {"size": 0}, gf.ArgumentError, "size=0 is no integer of at least 1"),
        (np.ones(3), {"size": 2.0}, gf.ArgumentError, "size=2.0"),
        (np.ones(3), {"seed": -1}, gf.ArgumentError, "seed=-1 is no integer of at least 0"),
        (np.ones(3), {"epochs": 0}, gf.ArgumentError, "epochs=0"),
        (np.ones(3), {"lengths": [1, 2]}, gf.ArgumentError, r"lengths is \[2\] of int64, and .* 3"),
        (np.ones(3), {"lengths": ["a"] * 3}, gf.ArgumentError, "lengths is .* of <U1"),
    ],
)
def test_what_is_refused(columns, options, error, why):
    with pytest.raises(error, match=why):
        gf.data.batches(columns, **{"size": 2} | options)


def test_arguments_of_a_data_loader():
    x = np.zeros((6, 2))
    with pytest.raises(gf.CallError) as caught:
        gf.data.batches({"x": x}, batch_size=3, shuffle=True)
    line, why = caught.value.fix.split("; ")
    assert line == "gf.data.batches({'x': x}, size=3)"
    assert why.startswith("without shuffle=: seed= shuffles")
