"""`Sequential`, `ModuleList` and `ModuleDict`."""

import pytest

import graphfw as gf
from graphfw import nn


@pytest.fixture(autouse=True)
def graph():
    with gf.Graph() as g:
        yield g


def test_sequential_indexing():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 4))
    assert len(model) == 3
    assert model[-1] is list(model)[2]
    section = model[1:]
    assert isinstance(section, nn.Sequential)
    assert [n for n, _ in section.named_children()] == ["1", "2"]
    section.append(nn.Tanh())
    assert len(section) == 3
    assert len(model) == 3
    assert section[1].path == "sequential.2"
    model[1] = nn.Tanh()
    assert isinstance(model[1], nn.Tanh)
    for index in (3, -4):
        with pytest.raises(gf.AxisError, match=f"index {index} is out of range: it has 3 modules"):
            model[index]


def test_sequential_by_names():
    model = nn.Sequential({"fc": nn.Linear(2, 3), "act": nn.ReLU()})
    assert model.fc is model[0]
    assert model.fc.weight.name == "sequential.fc.weight"
    assert model(gf.placeholder(("batch", 2))).shape[1] == 3


def test_sequential_of_wrong_things():
    with pytest.raises(gf.ArgumentError, match=r"Sequential: relu \(at position 1\) is no") as e:
        nn.Sequential(nn.ReLU(), gf.relu)
    assert "use a layer such as gf.nn.ReLU()" in e.value.fix
    with pytest.raises(gf.ArgumentError, match="Sequential: ReLU") as e:
        nn.Sequential(nn.ReLU)
    assert e.value.fix == "make one: ReLU(…)"
    with pytest.raises(gf.ArgumentError, match="one by one, not a list") as e:
        nn.Sequential([nn.ReLU()])
    assert e.value.fix == "write Sequential(*modules)"
    with pytest.raises(gf.ArgumentError, match=r"ModuleList: 3 \(at 0\) is no Module"):
        nn.ModuleList([3])


def test_module_list():
    layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    layers.append(nn.ReLU()).extend([nn.Tanh()])
    assert len(layers) == 5
    assert [m.path for m in layers][:2] == ["module_list.0", "module_list.1"]
    assert isinstance(layers[1:3], nn.ModuleList)
    assert layers[1:3][0] is layers[1]


def test_module_dict():
    heads = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.ReLU()})
    assert list(heads) == heads.keys() == ["a", "b"]
    assert "a" in heads
    assert heads.items()[1] == ("b", heads["b"])
    assert heads.values()[0].weight.name == "module_dict.a.weight"
    del heads["b"]
    assert len(heads) == 1
    with pytest.raises(gf.ArgumentError, match="there is no module 'aa'") as caught:
        heads["aa"]
    assert caught.value.fix == 'did you mean "a"?'
    with pytest.raises(gf.ArgumentError, match=r"ModuleDict\.items is a method"):
        heads["items"] = nn.ReLU()
    with pytest.raises(gf.ArgumentError, match="is no name for a submodule"):
        heads["a.b"] = nn.ReLU()
