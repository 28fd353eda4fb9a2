"""Batches of examples that a dataset gives by number: of one's own, PyTorch's, Hugging Face's."""

import numpy as np
import pytest

import graphfw as gf


class Examples:
    """A dataset of 10 examples, of which some are of another kind."""

    def __init__(self, make, **others):
        self.make = make
        self.others = {int(name[1:]): value for name, value in others.items()}

    def __len__(self):
        return 10

    def __getitem__(self, number):
        found = self.others.get(number, self.make(number))
        if isinstance(found, Exception):
            raise found
        return found


FORMS = {
    "dicts": lambda n: {"x": np.full((2, 3), n, np.float32), "y": n},
    "tuples": lambda n: (np.full((2, 3), n, np.float32), n),
    "lists": lambda n: [np.full((2, 3), n, np.float32), n],
    "array": lambda n: np.full((2, 3), n, np.float32),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", [None, 3])
def test_batches_have_the_form_of_examples(form, seed):
    made = gf.data.batches(Examples(FORMS[form]), 4, seed=seed, epochs=2)
    columns = {"x": np.arange(10)}
    order = gf.data.batches(columns, 4, seed=seed, epochs=2)
    assert len(made) == len(order) == 6
    for batch, rows in zip(made, order, strict=True):
        if form == "dicts":
            assert list(batch) == ["x", "y"]
            batch = tuple(batch.values())
        x, y = (batch, rows["x"]) if form == "array" else batch
        assert (x.shape, x.dtype) == ((len(rows["x"]), 2, 3), np.float32)
        np.testing.assert_array_equal(x[:, 0, 0], rows["x"])
        np.testing.assert_array_equal(y, rows["x"])
        assert y.dtype == np.int64


def test_a_list_of_dicts():
    examples = [{"x": n, "name": f"n{n}"} for n in range(3)]
    made = gf.data.batches(examples, 2)
    assert [batch["name"].tolist() for batch in made] == [["n0", "n1"], ["n2"]]


def test_pytorchs_datasets(rng):
    torch = pytest.importorskip("torch")
    x = rng.standard_normal((10, 4)).astype(np.float32)
    dataset = torch.utils.data.TensorDataset(torch.tensor(x), torch.arange(10))
    half = torch.utils.data.Subset(dataset, range(1, 10, 2))  # has __getitems__
    loader = torch.utils.data.DataLoader(half, batch_size=2)
    for ours, theirs in zip(gf.data.batches(half, 2), loader, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(one, other.numpy())


class HuggingFace:
    """Stands for `datasets.Dataset`."""

    def __init__(self, columns):
        self._columns = columns
        self.column_names = [*columns]
        self.features = dict.fromkeys(columns, "Value('int64')")
        self.reads = 0

    def __len__(self):
        return len(self._columns["label"])

    def __getitem__(self, key):
        self.reads += 1
        if isinstance(key, int):
            return {name: column[key] for name, column in self._columns.items()}
        return {name: [column[i] for i in key] for name, column in self._columns.items()}

    def __getitems__(self, keys):
        batch = self[keys]
        return [{name: batch[name][i] for name in batch} for i in range(len(keys))]


@pytest.mark.parametrize("kind", ["stand-in", "real"])
def test_hugging_faces_datasets(rng, kind):
    columns = {
        "tokens": [rng.integers(0, 99, n).tolist() for n in (3, 1, 4, 1, 5)],
        "label": [0, 1, 0, 1, 1],
    }
    if kind == "real":
        dataset = pytest.importorskip("datasets").Dataset.from_dict(columns)
    else:
        dataset = HuggingFace(columns)
    made = gf.data.batches(dataset, 2, seed=1, collate_fn=gf.data.padded)
    rows = [[row for row in batch["tokens"].tolist()] for batch in made]
    labels = np.concatenate([batch["label"] for batch in made])
    found = sorted([[*filter(None, row)] for batch in rows for row in batch])
    assert found == sorted(columns["tokens"])
    assert labels.sum() == 3
    if kind == "stand-in":
        assert dataset.reads == 6  # a batch at a time
    with pytest.raises(
        gf.DataError, match=r"'tokens' is \[3\] in example 0 and \[1\] in example 1"
    ):
        gf.data.batches(dataset, 2)[0]


def test_grains_datasets():
    grain = pytest.importorskip("grain")
    dataset = grain.MapDataset.range(10).map(lambda n: {"x": n * 2})
    found = gf.data.batches(dataset, 4, seed=0)
    assert sorted(np.concatenate([batch["x"] for batch in found])) == list(range(0, 20, 2))


def test_batches_of_images_go_on(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    for label in range(2):
        (tmp_path / f"class{label}").mkdir()
        for number in range(3):
            pixels = np.full((4, 6, 3), 10 * number + label, np.uint8)
            pillow.fromarray(pixels).save(tmp_path / f"class{label}" / f"{number}.png")
    with gf.Graph() as g:
        image = gf.placeholder(("batch", 3, 4, 6), "uint8", name="image")
        label = gf.placeholder(("batch",), "int64", name="label")
        off = gf.max(gf.abs(image[:, 0, 0, 0] % 10 - gf.astype(label, gf.uint8)))
    with gf.Session(g) as session:
        plan = session.compile(off, feeds=[image, label])
        data = gf.data.batches(gf.data.images(tmp_path), 2, seed=0)
        whole = [feed[image].tolist() for feed in gf.data.feeds(data, plan)]
        first = gf.data.feeds(data, plan)
        assert int(plan(*next(first).values())) == 0
        position = first.position
        data = gf.data.batches(gf.data.images(tmp_path), 2, seed=0)
        rest = gf.data.feeds(data, plan, position=position)
        assert [feed[image].tolist() for feed in rest] == whole[1:]
        (tmp_path / "class1" / "2.png").rename(tmp_path / "class1" / "9.png")
        data = gf.data.batches(gf.data.images(tmp_path), 2, seed=0)
        with pytest.raises(gf.ArgumentError, match="of other data: its contents have changed"):
            gf.data.feeds(data, plan, position=position)


@pytest.mark.parametrize(
    ("make", "other", "why"),
    [
        ("dicts", {"x": 1}, "example 0 has x, y, and example 3 has x"),
        ("dicts", None, "example 0 has x, y, and example 3 a NoneType"),
        ("dicts", {"x": np.ones((2, 3)), "y": [1, 2]}, r"'y' is \[\] in example 0 and \[2\] in"),
        ("dicts", {"x": [[1], [1, 2]], "y": 1}, "'x' of example 3 is no array"),
        ("dicts", {"x": np.ones((2, 3)), "y": None}, "'y' of example 3 is a NoneType, which is no"),
        ("tuples", (1,), "example 0 has 2 arrays, and example 3 is a tuple of 1"),
        ("tuples", 5, "example 0 has 2 arrays, and example 3 is an int"),
        ("array", np.ones(2), r"the data is \[2, 3\] in example 0 and \[2\] in example 3"),
    ],
)
def test_examples_that_make_no_batch(make, other, why):
    made = gf.data.batches(Examples(FORMS[make], _3=other), 4)
    with pytest.raises(gf.DataError, match=why):
        made[0]
    assert len(made[1]) == (4 if make == "array" else 2)


@pytest.mark.parametrize("kind", [IndexError, KeyError, StopIteration, OSError])
def test_an_example_that_fails_is_not_the_end(kind):
    made = gf.data.batches(Examples(FORMS["dicts"], _6=kind("broken")), 4)
    expected = RuntimeError if kind is StopIteration else kind  # as in any generator
    with pytest.raises(expected) as caught:
        list(made)
    notes = (caught.value.__cause__ or caught.value).__notes__
    assert notes == ["raised while example 6 of the data was read"]


def test_a_function_that_fails_says_of_which_examples():
    def broken(examples):
        raise ValueError("no batch")

    made = gf.data.batches(Examples(FORMS["dicts"]), 3, collate_fn=broken)
    with pytest.raises(ValueError, match="no batch") as caught:
        made[1]
    assert caught.value.__notes__ == ["raised while examples 3, 4, 5 of the data were batched"]


def test_what_is_refused():
    with pytest.raises(gf.ArgumentError, match="collate_fn is an int"):
        gf.data.batches(Examples(FORMS["dicts"]), 3, collate_fn=3)
    with pytest.raises(gf.ArgumentError, match="is for examples, and the data is arrays"):
        gf.data.batches(np.ones(3), 3, collate_fn=gf.data.padded)
    with pytest.raises(gf.ArgumentError, match="which are no numbers"):
        gf.data.batches("x.npy", 3)
    grain = pytest.importorskip("grain")
    endless = grain.MapDataset.range(10).repeat()
    with pytest.raises(gf.ArgumentError, match="has no end"):
        gf.data.batches(endless, 3, seed=0)
    assert gf.data.batches(endless, 3)[5].tolist() == [5, 6, 7]
