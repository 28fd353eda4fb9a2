"""`gf.data.feeds`: batches of any dataset, checked and made ahead; and where a run goes on."""

import json
import threading
import time

import numpy as np
import pytest

import graphfw as gf


@pytest.fixture
def plan():
    """A plan of two feeds that returns the sum of x by the rows of each label."""
    with gf.Graph() as g:
        x = gf.placeholder(("batch", 3), name="x")
        y = gf.placeholder(("batch",), "int64", name="y")
        total = gf.segment_sum(gf.sum(x, axis=1), y, 4)
    with gf.Session(g) as session:
        yield session.compile(total, feeds=[x, y])


def columns(rng, rows=10):
    x = rng.standard_normal((rows, 3)).astype(np.float32)
    return {"x": x, "y": rng.integers(0, 4, rows)}


def rows_of(feeds):
    return [[array.tolist() for array in feed.values()] for feed in feeds]


class TestWhatIsTaken:
    def test_batches_of_arrays(self, plan, rng):
        data = columns(rng)
        found = gf.data.feeds(gf.data.batches(data, 4), plan)
        assert len(found) == 3
        totals = sum([plan(*feed.values()) for feed in found])
        np.testing.assert_allclose(totals.sum(), data["x"].sum(), rtol=1e-5)
        assert list(found) == []
        assert len(found) == 0

    def test_a_feed_is_what_a_session_takes(self, rng):
        with gf.Graph() as g:
            x = gf.placeholder(("batch", 3), name="x")
            y = gf.placeholder(("batch",), "int64")
            total = gf.sum(x) + gf.sum(y)
        with gf.Session(g) as session:
            plan = session.compile(total, feeds=[y, x])
            data = columns(rng)
            for feed in gf.data.feeds([(data["y"], data["x"])], plan):
                assert list(feed) == [y, x]
                np.testing.assert_allclose(session.run(total, feed), plan(*feed.values()))

    @pytest.mark.parametrize("kind", ["list", "generator", "own", "tuples", "lists"])
    def test_any_iterable(self, plan, rng, kind):
        data = columns(rng)
        made = list(gf.data.batches(data, 4))

        class Own:
            def __getitem__(self, number):
                return made[number]

            def __len__(self):
                return len(made)

        given = {
            "list": made,
            "generator": (batch for batch in made),
            "own": Own(),
            "tuples": [(batch["x"], batch["y"]) for batch in made],
            "lists": [[batch["x"], batch["y"]] for batch in made],
        }[kind]
        found = list(gf.data.feeds(given, plan))
        assert rows_of(found) == [[b["x"].tolist(), b["y"].tolist()] for b in made]

    def test_one_array_for_one_feed(self):
        with gf.Graph() as g:
            x = gf.placeholder(("batch",), name="x")
            y = gf.sum(x)
        with gf.Session(g) as session:
            plan = session.compile(y, feeds=[x])
            given = [np.array([1.0, 2.0], np.float32), np.array([3.0], np.float32)]
            found = [float(plan(*feed.values())) for feed in gf.data.feeds(given, plan)]
        assert found == [3.0, 3.0]

    def test_pytorchs_loader(self, plan, rng):
        torch = pytest.importorskip("torch")
        data = columns(rng)
        dataset = torch.utils.data.TensorDataset(*map(torch.tensor, data.values()))
        loader = torch.utils.data.DataLoader(dataset, batch_size=4)
        found = gf.data.feeds(loader, plan)
        assert len(found) == 3
        np.testing.assert_array_equal(
            np.concatenate([next(iter(f.values())) for f in found]), data["x"]
        )

    def test_columns_that_no_feed_has_are_left_out(self, plan, rng):
        data = columns(rng) | {"weight": np.ones(10)}
        assert len(list(gf.data.feeds(gf.data.batches(data, 4), plan))) == 3

    def test_nothing(self, plan):
        assert list(gf.data.feeds([], plan)) == []


class TestWhatIsRefused:
    """Before a run, where the first batch shows it."""

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            (lambda d: d | {"y": d["y"].astype(np.float32)}, '"y" is int64 and is fed float32'),
            (lambda d: d | {"x": d["x"].astype(np.float64)}, "can't be converted without loss"),
            (lambda d: d | {"x": d["x"][:, :2]}, "dim 1 is 2, not 3"),
            (lambda d: d | {"x": d["x"][..., None]}, "3 dims, not 2"),
            (lambda d: d | {"y": d["y"][:3]}, "the dim `batch` is 4 .* and 3"),
            (lambda d: {"x": d["x"]}, "it has nothing for \"y\"; its names are 'x'"),
            (lambda d: (d["x"],), "it has 1 array, and the plan has 2 feeds"),
            (lambda d: d["x"], "it is .*array, and the plan has 2 feeds"),
        ],
    )
    def test_the_first_batch(self, plan, rng, change, why):
        (batch, *_) = gf.data.batches(columns(rng), 4)
        with pytest.raises(gf.FeedError, match=f"batch 0 of the data: .*{why}"):
            gf.data.feeds([change(batch)], plan)

    def test_a_later_batch(self, plan, rng):
        batch, *_ = gf.data.batches(columns(rng), 4)
        found = gf.data.feeds([batch, batch | {"x": batch["x"][:, :2]}], plan)
        next(found)
        with pytest.raises(gf.FeedError, match=r"batch 1 of the data: .*(?s:.*)drop_remainder"):
            next(found)
        assert list(found) == []

    def test_what_fails_in_the_data_is_raised_as_it_is(self, plan, rng):
        def broken():
            yield from gf.data.batches(columns(rng), 4)
            raise RuntimeError("no such file")

        found = gf.data.feeds(broken(), plan)
        with pytest.raises(RuntimeError, match="no such file") as caught:
            list(found)
        assert caught.value.__notes__ == ["raised while batch 3 of the data was made"]
        assert caught.traceback[-1].name == "broken"

    @pytest.mark.parametrize("data", [5, None, "x.npy", {"x": np.ones(3)}])
    def test_what_is_no_dataset(self, plan, data):
        with pytest.raises(gf.ArgumentError, match="gives no batches one by one"):
            gf.data.feeds(data, plan)

    def test_what_is_no_plan(self, plan):
        with pytest.raises(gf.ArgumentError, match=r"pass plan = session.compile"):
            gf.data.feeds([], None)
        with pytest.raises(gf.ArgumentError, match="or a function with @gf"):
            gf.data.feeds([], lambda x: x)
        with gf.Graph() as g:
            y = gf.ones(3)
        with gf.Session(g) as session, pytest.raises(gf.ArgumentError, match="has no feeds"):
            gf.data.feeds([], session.compile(y))
        for bad in (-1, 1.5, True):
            with pytest.raises(gf.ArgumentError, match="ahead"):
                gf.data.feeds([], plan, ahead=bad)
        with pytest.raises(gf.ArgumentError, match="make batches by number"):
            gf.data.feeds(iter([]), plan, workers=2)


class TestFunctions:
    @pytest.fixture
    def total(self):
        return gf.function(lambda x, y, scale=1.0: gf.sum(x) * scale + gf.sum(y))

    def test_a_feed_has_its_arguments(self, total, rng):
        data = columns(rng)
        batches = gf.data.batches(data | {"weight": np.ones(10)}, 4)
        found = gf.data.feeds(batches, total)
        assert found.first.keys() == {"x", "y"}
        assert "1 build" in repr(total), "it is built for the first batch"
        results = [float(total(**feed)) for feed in found]
        np.testing.assert_allclose(sum(results), data["x"].sum() + data["y"].sum(), rtol=1e-5)
        assert found.first is None

    def test_it_goes_on(self, total, rng):
        batches = gf.data.batches(columns(rng), 4, seed=1)
        with gf.data.feeds(batches, total) as found:
            next(found)
            position = found.position
            rest = [feed["x"].tobytes() for feed in found]
        again = gf.data.feeds(batches, total, position=position)
        assert [feed["x"].tobytes() for feed in again] == rest

    def test_tuples_fill_parameters_in_order(self, total):
        (feed,) = gf.data.feeds([(np.ones(3), np.ones(2), np.float32(2))], total)
        assert list(feed) == ["x", "y", "scale"]
        assert total(**feed) == 8
        (feed,) = gf.data.feeds([(np.ones(3), np.ones(2))], total)
        assert list(feed) == ["x", "y"]

    def test_what_is_refused(self, total):
        for batch, why in [
            ({"x": np.ones(3)}, 'it has nothing for "y"'),
            ([np.ones(3)], "it has 1 array, and <lambda> takes x, y, scale"),
            ({"x": np.ones(3), "y": None}, "y is a NoneType, no array"),
        ]:
            with pytest.raises(gf.FeedError, match=f"batch 0 of the data: {why}"):
                gf.data.feeds([batch], total)
        with pytest.raises(gf.ShapeError):
            gf.data.feeds([np.ones((2, 3))], gf.function(lambda x: x @ x))
        with pytest.raises(gf.ArgumentError, match="takes x only by position"):
            gf.data.feeds([np.ones(3)], gf.function(lambda x, /: x))
        with pytest.raises(gf.ArgumentError, match="takes no arguments"):
            gf.data.feeds([np.ones(3)], gf.function(lambda: gf.ones(3)))

    def test_names_without_parameters(self):
        total = gf.function(lambda **columns: sum(gf.sum(x) for x in columns.values()))
        (feed,) = gf.data.feeds([{"a": np.ones(3), "b": np.ones(2)}], total)
        assert total(**feed) == 5
        with pytest.raises(gf.FeedError, match="a dict by the names of the parameters"):
            gf.data.feeds([np.ones(3)], total)


def test_arguments_of_a_function_are_names():
    """Also where another function of the model has the same names, and for other builds."""
    net, optimizer = gf.nn.Linear(3, 1), gf.optim.SGD(0.1)

    @gf.function
    def train(x, y):
        loss = gf.mean((net(x) - y) ** 2)
        optimizer.minimize(loss)
        return loss

    @gf.function
    def evaluate(x, y):
        return gf.mean((net(x) - y) ** 2)

    x = np.ones((6, 3), np.float32)
    data = gf.data.batches({"y": x[:, :1], "x": x}, 4)
    for function in (train, evaluate, train):
        plan = function.plan(x[:4], x[:4, :1])
        assert plan.feed_names == ("x", "y")
        assert ": x, y -> " in repr(plan)
        with gf.data.feeds(data, plan) as feeds:
            losses = [function(*feed.values()) for feed in feeds]
        assert len(losses) == 2
        assert np.isfinite(losses).all()
        with pytest.raises(gf.FeedError, match="has nothing for \"y\"; its names are 'x'"):
            gf.data.feeds(gf.data.batches({"x": x}, 4), plan)


class TestGoingOn:
    @pytest.mark.parametrize("kind", ["sequence", "iterable"])
    @pytest.mark.parametrize("taken", [0, 1, 3, 6])
    def test_the_rest_is_the_same(self, plan, rng, kind, taken):
        data = columns(rng)

        def dataset():
            made = gf.data.batches(data, 4, seed=3, epochs=2)
            return made if kind == "sequence" else iter(made)

        first = gf.data.feeds(dataset(), plan)
        before = [next(first) for _ in range(taken)]
        position = json.loads(json.dumps(first.position))
        rest = gf.data.feeds(dataset(), plan, position=position)
        whole = rows_of(gf.data.feeds(dataset(), plan))
        assert rows_of(before) + rows_of(rest) == whole

    def test_what_is_ready_and_was_not_taken_comes_again(self, plan, rng):
        data = gf.data.batches(columns(rng), 2)
        first = gf.data.feeds(data, plan, ahead=4)
        next(first)
        time.sleep(0.05)
        assert first.position["batches"] == 1

    def test_other_data_is_refused(self, plan, rng):
        data = columns(rng)
        position = gf.data.feeds(gf.data.batches(data, 4, seed=3), plan).position
        for other, why in (
            (gf.data.batches(columns(rng, 12), 4, seed=3), "rows is 12 and was 10"),
            (gf.data.batches(data | {"x": -data["x"]}, 4, seed=3), "its contents have changed"),
            (gf.data.batches(data, 5, seed=4), "size is 5 and was 4, seed is 4 and was 3"),
            (list(gf.data.batches(data, 4)), "batches is 3 and was None"),
        ):
            with pytest.raises(gf.ArgumentError, match=why):
                gf.data.feeds(other, plan, position=position)
        made = iter(gf.data.batches(data, 4))
        late = {"batches": 7, "data": {"kind": type(made).__name__}}
        with pytest.raises(gf.ArgumentError, match="after 7 batches, and the data has 3"):
            gf.data.feeds(made, plan, position=late)
        for bad in (3, {}, {"batches": -1}, {"batches": "2"}):
            with pytest.raises(gf.ArgumentError, match="is none that feeds had"):
                gf.data.feeds([], plan, position=bad)


def threads():
    return [t for t in threading.enumerate() if t.name == "graphfw-feeds"]


class TestTheThread:
    def test_batches_are_made_while_a_run_goes_on(self, plan, rng):
        made = []

        def slowly():
            for batch in gf.data.batches(columns(rng), 2):
                made.append(batch)
                yield batch

        found = gf.data.feeds(slowly(), plan, ahead=2)
        next(found)
        until = time.monotonic() + 10
        while len(made) < 4 and time.monotonic() < until:
            time.sleep(0.001)
        # One is taken, two are ready, and one waits for room.
        assert len(made) == 4
        found.close()

    def test_it_ends(self, plan, rng):
        data = gf.data.batches(columns(rng), 2, epochs=None)
        with gf.data.feeds(data, plan) as found:
            next(found)
            assert threads()
        assert not threads()
        assert list(found) == []
        found = gf.data.feeds(data, plan)
        next(found)
        del found
        until = time.monotonic() + 10
        while threads() and time.monotonic() < until:
            time.sleep(0.001)
        assert not threads()

    def test_without_one(self, plan, rng):
        found = gf.data.feeds(gf.data.batches(columns(rng), 2), plan, ahead=0)
        next(found)
        assert not threads()
        assert len(list(found)) == 4

    def test_it_says_how_long_runs_waited(self, plan, rng):
        def slowly():
            for batch in gf.data.batches(columns(rng), 2):
                time.sleep(0.02)
                yield batch

        found = gf.data.feeds(slowly(), plan)
        assert found.waiting == 0
        list(found)
        assert found.waiting > 0.5
        assert repr(found).startswith("<Feeds: 5 batches taken, ")
        with pytest.raises(TypeError, match="no end, or does not say"):
            len(found)
