"""Bad examples and damaged files: what came before is fed, and an error says what is broken."""

import json
import subprocess
import sys

import pytest

from tests.data import bad_inputs

BEFORE = [18.0, 66.0, 114.0]
"""The sums of the batches before that of the bad example."""

OUTCOMES = {
    "a value": (BEFORE, "ValueError", "this is broken", "example 13 of the data was read"),
    "the wrong index": (BEFORE, "IndexError", "out of range", "example 13 of the data was read"),
    "an end too early": (BEFORE, "RuntimeError", "the data raised StopIteration"),
    "its own error": (BEFORE, "", "OwnError", "data.bin:3", "example 13 of the data was read"),
    "graphfw's error": (BEFORE, "DataError", "data.bin is broken", "example 13 of the data"),
    "another name": (BEFORE, "DataError", "example 12 has x, and example 13 has z"),
    "another shape": (BEFORE, "DataError", "'x' is [3] in example 12 and [2] in example 13"),
    "another dtype": (BEFORE, "FeedError", "batch 3 of the data", "is fed complex64"),
    "no example": (BEFORE, "DataError", "example 12 has x, and example 13 a NoneType"),
    "a kill": (None, "DataError", "with exit code -9", "use fewer workers"),
    "a lock": ([], "DataError", "can't be sent between processes", "use workers=0"),
    "13.png": ([108.0, 396.0, 684.0], "DataError", "13.png' can't be read as an image"),
    "a.parquet": ([6000.0, 22000.0, 38000.0], "DataError", "a.parquet' can't be read", "CRC"),
    "a.tar": ([6.0, 22.0, 38.0], "DataError", "a.tar' ends within 13.x", "example 13"),
}

WHOLE = [18.0, 66.0, 114.0, 162.0, 210.0, 258.0]


def check(found):
    for kind, (taken, error, text) in found.items():
        before, name, *sentences = OUTCOMES[kind]
        assert taken == (WHOLE[: len(taken)] if before is None else before), kind
        assert not name or error == name, (kind, text)
        for sentence in sentences:
            assert sentence in text, (kind, sentence, text)


@pytest.mark.parametrize("kind", bad_inputs.IN_THREADS)
@pytest.mark.parametrize("ahead", [0, 2])
def test_a_bad_example(kind, ahead):
    data = bad_inputs.Examples(kind)
    batches = bad_inputs.gf.data.batches(data, bad_inputs.SIZE)
    check({kind: bad_inputs.outcome(batches, 0, ahead=ahead)})


@pytest.mark.parametrize("name", ["13.png", "a.parquet", "a.tar"])
def test_a_damaged_file(tmp_path, name):
    pytest.importorskip("pyarrow")
    pytest.importorskip("PIL.Image")
    dataset = bad_inputs.files(tmp_path)[name]
    check({name: bad_inputs.outcome(dataset, 0, bad_inputs.FORMS.get(name, "x"))})


@pytest.mark.parametrize("kind", ["a value", "the wrong index", "an end too early"])
def test_a_bad_example_of_grain(kind):
    grain = pytest.importorskip("grain")
    dataset = grain.MapDataset.source(bad_inputs.Examples(kind)).batch(bad_inputs.SIZE)
    taken, error, text = bad_inputs.outcome(dataset, 0)
    assert taken == BEFORE
    assert error == OUTCOMES[kind][1]
    assert "raised while batch 3 of the data was made" in text


@pytest.mark.slow
def test_in_processes(tmp_path):
    """With no end of waiting: nothing that a process does keeps the others waiting."""
    for module in ("grain", "pyarrow", "PIL.Image"):
        pytest.importorskip(module)
    command = [sys.executable, bad_inputs.__file__, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found.keys() == {*bad_inputs.IN_PROCESSES, "a lock", "13.png", "a.parquet", "a.tar"}
    check(found)
