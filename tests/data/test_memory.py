"""Memory while parquet files are read that have many times what a row group has."""

import json
import subprocess
import sys

import numpy as np
import pytest

import graphfw as gf

GROUPS, ROWS, WIDTH = 60, 20_000, 50
MIB = 1 << 20
GROUP_MIB = ROWS * WIDTH * 4 / MIB

READING = """
import json, resource, sys
import graphfw as gf

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10  # from KiB

data = gf.data.parquet(sys.argv[1], 1000, seed=0, epochs=2)
with gf.Graph() as g:
    columns = [gf.placeholder(("batch",), name=f"x{i}") for i in range(50)]
    total = gf.sum(gf.stack(columns))
with gf.Session(g) as session:
    plan = session.compile(total, feeds=columns)
    with gf.data.feeds(data, plan) as feeds:
        for _ in range(60):
            plan(*next(feeds).values())
        begun, rows = peak(), 60
        for feed in feeds:
            plan(*feed.values())
            rows += 1
print(json.dumps([rows, begun, peak()]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peaks are in KiB on Linux")
def test_parquet_files_larger_than_what_is_held(tmp_path, rng):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    names = [f"x{i}" for i in range(WIDTH)]
    schema = arrow.schema([(name, arrow.float32()) for name in names])
    with parquet.ParquetWriter(path, schema, compression=None, use_dictionary=False) as writer:
        for _ in range(GROUPS):
            columns = rng.standard_normal((WIDTH, ROWS), np.float32)
            writer.write_table(arrow.table(dict(zip(names, columns, strict=True)), schema=schema))
    assert path.stat().st_size > GROUPS * GROUP_MIB * MIB
    command = [sys.executable, "-c", READING, str(path)]
    root = gf.__file__.rpartition("graphfw")[0]
    ran = subprocess.run(
        command, capture_output=True, text=True, cwd=root, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr
    batches, begun, peak = json.loads(ran.stdout)
    assert batches == 2 * GROUPS * ROWS // 1000
    # After three groups nothing more is needed, but what allocators keep.
    assert peak - begun < 8 * GROUP_MIB, (begun, peak)
