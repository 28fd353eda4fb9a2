"""Examples in files, read when they are needed: parquet tables, tar shards, folders of images."""

from __future__ import annotations

import io
import os
import struct
import tarfile
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from graphfw.data.indexed import Indexed, fingerprint, integer, permutation
from graphfw.errors import ArgumentError, DataError, did_you_mean, first_line
from graphfw.hints.calls import explained
from graphfw.utils.packages import package

Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"

_IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")


@explained
def parquet(
    paths: Paths,
    size: int,
    *,
    columns: Sequence[str] | None = None,
    seed: int | None = None,
    epochs: int = 1,
) -> ParquetBatches:
    """Return batches of the rows of parquet files, which may be larger than memory.

    Rows are read by row groups, one at a time, and no batch has rows of two groups. With a seed the
    groups come in another order in each epoch, and the rows in another order within a group. The
    checksums of pages are checked in files that have them.

    Args:
        paths: A file, or several with the same columns.
        size: The number of rows of a batch; the last batch of a group may have fewer.
        columns: The columns to read; all by default. Each is numbers, without missing values.
        seed: The seed of the order; None leaves the rows in their order.
        epochs: The number of passes over all rows.

    Raises:
        ImportError: The package pyarrow is missing.
        DataError: A file can't be read.
        ArgumentError: There is no such column, or a number is none that makes sense.
    """
    return ParquetBatches(paths, size, columns, seed, epochs)


class ParquetBatches(Indexed[dict[str, Any]]):
    """The batches of parquet files; see `parquet`.

    Attributes:
        signature: The values that the order of the rows depends on, for a run that resumes.
    """

    _items = "batches"

    def __init__(
        self,
        paths: Paths,
        size: int,
        columns: Sequence[str] | None,
        seed: int | None,
        epochs: int,
    ) -> None:
        self._parquet = package("pyarrow.parquet", "gf.data.parquet", "pyarrow")
        self._paths = _listed(paths)
        self._size = integer("parquet", "size", size, 1)
        self._epochs = integer("parquet", "epochs", epochs, 1)
        self._seed = None if seed is None else integer("parquet", "seed", seed, 0)
        self._groups: list[tuple[str, int, int]] = []
        for path in self._paths:
            self._groups += self._groups_of(path, columns)
        rows = sum([rows for *_, rows in self._groups])
        if not rows:
            raise DataError("parquet: the files have no rows", fix="look at the files")
        self._columns = None if columns is None else list(columns)
        self._in_epoch = sum([-(-rows // self._size) for *_, rows in self._groups])
        self._read: tuple[tuple[int, int], dict[str, Any]] | None = None
        self._order: tuple[int, list[int], list[int]] | None = None
        groups = [rows for *_, rows in self._groups]
        self.signature = {
            "rows": rows,
            "size": self._size,
            "seed": self._seed,
            "contents": fingerprint(groups, [os.path.getsize(path) for path in self._paths]),
        }

    def _groups_of(self, path: str, columns: Sequence[str] | None) -> list[tuple[str, int, int]]:
        """Return a file's row groups: the path, the number, and the rows."""
        metadata = self._opened(path, self._parquet.read_metadata)
        names = metadata.schema.to_arrow_schema().names
        for column in columns or ():
            if column not in names:
                raise ArgumentError(
                    f"parquet: {path!r} has no column {column!r}",
                    fix=did_you_mean(column, names) or f"its columns are {', '.join(names)}",
                )
        groups = range(metadata.num_row_groups)
        return [(path, number, metadata.row_group(number).num_rows) for number in groups]

    def _opened(self, path: str, read: Any, *args: Any, **options: Any) -> Any:
        try:
            return read(path, *args, **options)
        except Exception as error:  # pyarrow's own, or the system's
            raise DataError(
                f"parquet: {path!r} can't be read: {first_line(error)}",
                fix="use another copy of the file",
            ) from error

    def __len__(self) -> int:
        return self._in_epoch * self._epochs

    def _made(self, number: int) -> dict[str, Any]:
        epoch, index_in_epoch = divmod(number, self._in_epoch)
        order, ends = self._order_of(epoch)
        turn = bisect_right(ends, index_in_epoch)
        first = (index_in_epoch - (ends[turn - 1] if turn else 0)) * self._size
        group = order[turn]
        rows = slice(first, first + self._size)
        return {name: column[rows] for name, column in self._columns_of(epoch, group).items()}

    def _order_of(self, epoch: int) -> tuple[list[int], list[int]]:
        """Return an epoch's groups in order, and the number of batches up to the end of each."""
        known = self._order
        if known is None or known[0] != epoch:
            order = [*range(len(self._groups))]
            if self._seed is not None:
                order = permutation(self._seed, (epoch,), len(order)).tolist()
            counts = [-(-self._groups[group][2] // self._size) for group in order]
            known = self._order = epoch, order, [*accumulate(counts)]
        return known[1:]

    def _columns_of(self, epoch: int, group: int) -> dict[str, Any]:
        """Return the columns of a group, in the order of an epoch."""
        known = self._read
        if known is None or known[0] != (epoch, group):
            path, number, rows = self._groups[group]
            table = self._opened(path, self._table, number)
            found = {name: _numbers(path, name, table[name]) for name in table.column_names}
            if self._seed is not None:
                order = permutation(self._seed, (epoch, group), rows)
                found = {name: column[order] for name, column in found.items()}
            known = self._read = (epoch, group), found
        return known[1]

    def _table(self, path: str, number: int) -> Any:
        with self._parquet.ParquetFile(path, page_checksum_verification=True) as file:
            return file.read_row_group(number, columns=self._columns)


def _numbers(path: str, name: str, column: Any) -> Any:
    """Return a table's column as an array: lists of one length as rows."""
    if column.null_count:
        raise DataError(
            f"parquet: column {name!r} of {path!r} has {column.null_count} missing values",
            fix="fill them, or leave the column out: columns=[…]",
        )
    kind = str(column.type)
    combined = column.combine_chunks()
    if kind.startswith(("list", "large_list", "fixed_size_list")):
        lengths = {*(np.diff(combined.offsets.to_numpy()).tolist())} if "fixed" not in kind else ()
        if len(lengths) > 1:
            raise DataError(
                f"parquet: the lists of column {name!r} of {path!r} have different lengths",
                fix="pad them when the file is written, or leave the column out: columns=[…]",
            )
        return combined.flatten().to_numpy(zero_copy_only=False).reshape(len(combined), -1)
    array = combined.to_numpy(zero_copy_only=False)
    if array.dtype.kind not in "biufc":
        raise DataError(
            f"parquet: column {name!r} of {path!r} is {kind}, which is no number",
            fix="make it numbers when the file is written, or leave it out: columns=[…]",
        )
    return array


@explained
def tar(paths: Paths) -> TarExamples:
    """Return the examples of tar files, each with the bytes of its members by their suffixes.

    Members with one name but for the suffix are one example: `dog.jpg` and `dog.json` are
    `{"key": "dog", "jpg": b"…", "json": b"…"}`. Examples are read by number, so
    `grain.MapDataset.source` shuffles them all without reading them.

    Args:
        paths: A file, or several; not compressed.

    Raises:
        DataError: A file is none, is compressed or damaged, or has no members.
    """
    return TarExamples(_listed(paths))


class TarExamples(Indexed[dict[str, Any]]):
    """The examples of tar files; see `tar`.

    Attributes:
        signature: The values that the order of the examples depends on.
    """

    _items = "examples"

    def __init__(self, paths: Sequence[str]) -> None:
        self._examples: list[tuple[str, str, dict[str, tuple[int, int]]]] = []
        for path in paths:
            found: dict[str, dict[str, tuple[int, int]]] = {}
            try:
                with tarfile.open(path, "r:") as file:
                    for member in file:
                        if member.isfile():
                            folder, _, name = member.name.rpartition("/")
                            stem, _, suffix = name.partition(".")
                            key = f"{folder}/{stem}" if folder else stem
                            members = found.setdefault(key, {})
                            members[suffix] = member.offset_data, member.size
            except (OSError, tarfile.TarError, struct.error) as error:
                raise DataError(
                    f"tar: {path!r} can't be read: {first_line(error)}",
                    fix="use another copy of the file; compressed ones have to be unpacked",
                ) from error
            self._examples += [(path, key, members) for key, members in found.items()]
        if not self._examples:
            raise DataError("tar: the files have no members", fix="look at the files")
        contents = fingerprint([(key, members) for _, key, members in self._examples])
        self.signature = {"examples": len(self._examples), "contents": contents}

    def __len__(self) -> int:
        return len(self._examples)

    def _made(self, number: int) -> dict[str, Any]:
        path, key, members = self._examples[number]
        found: dict[str, Any] = {"key": key}
        with open(path, "rb") as file:
            for suffix, (offset, size) in members.items():
                file.seek(offset)
                found[suffix] = file.read(size)
                if len(found[suffix]) < size:
                    raise DataError(
                        f"tar: {path!r} ends within {key}.{suffix}",
                        fix="use another copy of the file",
                    )
        return found


@explained
def images(folder: str | os.PathLike[str], *, size: tuple[int, int] | None = None) -> ImageFolder:
    """Return the images of a folder that has a folder for each class.

    An example is `{"image": uint8 [3, H, W], "label": int}`. Labels number the classes in the order
    of their names. Images are read by number, so `grain.MapDataset.source` shuffles them all.

    Args:
        folder: The folder.
        size: The height and width to which images are resized; as they are by default.

    Raises:
        ImportError: The package pillow is missing.
        DataError: The folder has no folders with images.
    """
    return ImageFolder(Path(folder), size)


class ImageFolder(Indexed[dict[str, Any]]):
    """The images of a folder; see `images`.

    Attributes:
        classes: The names of the classes, in the order of the labels.
        paths: The files, in order.
        signature: The values that the order of the examples depends on.
    """

    _items = "images"

    def __init__(self, folder: Path, size: tuple[int, int] | None) -> None:
        package("PIL.Image", "gf.data.images", "pillow")
        self._size = size
        folders = sorted([path for path in folder.glob("*") if path.is_dir()])
        files = [
            [p for p in sorted(one.rglob("*")) if p.suffix.lower() in _IMAGES] for one in folders
        ]
        self.classes = [one.name for one, own in zip(folders, files, strict=True) if own]
        if not self.classes:
            raise DataError(
                f"images: {str(folder)!r} has no folders with images",
                fix="put the images of each class into a folder with its name",
            )
        owned = [own for own in files if own]
        self.paths = [path for own in owned for path in own]
        self._labels = [label for label, own in enumerate(owned) for _ in own]
        names = [path.relative_to(folder).as_posix() for path in self.paths]
        self.signature = {
            "images": len(self.paths),
            "classes": len(self.classes),
            "contents": fingerprint(names),
        }

    def __len__(self) -> int:
        return len(self.paths)

    def _made(self, number: int) -> dict[str, Any]:
        image = decode_image(self.paths[number], size=self._size)
        return {"image": image, "label": np.int64(self._labels[number])}


@explained
def decode_image(
    source: str | os.PathLike[str] | bytes, *, size: tuple[int, int] | None = None
) -> np.ndarray[Any, Any]:
    """Return an image as an array of red, green and blue.  -> uint8 [3, H, W]

    Args:
        source: A file's path, or its bytes.
        size: The height and width to resize it to.

    Raises:
        ImportError: The package pillow is missing.
        DataError: It is no image that can be read.
    """
    pillow = package("PIL.Image", "gf.data.decode_image", "pillow")
    if size is not None:
        height, width = [integer("decode_image", "size", side, 1) for side in size]
    shown = f"{len(source)} bytes" if isinstance(source, bytes) else repr(os.fspath(source))
    try:
        with pillow.open(io.BytesIO(source) if isinstance(source, bytes) else source) as opened:
            image = opened.convert("RGB")
        if size is not None:
            image = image.resize((width, height), pillow.Resampling.BILINEAR)
    except (OSError, ValueError, SyntaxError, struct.error) as error:
        raise DataError(
            f"{shown} can't be read as an image: {first_line(error)}",
            fix="use another copy of the file, or leave it out",
        ) from error
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


def _listed(paths: Paths) -> list[str]:
    several = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not several:
        raise ArgumentError("there are no files", fix="pass a path, or a list of paths")
    return [os.fspath(path) for path in several]
