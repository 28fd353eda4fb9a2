"""Modules: mistakes, and the errors that say so."""

import numpy as np
import pytest

import graphfw as gf
from graphfw import nn


class MLP(nn.Module):
    def __init__(self):
        self.fc1 = nn.Linear(4, 8)
        self.fc2 = nn.Linear(8, 2)

    def forward(self, x):
        return self.fc2(gf.relu(self.fc1(x)))


@pytest.fixture(autouse=True)
def graph():
    with gf.Graph() as g:
        yield g


def test_a_path_is_no_state(graph, tmp_path):
    model, session = MLP(), gf.Session(graph)
    for path in ("model.safetensors", tmp_path):
        with pytest.raises(gf.ArgumentError, match="not a dict of arrays") as caught:
            model.load_state_dict(session, path)
        assert caught.value.fix.startswith("load() reads a file of save(), and load_pytorch()")


# Parts that would not be found, or not do what they seem to.


@pytest.mark.parametrize(
    ("make", "fix"),
    [
        (lambda: [nn.ReLU()], "use gf.nn.ModuleList([…])"),
        (lambda: (1, nn.ReLU()), "use gf.nn.ModuleList([…])"),
        (lambda: {"a": nn.ReLU()}, "use gf.nn.ModuleDict({…})"),
        (lambda: [[1], [{"a": nn.ReLU()}]], "use gf.nn.ModuleList([…])"),
        (lambda: [gf.Variable(0.0)], "assign each variable to an attribute of its own"),
    ],
)
def test_hidden_submodules_are_refused(make, fix):
    model = MLP()
    with pytest.raises(gf.ArgumentError, match=r"MLP\.layers is a plain .* not find") as caught:
        model.layers = make()
    assert caught.value.fix == fix


def test_submodules_hidden_after_assignment_are_refused():
    class Filled(nn.Module):
        def __init__(self, container, make):
            self.layers = container
            if isinstance(container, list):
                container.append(make())
            else:
                container["last"] = {"nested": (1, make())}

    for container, make in (
        ([], lambda: nn.Dropout(0.5)),
        ({}, lambda: nn.Linear(2, 2)),
        ([1], lambda: gf.Variable(1.0, name="v")),
    ):
        with pytest.raises(gf.ArgumentError, match=r"Filled\.layers is a plain .* not find") as e:
            Filled(container, make)
        assert e.value.at.function == "test_submodules_hidden_after_assignment_are_refused"


def test_containers_of_submodules_that_are_found_elsewhere_are_fine():
    class Tower(nn.Module):
        def __init__(self):
            self.layers = []
            for i in range(2):
                self.add_module(f"layer{i}", nn.Linear(2, 2))
                self.layers.append(getattr(self, f"layer{i}"))
            self.ends = (self.layer0, self.layer1.weight)

    assert len(Tower().parameters()) == 4


def test_freezing_a_module_is_refused():
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))
    for name in ("trainable", "requires_grad"):
        with pytest.raises(gf.ArgumentError, match=f"Linear.{name} would change nothing") as caught:
            setattr(model[0], name, False)
        assert caught.value.fix.startswith("write module.freeze()")

    class Own(nn.Module):
        trainable = True

        def __init__(self):
            self.trainable = False

    assert not Own().trainable


# Arguments.


@pytest.mark.parametrize(
    ("make", "text", "fix"),
    [
        (
            lambda: nn.Conv2d(1, 2, 3, pading=1),
            "Conv2d: got an unexpected keyword argument 'pading'",
            "nn.Conv2d(1, 2, 3, padding=1)",
        ),
        (
            lambda: nn.BatchNorm2d(3, momemtum=0.1),
            "BatchNorm2d: got an unexpected keyword argument 'momemtum'",
            "nn.BatchNorm2d(3, momentum=0.1)",
        ),
        (
            lambda: nn.Linear(4),
            "Linear: missing a required argument: 'out_features'",
            "its arguments are: in_features, out_features, bias, ",
        ),
        (lambda: nn.ReLU(1, 2), "ReLU: too many positional arguments", "its arguments are: name"),
        (
            lambda: nn.Dropout(0.5, training=False),
            "Dropout: got an unexpected keyword argument 'training'",
            "nn.Dropout(0.5); without training=: pass it to the call: layer(x, training=False)",
        ),
        (lambda: MLP()(), "MLP: missing a required argument: 'x'", "its arguments are: x"),
    ],
)
def test_wrong_arguments(make, text, fix):
    with pytest.raises(gf.ArgumentError) as caught:
        make()
    assert caught.value.summary == text
    assert caught.value.fix.startswith(fix)
    assert caught.value.at.file == __file__


def test_type_errors_from_inside_stay_what_they_are():
    class Broken(nn.Module):
        def __init__(self, size):
            if size is None:
                len(size)

        def forward(self, x):
            return self.helper(x, 1)

        def helper(self, x):
            return x

    with pytest.raises(TypeError, match="has no len"):
        Broken(None)
    with pytest.raises(TypeError, match=r"helper\(\) takes 2 positional arguments"):
        Broken(1)(gf.ones(2))


# Saved states.


def test_load_state_dict_fixes(graph):
    model = MLP()
    message = '"fc1.weight" is transposed, as in PyTorch: pass format="torch"'
    cases = [
        (lambda array: array.T, message),
        (lambda array: array.astype(np.float64), 'convert "fc1.weight": pass array.astype("float3'),
        (lambda array: array.T.astype(np.float64), "build the model with the shapes and dtypes"),
        (lambda array: array[1:], "build the model with the shapes and dtypes"),
    ]
    with gf.Session(graph) as session:
        state = model.state_dict(session)
        for change, fix in cases:
            changed = {**state, "fc1.weight": change(state["fc1.weight"])}
            with pytest.raises(gf.CheckpointError, match="mismatched") as caught:
                model.load_state_dict(session, changed)
            assert caught.value.fix.startswith(fix)
        with pytest.raises(gf.ArgumentError, match="the session is a StateDict") as caught:
            model.load_state_dict(state, session)
        assert caught.value.fix.endswith("load_state_dict(session, state)")
        with pytest.raises(gf.ArgumentError, match="the state is a str, not a dict of arrays"):
            model.load_state_dict(session, "weights.safetensors")


def test_a_session_of_another_graph(graph):
    model = MLP()
    with gf.Session(graph) as session, gf.Session(gf.Graph()) as other:
        state = model.state_dict(session)
        for call in (lambda s: model.state_dict(s), lambda s: model.load_state_dict(s, state)):
            with pytest.raises(
                gf.ArgumentError, match=r'has no variable "mlp\.fc1\.weight"'
            ) as caught:
                call(other)
            assert "session of the graph that the module is made in" in caught.value.fix
            with pytest.raises(gf.ArgumentError, match="the session is a Graph"):
                call(graph)


def test_a_state_in_graphfws_layout_is_not_pytorchs(graph):
    model = MLP()
    with gf.Session(graph) as session:
        state = {name: np.array(array) for name, array in model.state_dict(session).items()}
        with pytest.raises(gf.CheckpointError, match="mismatched") as caught:
            model.load_state_dict(session, state, format="torch")
    assert 'is not transposed, as it would be in PyTorch: pass format="graphfw"' in caught.value.fix


@pytest.mark.parametrize(
    ("make", "text", "fix"),
    [
        (lambda: nn.Dropout("a"), "Dropout: p='a' is no number", "use p=0.5"),
        (lambda: nn.Dropout(None), "Dropout: p=None is no number", "use p=0.5"),
        (lambda: nn.Dropout(20), "Dropout: p=20 must be at least 0 and below 1", "use p=0.2"),
        (lambda: nn.LSTM(2, 2, 2, dropout="a"), "LSTM: dropout='a' is no number", "dropout=0.5"),
        (lambda: nn.init.normal(std="a"), "Initializer: std='a' is no number", "use std=1.0"),
        (lambda: nn.init.he_normal(gain=None), "Scaling: gain=None is no number", "use gain=1.0"),
        (lambda: nn.init.uniform(low=[0]), "Initializer: low=[0] is no number", "use low=0.0"),
        (lambda: nn.ModuleList(nn.ReLU()), "ModuleList: a ReLU is no list", "ModuleList([module])"),
        (lambda: nn.ModuleDict([nn.ReLU()]), "ModuleDict: a list is no dict", "ModuleDict({"),
        (
            lambda: gf.training("no"),
            "training: 'no' is neither True nor False",
            "gf.training(False)",
        ),
    ],
)
def test_what_containers_and_scopes_are_given(graph, make, text, fix):
    with pytest.raises(gf.ArgumentError) as caught:
        make()
    assert text in caught.value.summary
    assert fix in caught.value.fix
