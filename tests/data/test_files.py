"""Examples in parquet files, tar shards and folders of images, and damaged ones of these."""

import io
import json
import tarfile

import numpy as np
import pytest

import graphfw as gf


@pytest.fixture
def tables(tmp_path, rng):
    """Two parquet files with groups of 4 rows, and their columns together."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"x": rng.standard_normal(17).astype(np.float32), "y": np.arange(17)}
    paths = []
    for number, rows in enumerate([slice(0, 10), slice(10, 17)]):
        paths.append(tmp_path / f"{number}.parquet")
        table = arrow.table({name: column[rows] for name, column in columns.items()})
        parquet.write_table(table, paths[-1], row_group_size=4)
    return paths, columns


class TestParquet:
    def test_rows_in_order(self, tables):
        paths, columns = tables
        made = gf.data.parquet(paths, 3)
        # Groups of 4, 4, 2; 4, 3 rows.
        assert [len(batch["y"]) for batch in made] == [3, 1, 3, 1, 2, 3, 1, 3]
        for name, column in columns.items():
            found = np.concatenate([batch[name] for batch in made])
            np.testing.assert_array_equal(found, column)
            assert found.dtype == column.dtype

    def test_each_row_once_an_epoch(self, tables):
        paths, columns = tables
        made = gf.data.parquet(paths, 3, seed=5, epochs=2, columns=["y"])
        assert len(made) == 16
        first, second = [np.concatenate([b["y"] for b in made[e : e + 8]]) for e in (0, 8)]
        assert sorted(first) == sorted(second) == [*range(17)]
        assert first.tolist() != second.tolist()
        assert first.tolist() != [*range(17)]
        np.testing.assert_array_equal(gf.data.parquet(paths, 3, seed=5)[7]["y"], made[7]["y"])

    def test_lists_of_one_length_are_rows(self, tmp_path):
        arrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        rows = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
        fixed = arrow.array(rows, arrow.list_(arrow.float32(), 2))
        parquet.write_table(arrow.table({"a": rows, "b": fixed}), tmp_path / "a.parquet")
        (batch,) = gf.data.parquet(tmp_path / "a.parquet", 3)
        assert batch["a"].tolist() == batch["b"].tolist() == rows

    @pytest.mark.parametrize(
        ("column", "why"),
        [
            (["a", "b"], "is string, which is no number"),
            ([1.0, None], "has 1 missing values"),
            ([[1, 2], [3]], "have different lengths"),
        ],
    )
    def test_what_no_array_holds(self, tmp_path, column, why):
        arrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.table({"a": column, "b": [1, 2]}), tmp_path / "a.parquet")
        with pytest.raises(gf.DataError, match=why):
            gf.data.parquet(tmp_path / "a.parquet", 2)[0]
        made = gf.data.parquet(tmp_path / "a.parquet", 2, columns=["b"])
        assert made[0]["b"].tolist() == [1, 2]

    def test_what_is_refused(self, tables, tmp_path):
        paths, _ = tables
        with pytest.raises(gf.ArgumentError, match="has no column 'z'"):
            gf.data.parquet(paths, 3, columns=["z"])
        with pytest.raises(gf.ArgumentError, match="there are no files"):
            gf.data.parquet([], 3)
        with pytest.raises(gf.ArgumentError, match="size=0"):
            gf.data.parquet(paths, 0)
        (tmp_path / "cut.parquet").write_bytes(paths[0].read_bytes()[:-9])
        for path in (tmp_path / "cut.parquet", tmp_path / "none.parquet"):
            with pytest.raises(gf.DataError, match="can't be read"):
                gf.data.parquet(path, 3)


def packed(path, members, mode="w"):
    with tarfile.open(path, mode) as file:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return path


class TestTar:
    def test_members_of_a_name_are_an_example(self, tmp_path):
        one = packed(tmp_path / "a.tar", {"dog.jpg": b"1", "dog.json": b"{}", "b/cat.jpg": b"23"})
        two = packed(tmp_path / "b.tar", {"x.y.z": b""})
        found = gf.data.tar([one, two])
        assert list(found) == [
            {"key": "dog", "jpg": b"1", "json": b"{}"},
            {"key": "b/cat", "jpg": b"23"},
            {"key": "x", "y.z": b""},
        ]
        assert found[-1]["key"] == "x"
        with pytest.raises(IndexError, match="there are 3 examples"):
            found[3]

    def test_damage(self, tmp_path):
        path = packed(tmp_path / "a.tar", {"dog.jpg": bytes(2000)})
        found = gf.data.tar(path)
        path.write_bytes(path.read_bytes()[:1000])
        with pytest.raises(gf.DataError, match=r"ends within dog\.jpg"):
            found[0]
        packed(tmp_path / "a.tar.gz", {"dog.jpg": b"1"}, "w:gz")
        (tmp_path / "text.tar").write_text("no archive")
        packed(tmp_path / "empty.tar", {})
        for name, why in (
            ("a.tar.gz", "can't be read"), ("text.tar", "can't be read"),
            ("absent.tar", "can't be read"), ("empty.tar", "no members"),
        ):  # fmt: skip
            with pytest.raises(gf.DataError, match=why):
                gf.data.tar(tmp_path / name)


class TestImages:
    @pytest.fixture
    def folder(self, tmp_path):
        pillow = pytest.importorskip("PIL.Image")
        for label, name in enumerate(["cats", "dogs"]):
            (tmp_path / name).mkdir()
            for number in range(2 + label):
                pixels = np.full((4, 6, 3), 10 * number + label, np.uint8)
                pillow.fromarray(pixels).save(tmp_path / name / f"{number}.png")
        (tmp_path / "notes").mkdir()
        (tmp_path / "notes" / "a.txt").write_text("no image")
        return tmp_path

    def test_a_folder_for_each_class(self, folder):
        found = gf.data.images(folder)
        assert found.classes == ["cats", "dogs"]
        assert [int(one["label"]) for one in found] == [0, 0, 1, 1, 1]
        image = found[4]["image"]
        assert (image.shape, image.dtype) == ((3, 4, 6), np.uint8)
        assert (image == 21).all()
        assert gf.data.images(folder, size=(2, 3))[0]["image"].shape == (3, 2, 3)

    def test_bytes_and_grey_images(self):
        pillow = pytest.importorskip("PIL.Image")
        content = io.BytesIO()
        pillow.fromarray(np.arange(6, dtype=np.uint8).reshape(2, 3)).save(content, "PNG")
        found = gf.data.decode_image(content.getvalue())
        assert found.tolist() == [[[0, 1, 2], [3, 4, 5]]] * 3
        assert found.flags.c_contiguous

    def test_what_is_no_image(self, folder):
        (folder / "cats" / "0.png").write_bytes(b"no image")
        with pytest.raises(gf.DataError, match=r"0\.png' can't be read as an image"):
            gf.data.images(folder)[0]
        with pytest.raises(gf.DataError, match="6 bytes can't be read"):
            gf.data.decode_image(b"\x89PNG\r\n")
        with pytest.raises(gf.DataError, match="has no folders with images"):
            gf.data.images(folder / "notes")
        with pytest.raises(gf.ArgumentError, match="size=0"):
            gf.data.decode_image(b"", size=(0, 4))


class TestPadding:
    def test_to_the_longest(self):
        examples = [{"x": np.ones((n, 2), np.float32), "y": n} for n in (3, 1, 0)]
        found = gf.data.padded(examples, value=-1, lengths="length")
        assert found["x"].dtype == np.float32
        assert found["x"][:, :, 0].tolist() == [[1, 1, 1], [1, -1, -1], [-1, -1, -1]]
        assert found["y"].tolist() == found["length"].tolist() == [3, 1, 0]
        assert gf.data.padded(examples, multiple_of=4)["x"].shape == (3, 4, 2)

    def test_what_is_refused(self):
        for examples, options, error, why in (
            ([], {}, gf.ArgumentError, "are none"),
            ([[1, 2]], {}, gf.ArgumentError, "are a list"),
            ([{"x": [1]}, {"y": [1]}], {}, gf.DataError, "example 0 has x, and example 1 has y"),
            (
                [{"x": [[1]]}, {"x": [[1, 2]]}],
                {},
                gf.DataError,
                r"is \[1, 1\] and another \[1, 2\]",
            ),
            ([{"x": [1]}], {"lengths": "x"}, gf.ArgumentError, "have that name"),
            ([{"x": 1}], {"lengths": "n"}, gf.ArgumentError, "there are no dims"),
            ([{"x": [1]}], {"multiple_of": 0}, gf.ArgumentError, "multiple_of=0"),
        ):
            with pytest.raises(error, match=why):
                gf.data.padded(examples, **options)


def test_a_run_does_not_go_on_with_other_files(tables, tmp_path):
    paths, _ = tables
    shard = packed(tmp_path / "a.tar", {"a.x": b"1", "b.x": b"2"})
    before = [gf.data.parquet(paths, 3), gf.data.tar(shard)]
    assert gf.data.parquet(paths, 3).signature == before[0].signature
    packed(shard, {"a.x": b"1", "c.x": b"2"})
    after = [gf.data.parquet(paths[::-1], 3), gf.data.tar(shard)]
    for one, other in zip(before, after, strict=True):
        assert len(one) == len(other)
        assert one.signature != other.signature


def test_shards_of_images_are_shuffled_decoded_and_fed(tmp_path, rng):
    """As a user would: tar, grain, images, batches, a graph."""
    grain = pytest.importorskip("grain")
    pillow = pytest.importorskip("PIL.Image")
    members = {}
    for number in range(6):
        content = io.BytesIO()
        pillow.fromarray(np.full((4, 4, 3), number, np.uint8)).save(content, "PNG")
        members |= {
            f"{number}.png": content.getvalue(),
            f"{number}.json": b'{"label": %d}' % number,
        }
    shards = gf.data.tar(packed(tmp_path / "a.tar", members))

    def decoded(example):
        image = gf.data.decode_image(example["png"])
        return {"image": image, "label": json.loads(example["json"])["label"]}

    dataset = grain.MapDataset.source(shards).shuffle(seed=0).map(decoded).batch(2)
    with gf.Graph() as g:
        image = gf.placeholder(("batch", 3, "h", "w"), "uint8", name="image")
        label = gf.placeholder(("batch",), "int64", name="label")
        off = gf.max(gf.abs(gf.mean(gf.astype(image, gf.float32), axis=(1, 2, 3)) - label))
    with gf.Session(g) as session:
        plan = session.compile(off, feeds=[image, label])
        found = [float(plan(*feed.values())) for feed in gf.data.feeds(dataset, plan)]
    assert found == [0.0] * 3
