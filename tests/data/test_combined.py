"""Mixtures of datasets, and sequences packed into rows: contents, and where a run goes on."""

import json

import numpy as np
import pytest

import graphfw as gf

grain = pytest.importorskip("grain")


class TestMixed:
    def test_shares_and_end(self):
        found = list(gf.data.mixed([range(1000), range(1000, 3000)], [0.25, 0.75]))
        # The second is used up, with each of its examples once.
        assert len(found) == 2000 / 0.75 // 1
        for first in range(0, len(found) - 100, 100):
            assert 24 <= sum([x < 1000 for x in found[first : first + 100]]) <= 26
        ours = [x for x in found if x < 1000]
        assert ours == [*range(len(ours))]

    def test_seeds_and_epochs(self):
        def orders(seed, epochs=1):
            return list(gf.data.mixed([range(20), range(100, 120)], seed=seed, epochs=epochs))

        assert orders(0) == orders(0) != orders(1)
        twice = orders(3, 2)
        assert sorted(twice) == sorted([*range(20), *range(100, 120)] * 2)
        assert twice[:40] == orders(3)
        assert twice[40:] != twice[:40]
        endless = gf.data.mixed([range(2), range(10, 13)], seed=0, epochs=None)
        assert sorted([endless[i] for i in range(12)]) == [0, 0, 0, 1, 1, 1, 10, 10, 11, 11, 12, 12]

    @pytest.mark.parametrize("taken", [0, 1, 5])
    def test_a_run_goes_on(self, taken):
        sources = [[{"x": float(i)} for i in range(n, 2 * n)] for n in (10, 20)]
        with gf.Graph() as g:
            x = gf.placeholder(("batch",), "float64", name="x")
            total = gf.sum(x)
        with gf.Session(g) as session:
            plan = session.compile(total, feeds=[x])

            def feeds(position=None):
                data = gf.data.mixed(sources, [1, 2], seed=2)
                return gf.data.feeds(gf.data.batches(data, 4), plan, position=position)

            whole = [feed[x].tolist() for feed in feeds()]
            first = feeds()
            before = [next(first)[x].tolist() for _ in range(taken)]
            rest = feeds(json.loads(json.dumps(first.position)))
            assert before + [feed[x].tolist() for feed in rest] == whole

    @pytest.mark.parametrize(
        ("datasets", "options", "why"),
        [
            ([], {}, "there are no datasets"),
            ("ab", {}, "there are no datasets"),
            ([range(3), {"x": [1]}], {}, "dataset 1 is a dict, which does not give examples"),
            ([range(3), range(0)], {}, "dataset 1 has no examples"),
            ([range(3), range(3)], {"weights": [1]}, "there are 2 datasets and 1 weight"),
            ([range(3), range(3)], {"weights": [1, 0]}, "weight 0 is no positive number"),
            ([range(3), range(3)], {"weights": [1, float("nan")]}, "weight nan is no positive"),
            ([range(3), range(3)], {"weights": [1, "2"]}, "weight '2' is no positive"),
            ([range(3)], {"seed": -1}, "seed=-1 is no integer"),
            ([range(3)], {"epochs": 0}, "epochs=0 is no integer"),
        ],
    )
    def test_what_is_refused(self, datasets, options, why):
        with pytest.raises(gf.ArgumentError, match=why):
            gf.data.mixed(datasets, **options)


def sequences(rng, count=60, longest=9):
    return [{"x": rng.integers(1, 99, n)} for n in rng.integers(1, longest + 1, count)]


def unpacked(rows):
    """Return the sequences of packed rows, which must be whole."""
    found = []
    for row in rows:
        ids, positions = row["x_segment_ids"], row["x_positions"]
        assert ids.dtype == positions.dtype == np.int32
        assert not row["x"][ids == 0].any()
        for one in range(1, ids.max() + 1):
            (where,) = np.nonzero(ids == one)
            np.testing.assert_array_equal(where, np.arange(where[0], where[-1] + 1))
            np.testing.assert_array_equal(positions[where], np.arange(len(where)))
            found.append(row["x"][where].tolist())
    return found


class TestPacked:
    @pytest.mark.parametrize("bins", [1, 4, 100])
    def test_each_sequence_once(self, rng, bins):
        examples = sequences(rng)
        rows = list(gf.data.packed(examples, 10, bins=bins))
        assert all([row["x"].shape == (10,) for row in rows])
        assert sorted(unpacked(rows)) == sorted([e["x"].tolist() for e in examples])
        if bins > 1:
            assert len(rows) < len(list(gf.data.packed(examples, 10, bins=1)))

    def test_split(self, rng):
        examples = sequences(rng, longest=25)
        rows = list(gf.data.packed(examples, 10, split=True))
        total = sum([len(e["x"]) for e in examples])
        assert len(rows) == -(-total // 10)
        assert all([(row["x_segment_ids"] > 0).all() for row in rows[:-1]])
        whole = np.concatenate([row["x"] for row in rows])[:total]
        np.testing.assert_array_equal(whole, np.concatenate([e["x"] for e in examples]))

    def test_several_columns(self, rng):
        examples = [
            {"x": rng.integers(1, 9, n), "e": rng.standard_normal((2 * n, 3)), "id": n}
            for n in rng.integers(1, 5, 20)
        ]
        row, *_ = gf.data.packed(examples, {"x": 8, "e": 16})
        assert (row["x"].shape, row["e"].shape) == ((8,), (16, 3))
        assert row["x_segment_ids"].max() == row["e_segment_ids"].max() > 1
        assert not any([name.startswith("id") for name in row])
        (row, *_) = gf.data.packed(examples, {"x": 8})
        assert set(row) == {"x", "x_segment_ids", "x_positions"}

    def test_attention_within_sequences_is_that_of_each(self, rng):
        examples = [{"x": rng.standard_normal((n, 4))} for n in (3, 2, 4, 1)]
        (row,) = gf.data.packed(examples, 10)
        x = row["x"][None, None]
        ids = row["x_segment_ids"][None]
        mask = ids[:, None, :, None] == ids[:, None, None, :]

        def attended(x, mask):
            with gf.Graph() as g:
                q = gf.constant(x)
                y = gf.scaled_dot_product_attention(q, q, q, mask)
            return gf.Session(g).run(y)[0, 0]

        expected = [attended(e["x"][None, None], None) for e in examples]
        np.testing.assert_allclose(attended(x, mask), np.concatenate(expected), rtol=1e-6)

    @pytest.mark.exhaustive(every=2)
    @pytest.mark.parametrize("split", [False, True])
    @pytest.mark.parametrize("filtered", [False, True])
    def test_a_run_goes_on_from_json(self, rng, split, filtered):
        examples = sequences(rng, 40)

        def dataset():
            source = grain.MapDataset.source(examples).shuffle(seed=1)
            if filtered:
                source = source.to_iter_dataset().filter(lambda example: len(example["x"]) > 3)
            return gf.data.packed(source, 12, bins=4, split=split).batch(2)

        with gf.Graph() as g:
            x = gf.placeholder(("batch", 12), "int64", name="x")
            ids = gf.placeholder(("batch", 12), "int32", name="x_segment_ids")
            total = gf.sum(x) + gf.sum(ids)
        with gf.Session(g) as session:
            plan = session.compile(total, feeds=[x, ids])

            def rows(feeds):
                return [[array.tolist() for array in feed.values()] for feed in feeds]

            whole = rows(gf.data.feeds(dataset(), plan))
            assert len(whole) > 4
            for taken in range(len(whole)):
                with gf.data.feeds(dataset(), plan) as feeds:
                    before = rows([next(feeds) for _ in range(taken)])
                    position = json.loads(json.dumps(feeds.position))
                rest = gf.data.feeds(dataset(), plan, position=position)
                assert before + rows(rest) == whole

    @pytest.mark.parametrize(
        ("examples", "length", "options", "error", "why"),
        [
            (5, 8, {}, gf.ArgumentError, "the data is an int"),
            ([], 8, {}, gf.ArgumentError, "the data is a list"),
            (range(3), 8, {}, gf.ArgumentError, "the examples are an int"),
            ([{"x": 3}], 8, {}, gf.ArgumentError, "no column of the examples has a dim"),
            ([{"x": [3]}], 0, {}, gf.ArgumentError, "length=0"),
            ([{"x": [3]}], {}, {}, gf.ArgumentError, "length names no columns"),
            ([{"x": [3]}], {"x": 2.5}, {}, gf.ArgumentError, "length=2.5"),
            ([{"x": [3]}], 8, {"bins": 0}, gf.ArgumentError, "bins=0"),
            ([{"x": [1]}, {"x": range(9)}], 8, {}, gf.DataError, "'x' of example 1 has 9 elem"),
            ([{"x": [1]}, {"y": [1]}], 8, {}, gf.DataError, "example 1 has no 'x'; it has y"),
            ([{"x": [1]}, {"x": 1}], 8, {}, gf.DataError, "'x' of example 1 has no dims"),
        ],
    )
    def test_what_is_refused(self, examples, length, options, error, why):
        with pytest.raises(error, match=why):
            list(gf.data.packed(examples, length, **options))
