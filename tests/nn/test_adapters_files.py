"""Files of low-rank updates: graphfw's own and PEFT's; and what `gf.nn.lora` refuses."""

import json

import numpy as np
import pytest

import graphfw as gf
from graphfw import nn
from graphfw.io import read_checkpoint, read_pytorch, write_pytorch
from tests.nn.test_lora import IDS, Net, scrambled


def made(rank=2, targets=("encoder", "head"), **options):
    with gf.Graph() as g:
        model = Net()
        adapters = nn.lora(model, list(targets), rank, **options)
    return model, adapters, gf.Session(g)


# graphfw's files.


def test_only_the_updates_are_saved_and_loaded(tmp_path, rng):
    _, adapters, session = made(alpha=4)
    scrambled(session, adapters, rng)
    adapters.save(session, tmp_path / "a.safetensors")
    arrays, metadata = read_checkpoint(tmp_path / "a.safetensors")
    state = adapters.module.state_dict(session)
    assert arrays.keys() == state.keys()
    assert "head.lora_A.weight" in arrays
    facts = json.loads(metadata["graphfw/adapters"])
    assert facts.pop("layers") == list(adapters.layers)
    assert facts == {"rank": 2, "alpha": 4.0, "targets": ["encoder", "head"]}
    # Patterns may be others, if the layers are the same.
    _, others, second = made(alpha=4, targets=["*.*", "head"])
    others.load(second, tmp_path / "a.safetensors")
    for name, array in others.module.state_dict(second).items():
        np.testing.assert_array_equal(array, state[name])


def test_weights_load_strictly_whether_or_not_there_are_updates(tmp_path, rng):
    with gf.Graph() as g:
        plain = Net()
    with gf.Session(g, seed=4) as session:
        plain.save(session, tmp_path / "own.safetensors")
        plain.save_pytorch(session, tmp_path / "theirs.safetensors")
        session.save(tmp_path / "session.safetensors")
        wanted = plain.state_dict(session)
    model, adapters, session = made()
    scrambled(session, adapters, rng)
    updates = adapters.module.state_dict(session)
    for load in (
        lambda: model.load(session, tmp_path / "own.safetensors"),
        lambda: model.load_pytorch(session, tmp_path / "theirs.safetensors"),
        lambda: model.load_state_dict(session, wanted),
        lambda: session.restore(tmp_path / "session.safetensors", ignore="adapters"),
    ):
        for variable in model.variables():
            session[variable] = np.zeros_like(session[variable])
        found = load()
        assert (found.missing, found.extra) == ((), ())
        for name, array in model.state_dict(session).items():
            np.testing.assert_array_equal(array, wanted[name], err_msg=name)
    for name, array in adapters.module.state_dict(session).items():
        np.testing.assert_array_equal(array, updates[name])


def test_checkpoints_have_the_updates(tmp_path, rng):
    _, adapters, session = made()
    scrambled(session, adapters, rng)
    session.save(tmp_path / "all.safetensors")
    _, others, second = made()
    second.restore(tmp_path / "all.safetensors")
    for own, other in zip(adapters.parameters(), others.parameters(), strict=True):
        np.testing.assert_array_equal(session[own], second[other])


def test_files_of_other_adapters_are_refused(tmp_path):
    model, adapters, session = made()
    path = tmp_path / "a.safetensors"
    adapters.save(session, path)
    before = session.state_dict()
    for options, summary, fix in (
        (
            {"rank": 3},
            "have rank 2 and alpha 2.0, and these have rank 3",
            "targets, rank=2, alpha=2",
        ),
        ({"alpha": 8}, "and these have rank 2 and alpha 8", "gf.nn.lora(model, targets, rank=2"),
        ({"targets": ["encoder"]}, '1 extra, "head"', "(model, ['encoder', 'head'], rank=2)"),
        ({"targets": ["*"]}, '2 missing, "table"', "choose its layers"),
    ):
        _, others, second = made(**options)
        with pytest.raises(gf.CheckpointError) as caught:
            others.load(second, path)
        assert summary in caught.value.summary
        assert fix in caught.value.fix
    model.save(session, path)
    with pytest.raises(gf.CheckpointError, match="holds a module and no adapters"):
        adapters.load(session, path)
    session.save(path)
    with pytest.raises(gf.CheckpointError, match="was not written by a module's save"):
        adapters.load(session, path)
    for name, array in session.state_dict().items():
        np.testing.assert_array_equal(array, before[name])


def test_the_session_comes_first(tmp_path):
    _, adapters, session = made()
    for method in ("save", "load", "save_peft", "load_peft"):
        with pytest.raises(gf.ArgumentError, match=f"Adapters.{method}: the session is a str"):
            getattr(adapters, method)(str(tmp_path), session)
    with gf.Graph() as other, gf.Session(other) as foreign:
        for method in (adapters.merge, adapters.unmerge):
            with pytest.raises(gf.ArgumentError, match="the session has no variable"):
                method(foreign)


# PEFT's folders.


def test_a_folder_of_peft_and_back(tmp_path, rng):
    model, adapters, session = made(targets=["table", "conv", "head"], alpha=5)
    scrambled(session, adapters, rng)
    adapters.save_peft(session, tmp_path / "new" / "folder")
    folder = tmp_path / "new" / "folder"
    config = json.loads((folder / "adapter_config.json").read_text())
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 2, 5)
    assert config["target_modules"] == ["table", "conv", "head"]
    theirs = read_pytorch(folder / "adapter_model.safetensors")
    shapes = {name.removeprefix("base_model.model."): a.shape for name, a in theirs.items()}
    assert shapes == {
        "table.lora_embedding_A": (2, 9),
        "table.lora_embedding_B": (8, 2),
        "conv.lora_A.weight": (2, 8, 3),
        "conv.lora_B.weight": (6, 2, 1),
        "head.lora_A.weight": (2, 6),
        "head.lora_B.weight": (5, 2),
    }
    _, others, second = made(targets=["table", "conv", "head"], alpha=5)
    others.load_peft(second, folder)
    for own, other in zip(adapters.parameters(), others.parameters(), strict=True):
        np.testing.assert_array_equal(session[own], second[other])


def test_the_table_of_names_that_loads_the_weights(tmp_path, rng):
    names = {"bert.layer.{i}.attention.query": "encoder.layers.{i}.self_attn.q_proj"}
    names |= {"bert.pooler": None, "bert.dense": "head"}
    _, adapters, session = made(targets=["*.q_proj", "head"])
    scrambled(session, adapters, rng)
    adapters.save_peft(session, tmp_path, names=names)
    theirs = read_pytorch(tmp_path / "adapter_model.safetensors")
    query = "base_model.model.bert.layer.0.attention.query"
    assert f"{query}.lora_B.weight" in theirs
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert config["target_modules"] == ["bert.layer.0.attention.query", "bert.dense"]
    updates = adapters.module.state_dict(session)
    scrambled(session, adapters, rng)
    adapters.load_peft(session, tmp_path, names=names)
    for name, array in adapters.module.state_dict(session).items():
        np.testing.assert_array_equal(array, updates[name])
    with pytest.raises(gf.CheckpointError, match=r"2 missing, .*; 2 extra"):
        adapters.load_peft(session, tmp_path)


@pytest.mark.parametrize(
    ("change", "summary"),
    [
        ({"r": 4}, "have rank 4 and alpha 2.0"),
        ({"lora_alpha": 16}, "have rank 2 and alpha 16.0"),
        ({"peft_type": "IA3"}, "is no configuration of low-rank updates"),
        ({"use_dora": True}, "has use_dora=True, which"),
        ({"use_rslora": True}, "has use_rslora=True, which"),
        ({"bias": "all"}, "has bias='all', which"),
        ({"rank_pattern": {"head": 3}}, "has rank_pattern="),
        ({"modules_to_save": ["head"]}, "has modules_to_save="),
        ({"r": None}, 'has no numbers "r" and "lora_alpha"'),
    ],
)
def test_configurations_of_something_else(tmp_path, change, summary):
    _, adapters, session = made(targets=["head"])
    adapters.save_peft(session, tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps(config | change))
    with pytest.raises(gf.CheckpointError) as caught:
        adapters.load_peft(session, tmp_path)
    assert summary in caught.value.summary
    assert caught.value.fix


def test_folders_that_are_none(tmp_path):
    _, adapters, session = made(targets=["head"])
    with pytest.raises(gf.CheckpointError, match="cannot read"):
        adapters.load_peft(session, tmp_path)
    (tmp_path / "adapter_config.json").write_text("{")
    with pytest.raises(gf.CheckpointError, match=r"adapter_config\.json' is damaged"):
        adapters.load_peft(session, tmp_path)
    adapters.save_peft(session, tmp_path)
    (tmp_path / "adapter_model.safetensors").unlink()
    with pytest.raises(gf.CheckpointError, match="there is no such file"):
        adapters.load_peft(session, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(gf.CheckpointError, match="cannot write"):
        adapters.save_peft(session, tmp_path / "file")
    write_pytorch(tmp_path / "adapter_model.safetensors", {"w": np.zeros(2, np.float32)})
    with pytest.raises(gf.CheckpointError, match='1 missing, "head"; 1 extra, ""'):
        adapters.load_peft(session, tmp_path)


# What is refused.


class Odd(nn.Module):
    def __init__(self):
        self.normed = nn.WeightNorm(nn.Linear(4, 4))
        self.grouped = nn.Conv1d(4, 4, 3, groups=2)
        self.bag = nn.EmbeddingBag(9, 4)
        self.table = nn.Embedding(9, 4)
        self.tied = nn.Embedding(9, 4)
        self.tied.weight = self.table.weight
        self.complex = nn.Linear(4, 4, dtype="complex64", weight_init=np.ones((4, 4)))
        self.fine = nn.Linear(4, 3)


@pytest.mark.parametrize(
    ("targets", "options", "summary", "fix"),
    [
        ("fin", {}, 'targets="fin" fits no layer of Odd', 'did you mean "fine"?'),
        (["fine", "layer"], {}, 'targets="layer" fits no layer', 'write "*.layer"'),
        ("fine.weight", {}, 'targets="fine.weight" fits no layer', 'did you mean "fine"?'),
        ("qqqq", {}, 'targets="qqqq" fits no layer', "with *; names end in bag, "),
        ("fine", {"ignore": "x"}, 'ignore="x" fits no layer', ""),
        ("fine", {"ignore": "fine"}, "ignore leaves no layers", "ignore less"),
        ("normed", {}, 'targets="normed" fits WeightNorm, and nothing', "choose one of these"),
        ("*.layer", {}, 'targets="*.layer" fits Linear, and nothing', "choose one of these"),
        (["fine", "grouped"], {}, 'targets="grouped" fits Conv1d', "choose one of these"),
        ("bag", {}, 'targets="bag" fits EmbeddingBag', "choose one of these"),
        ("tied", {}, '"tied" shares its weight', 'ignore="tied"'),
        ("complex", {}, 'weight of "complex" is complex64', 'ignore="complex"'),
        (
            "fine",
            {"rank": 4},
            'rank=4 is more than the rank of the weight of "fine", 3',
            "use rank=3",
        ),
        ("fine", {"rank": 0}, "rank=0 must be 1 or more", "use rank=1"),
        ("fine", {"rank": -4}, "rank=-4 must be 1 or more", "use rank=4"),
        ("fine", {"rank": 2.0}, "rank=2.0 is no int", "give rank as an int"),
        ("fine", {"alpha": 0}, "alpha=0 is no number above 0", "use alpha=16"),
        ("fine", {"alpha": float("inf")}, "alpha=inf is no number", "use alpha=16"),
        ("fine", {"alpha": "8"}, "alpha='8' is no number", "use alpha=16"),
        ("fine", {"dropout": 1}, "dropout=1 must be at least 0", "use dropout=0.5"),
        (3, {}, "targets=3 is no pattern", 'targets=["encoder"'),
        (None, {}, "targets=None chooses no layers", 'write "*"'),
        ([], {}, "ignore leaves no layers", ""),
    ],
)
def test_what_is_refused_changes_nothing(targets, options, summary, fix):
    with gf.Graph() as g:
        model = Odd()
        count = len(g.variables), len(model.parameters())
        with pytest.raises(gf.ArgumentError) as caught:
            nn.lora(model, targets, **{"rank": 2, **options})
        assert summary in caught.value.summary
        assert fix in caught.value.fix
        assert caught.value.at.function == "test_what_is_refused_changes_nothing"
        assert (len(g.variables), len(model.parameters())) == count
        assert not model.fine._forward_hooks


def test_layers_with_an_update_are_refused():
    with gf.Graph():
        model = Net()
        nn.lora(model, "head", 2)
        with pytest.raises(gf.ArgumentError, match='lora: "head" has an update already') as caught:
            nn.lora(model, ["head", "conv"], 2)
        assert 'ignore="head"' in caught.value.fix
        second = nn.lora(model, ["head", "conv"], 2, ignore="head")
        # The first ones go on training.
        optimizer = gf.optim.SGD(0.1, momentum=0.9)
        optimizer.minimize(gf.mean(model(IDS) ** 2))
        assert sum("momentum" in v.name or "velocity" in v.name for v in optimizer.variables) == 4
        assert list(second.layers) == ["conv"]


def test_models_and_graphs_that_do_not_fit():
    with gf.Graph():
        model, waiting = Net(), nn.Sequential(nn.Linear(None, 3))
        with pytest.raises(gf.GraphError, match="makes its variables in its first call"):
            nn.lora(waiting, "*", 2)
        with pytest.raises(gf.ArgumentError, match="is no Module"):
            nn.lora([model], "*", 2)
        with pytest.raises(gf.CallError) as caught:
            nn.lora(model, target_modules=["*.q_proj"], r=8)
        assert "targets=['*.q_proj'], rank=8" in caught.value.fix
    with gf.Graph(), pytest.raises(gf.GraphError, match="belongs to another graph"):
        nn.lora(model, "*", 2)
    with pytest.raises(gf.GraphError, match="none is open"):
        nn.lora(model, "*", 2)
