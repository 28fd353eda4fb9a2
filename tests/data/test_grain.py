"""Datasets of grain as the data of `gf.data.feeds`: order, filters, workers, and going on."""

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import graphfw as gf

grain = pytest.importorskip("grain")


@pytest.fixture
def plan():
    with gf.Graph() as g:
        x = gf.placeholder(("batch",), name="x")
        total = gf.sum(x)
    with gf.Session(g) as session:
        yield session.compile(total, feeds=[x])


def examples():
    source = grain.MapDataset.source(range(40)).shuffle(seed=1)
    return source.map(lambda number: {"x": np.float32(number)}).repeat(2)


DATASETS = {
    "map": lambda: examples().batch(4),
    "filtered batches": lambda: examples().batch(4).filter(lambda batch: batch["x"].sum() > 70),
    "filtered rows": lambda: (
        examples().filter(lambda row: row["x"] % 3 > 0).to_iter_dataset().batch(4)
    ),
    "iter": lambda: examples().to_iter_dataset().batch(4),
}


def batches_of(feeds):
    return [array.tolist() for feed in feeds for array in feed.values()]


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize("kind", DATASETS)
@pytest.mark.parametrize("taken", [0, 1, 7, "all"])
def test_a_run_goes_on_where_another_ended(plan, kind, taken):
    whole = batches_of(gf.data.feeds(DATASETS[kind](), plan, ahead=0))
    assert len(whole) > 7
    assert whole == batches_of(iter_of(DATASETS[kind]()))
    first = gf.data.feeds(DATASETS[kind](), plan)
    taken = len(whole) if taken == "all" else taken
    before = batches_of([next(first) for _ in range(taken)])
    position = json.loads(json.dumps(first.position))
    first.close()
    after = batches_of(gf.data.feeds(DATASETS[kind](), plan, position=position))
    assert before + after == whole


def iter_of(dataset):
    """Return the batches as grain itself gives them."""
    if isinstance(dataset, grain.MapDataset):
        dataset = dataset.to_iter_dataset()
    return list(dataset)


def test_the_number_of_batches_is_known(plan):
    assert len(gf.data.feeds(DATASETS["map"](), plan)) == 20
    endless = gf.data.feeds(examples().repeat().batch(4), plan)
    with pytest.raises(TypeError, match="no end"):
        len(endless)
    endless.close()


def test_other_data_is_refused(plan):
    position = gf.data.feeds(DATASETS["map"](), plan).position
    with pytest.raises(gf.ArgumentError, match="batches is 10 and was 20"):
        gf.data.feeds(examples().batch(8), plan, position=position)


def test_an_example_that_fails_says_why(plan):
    def broken(number):
        if number == 17:
            raise ValueError("example 17 is broken")
        return {"x": np.float32(number)}

    found = gf.data.feeds(grain.MapDataset.source(range(40)).map(broken).batch(4), plan)
    with pytest.raises(ValueError, match="example 17 is broken") as caught:
        list(found)
    assert "raised while batch 4 of the data was made" in caught.value.__notes__


@pytest.mark.slow
def test_workers_change_neither_batches_nor_positions(tmp_path):
    script = """
        import json, sys
        import grain, numpy as np
        import graphfw as gf

        def row(number):
            return {"x": np.float32(number)}

        def main():
            with gf.Graph() as g:
                x = gf.placeholder(("batch",), name="x")
                y = gf.sum(x)
            with gf.Session(g) as session:
                plan = session.compile(y, feeds=[x])
                data = grain.MapDataset.source(range(40)).shuffle(seed=1).map(row).batch(4)
                position, found = None, []
                for workers, count in ((2, 3), (0, 2), (3, 5)):
                    with gf.data.feeds(data, plan, workers=workers, position=position) as feeds:
                        found += [next(feeds)[x].tolist() for _ in range(count)]
                        position = feeds.position
                print(json.dumps([found, [b["x"].tolist() for b in data]]))

        if __name__ == "__main__":
            main()
    """
    program = tmp_path / "program.py"  # which workers import
    program.write_text(textwrap.dedent(script))
    ran = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr
    found, whole = json.loads(ran.stdout.splitlines()[-1])
    assert found == whole
