"""`session.restore(path, only=…, ignore=…)`: a choice of a checkpoint's entries."""

import numpy as np
import pytest

import graphfw as gf


def training():
    with gf.Graph() as g:
        x = gf.placeholder(("batch", 3), name="x")
        with gf.name_scope("encoder"):
            hidden = gf.nn.Linear(3, 3)(x)
        with gf.name_scope("head"):
            loss = gf.mean(gf.nn.Linear(3, 1)(hidden) ** 2)
        train = gf.optim.Adam(1e-2).minimize(loss)
    return gf.Session(g, seed=5), train


def inference():
    with gf.Graph() as g:
        x = gf.placeholder(("batch", 3), name="x")
        with gf.name_scope("encoder"):
            gf.nn.Linear(3, 3)(x)
        with gf.name_scope("head"):
            gf.nn.Linear(3, 1)(x)
    return gf.Session(g, seed=9)


@pytest.fixture
def saved(tmp_path):
    session, train = training()
    for _ in range(3):
        session.run(train, {"x": np.ones((2, 3), np.float32)})
    session.save(tmp_path / "x", metadata={"epoch": 3})
    return tmp_path / "x", session.state_dict()


def changed(session, before):
    return {n for n, a in session.state_dict().items() if not np.array_equal(a, before[n])}


WEIGHTS = {"encoder.linear.weight", "encoder.linear.bias", "head.linear.weight", "head.linear.bias"}


def test_what_a_graph_for_inference_lacks_is_ignored(saved):
    path, state = saved
    session = inference()
    restored = session.restore(path, ignore="adam")
    assert (restored.missing, restored.extra, restored.metadata) == ((), (), {"epoch": 3})
    for name in WEIGHTS:
        np.testing.assert_array_equal(session[name], state[name])
    assert session.state_dict()["session/seed"] == 5
    with pytest.raises(gf.CheckpointError, match="extra"):
        session.restore(path)


@pytest.mark.parametrize(
    ("only", "ignore", "taken"),
    [
        ("encoder", None, {"encoder.linear.weight", "encoder.linear.bias"}),
        ("head.linear.bias", None, {"head.linear.bias"}),
        ("*.weight", ["adam"], {"encoder.linear.weight", "head.linear.weight"}),
        (["encoder", "head.linear.b*"], "*.weight", {"encoder.linear.bias", "head.linear.bias"}),
        (None, ("adam", "head"), {"encoder.linear.weight", "encoder.linear.bias"}),
        ([], None, set()),
        ("*", "adam", WEIGHTS),
    ],
)
def test_what_is_chosen_is_taken_and_the_rest_stays(saved, only, ignore, taken):
    path, state = saved
    session = inference()
    before = session.state_dict()
    session.restore(path, only=only, ignore=ignore)
    numbers = {"session/seed"} if only is None else set()
    assert changed(session, before) == taken | numbers
    for name in taken:
        np.testing.assert_array_equal(session[name], state[name])
    assert session.state_dict()["session/seed"] == (5 if only is None else 9)


def test_the_optimiser_of_a_training_graph_stays_if_it_is_ignored(saved):
    path, state = saved
    session, train = training()
    session.run(train, {"x": np.full((2, 3), 2, np.float32)})
    before = session.state_dict()
    session.restore(path, ignore="adam")
    assert {n for n in changed(session, before) if n.startswith("adam")} == set()
    np.testing.assert_array_equal(session["head.linear.bias"], state["head.linear.bias"])


def test_what_is_missing_among_the_chosen_is_an_error(saved):
    path, _ = saved
    with gf.Graph() as g:
        gf.nn.Linear(3, 3, name="other")
        with gf.name_scope("encoder"):
            gf.nn.Sequential(gf.nn.Linear(3, 3))
    session = gf.Session(g)
    before = session.state_dict()
    with pytest.raises(gf.CheckpointError) as caught:
        session.restore(path, only="encoder")
    assert "2 missing, 2 extra" in caught.value.summary
    assert "other" not in caught.value.summary
    assert not changed(session, before)
    mismatch = session.restore(path, only="encoder", strict=False)
    assert mismatch.missing == ("encoder.sequential.0.bias", "encoder.sequential.0.weight")


def test_patterns_that_fit_nothing(saved):
    path, _ = saved
    session = inference()
    before = session.state_dict()
    with pytest.raises(gf.CheckpointError) as caught:
        session.restore(path, only="encodr")
    assert caught.value.summary == f"only=\"encodr\" fits no variable and no entry of '{path}'"
    assert caught.value.fix == 'did you mean "encoder"?'
    with pytest.raises(gf.CheckpointError) as caught:
        session.restore(path, ignore=["adam", "????????"])
    assert caught.value.summary.startswith('ignore="????????" fits no variable')
    assert "a name with *" in caught.value.fix
    assert not changed(session, before)


@pytest.mark.parametrize("wrong", [3, "", [""], [3], ["a", None], lambda name: True])
def test_what_is_no_pattern(saved, wrong):
    path, _ = saved
    for option in ("only", "ignore"):
        with pytest.raises(gf.ArgumentError, match=f"restore: {option}=.* is no pattern"):
            inference().restore(path, **{option: wrong})


def test_square_matrices_of_unknown_origin_are_refused_among_the_chosen(tmp_path, saved):
    path, state = saved
    gf.io.write_checkpoint(tmp_path / "other", {n: state[n] for n in WEIGHTS}, {})
    session = inference()
    with pytest.raises(gf.CheckpointError, match=r'"encoder\.linear\.weight" is square'):
        session.restore(tmp_path / "other", only="encoder")
    session.restore(tmp_path / "other", only="encoder", format="graphfw")
    session.restore(path, only="encoder")  # a session has written it
