"""Datasets with one bad example each, and a program that reads them: `python FILE FOLDER`.

Processes that make batches import it, so it needs to be a module of its own.
"""

import io
import json
import os
import signal
import sys
import tarfile
import threading
import traceback
from pathlib import Path

import numpy as np

import graphfw as gf

COUNT, SIZE, BAD = 24, 4, 13
"""The number of examples, of those of a batch, and of the bad one."""


class OwnError(Exception):
    """An exception that pickle can't make again."""

    def __init__(self, file, line):
        super().__init__(f"{file}:{line}")


def _raise(error):
    raise error


KINDS = {
    "a value": lambda: _raise(ValueError("this is broken")),
    "the wrong index": lambda: [][1],
    "an end too early": lambda: next(iter(())),
    "its own error": lambda: _raise(OwnError("data.bin", 3)),
    "graphfw's error": lambda: _raise(gf.DataError("data.bin is broken", fix="replace it")),
    "another name": lambda: {"z": np.zeros(3, np.float32)},
    "another shape": lambda: {"x": np.zeros(2, np.float32)},
    "another dtype": lambda: {"x": np.zeros(3, np.complex64)},
    "no example": lambda: None,
    "a kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
}

IN_THREADS = [kind for kind in KINDS if kind != "a kill"]
IN_PROCESSES = ["a value", "an end too early", "its own error", "another shape", "a kill"]

FORMS = {"13.png": "image", "a.parquet": "rows"}
"""The forms of the examples in files."""


class Examples:
    """Examples of which one is bad."""

    def __init__(self, kind):
        self.kind = kind

    def __len__(self):
        return COUNT

    def __getitem__(self, number):
        if number == BAD and self.kind:
            return KINDS[self.kind]()
        return {"x": np.full(3, number, np.float32)}


def files(folder):
    """Write a file of each kind with damage, and return what reads it, by the file's name."""
    import pyarrow as arrow
    import pyarrow.parquet
    from PIL import Image

    folder = Path(folder)
    (folder / "images" / "a").mkdir(parents=True)
    for number in range(COUNT):
        path = folder / "images" / "a" / f"{number:02}.png"
        Image.fromarray(np.full((2, 3, 3), number, np.uint8)).save(path)
    images = gf.data.images(folder / "images")
    path.with_name(f"{BAD:02}.png").write_bytes(path.read_bytes()[:50])

    rows = arrow.table({"x": np.arange(COUNT, dtype=np.float32).repeat(1000)})
    arrow.parquet.write_table(
        rows,
        folder / "a.parquet",
        row_group_size=SIZE * 1000,
        compression=None,
        use_dictionary=False,
        write_page_checksum=True,
    )
    table = gf.data.parquet(folder / "a.parquet", SIZE * 1000)
    content = bytearray((folder / "a.parquet").read_bytes())
    first = content.index(np.float32(BAD).tobytes() * 9)
    content[first : first + 8] = bytes(8)
    (folder / "a.parquet").write_bytes(content)

    with tarfile.open(folder / "a.tar", "w") as file:
        for number in range(COUNT):
            info = tarfile.TarInfo(f"{number:02}.x")
            info.size = 4
            file.addfile(info, io.BytesIO(np.float32(number).tobytes()))
    shards = gf.data.tar(folder / "a.tar")
    os.truncate(folder / "a.tar", shards._examples[BAD][2]["x"][0])
    return {
        "13.png": gf.data.batches(images, SIZE),
        "a.parquet": table,
        "a.tar": gf.data.batches(shards, SIZE, collate_fn=_decoded),
    }


def _decoded(examples):
    return {"x": np.stack([np.frombuffer(example["x"], np.float32) for example in examples])}


def outcome(dataset, workers, form="x", ahead=2):
    """Return the sums of batches that come, the error that ends them, and its text with notes.

    The form is one of `FORMS`, or "x" for examples of vectors.
    """
    with gf.Graph() as g:
        if form == "image":
            x = gf.placeholder(("batch", 3, 2, 3), "uint8", name="image")
        else:
            x = gf.placeholder(("batch", "n") if form == "x" else ("batch",), name="x")
        total = gf.sum(x)
    with gf.Session(g) as session:
        plan = session.compile(total, feeds=[x])
        taken = []
        try:
            with gf.data.feeds(dataset, plan, ahead=ahead, workers=workers) as feeds:
                taken.extend(float(plan(*feed.values())) for feed in feeds)
        except BaseException as error:
            return taken, type(error).__name__, "".join(traceback.format_exception(error))
        return taken, "", ""


def _unsendable(examples):
    return {"x": np.stack([example["x"] for example in examples]), "lock": threading.Lock()}


def main():
    """Write the outcome of each kind of bad example and file, read in processes, as JSON."""
    folder = sys.argv[1]
    found = {}
    for kind in IN_PROCESSES:
        found[kind] = outcome(gf.data.batches(Examples(kind), SIZE), workers=2)
    batches = gf.data.batches(Examples(""), SIZE, collate_fn=_unsendable)
    found["a lock"] = outcome(batches, workers=2)
    for name, dataset in files(folder).items():
        found[name] = outcome(dataset, 2, FORMS.get(name, "x"))
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
