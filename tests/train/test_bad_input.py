"""Trainings that go wrong: a full disk, another model's checkpoint, other data on going on."""

import contextlib
import sys
import threading
import warnings

import pytest

import graphfw as gf
from tests.support.trainings import Model, columns, data, weights

resource = pytest.importorskip("resource")


@contextlib.contextmanager
def full_disk(nbytes=2000):
    """Have the system refuse to write more than so many bytes to a file; yield what ends that."""
    before, writes = resource.getrlimit(resource.RLIMIT_FSIZE), sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # Python would leave half a file of a module it imports
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, before)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        sys.dont_write_bytecode = writes


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def first_lines(caught):
    return [str(one.message).splitlines()[0] for one in caught]


class TestFullDisks:
    def test_a_training_goes_on_and_its_next_checkpoint_has_all(self, tmp_path):
        checkpoints = gf.train.Checkpoints(tmp_path)
        with full_disk() as free, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            trainer = Model().trainer(
                checkpoints=checkpoints, callbacks=[lambda now: now.step == 24 and free()]
            )
            first = trainer.fit(data(epochs=3), every=12)
        # Compiled code can't be stored either, where none is yet.
        lines = [line for line in first_lines(caught) if "compiled code" not in line]
        assert [line.split(":")[0] for line in lines] == [
            "no checkpoint of step 12", "no checkpoint of step 24",
        ]  # fmt: skip
        assert "File too large" in lines[0]
        model = Model(seed=9)
        result = model.trainer(checkpoints=checkpoints).fit(data(epochs=4), every=12, resume=True)
        assert result.history[:3] == first.history
        whole = Model()
        whole.trainer().fit(data(epochs=4), every=12)
        assert weights(model.session) == weights(whole.session)
        assert {path.name for path in tmp_path.iterdir()} == {
            "best.safetensors", "run.json", "step-00000036.safetensors",
            "step-00000048.safetensors",
        }  # fmt: skip

    def test_the_last_checkpoint_is_an_error_and_the_earlier_ones_stay(self, tmp_path):
        checkpoints = gf.train.Checkpoints(tmp_path)
        Model().trainer(checkpoints=checkpoints).fit(data(epochs=1))
        before = contents(tmp_path)
        with full_disk(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with pytest.raises(gf.CheckpointError, match="File too large"):
                Model().trainer(checkpoints=checkpoints).fit(data(), resume=True)
        assert len(caught) == 1
        assert {name: contents(tmp_path)[name] for name in before if name != "run.json"} == {
            name: before[name] for name in before if name != "run.json"
        }

    @pytest.mark.parametrize("end", [{"patience": 1}, {"callbacks": [lambda training: True]}])
    def test_an_end_before_the_data_ends_is_no_excuse(self, tmp_path, end):
        trainer = Model(0.0).trainer(checkpoints=gf.train.Checkpoints(tmp_path), **end)
        with full_disk(), pytest.warns(UserWarning, match="no checkpoint of step"):
            with pytest.raises(gf.CheckpointError, match="File too large"):
                trainer.fit(data(), every=2)

    @pytest.mark.parametrize("logger", [gf.train.JsonLines, gf.train.Csv])
    def test_a_log_is_left_out_with_one_warning(self, tmp_path, logger):
        log = logger(tmp_path / "log")
        whole = Model().trainer(loggers=[log]).fit(data(), every=2)
        written = log.path.read_bytes()
        with full_disk(len(written) + 10), pytest.warns(UserWarning, match="a logger") as caught:
            result = Model().trainer(loggers=[log]).fit(data(), every=2)
        assert len(caught) == 1
        assert "a logger failed, and is left out from now on" in str(caught[0].message)
        assert [one["loss"] for one in result.history] == [one["loss"] for one in whole.history]
        assert log.path.read_bytes().startswith(written)


class TestGoingOn:
    """Refusals, which change neither the session nor the folder, and leave no thread."""

    @contextlib.contextmanager
    def unchanged(self, model, folder):
        before = weights(model.session), contents(folder), threading.active_count()
        yield
        assert (weights(model.session), contents(folder), threading.active_count()) == before

    @pytest.fixture
    def checkpoints(self, tmp_path):
        made = gf.train.Checkpoints(tmp_path)
        Model().trainer(checkpoints=made).fit(data(epochs=1))
        return made

    def test_a_checkpoint_of_another_model(self, checkpoints):
        model = Model(width=16)
        with (
            self.unchanged(model, checkpoints.folder),
            pytest.raises(gf.CheckpointError, match=r"sequential\.0\.weight"),
        ):
            model.trainer(checkpoints=checkpoints).fit(data(), resume=True)

    @pytest.mark.parametrize(
        ("changed", "why"),
        [
            (gf.data.batches(columns(), 16, seed=3), "size is 16 and was 8"),
            (gf.data.batches(columns(80), 8, seed=3), "rows is 80 and was 96"),
            (gf.data.batches(columns(), 8, seed=4), "seed is 4 and was 3"),
            ([], "the position is of other data"),
            (iter([]), "the data has 0"),
        ],
    )
    def test_other_data(self, checkpoints, changed, why):
        model = Model(seed=9)
        with (
            self.unchanged(model, checkpoints.folder),
            pytest.raises(gf.ArgumentError, match=why),
        ):
            model.trainer(checkpoints=checkpoints).fit(changed, resume=True)

    def test_a_damaged_checkpoint(self, checkpoints):
        path = checkpoints.latest
        found = bytearray(path.read_bytes())
        found[-5] ^= 1
        path.write_bytes(found)
        model = Model(seed=9)
        with (
            self.unchanged(model, checkpoints.folder),
            pytest.raises(gf.CheckpointError, match="damaged"),
        ):
            model.trainer(checkpoints=checkpoints).fit(data(), resume=True)

    def test_a_checkpoint_of_no_trainer(self, checkpoints):
        model = Model(seed=9)
        model.session.save(checkpoints.folder / "step-00000099.safetensors")
        with (
            self.unchanged(model, checkpoints.folder),
            pytest.raises(gf.CheckpointError, match="no checkpoint of a Trainer"),
        ):
            model.trainer(checkpoints=checkpoints).fit(data(), resume=True)
