"""Modules: registration, names of variables, calls, text."""

import gc
import weakref
from abc import ABC, abstractmethod

import numpy as np
import pytest

import graphfw as gf
from graphfw import nn


class MLP(nn.Module):
    def __init__(self, width=8):
        self.fc1 = nn.Linear(4, width)
        self.fc2 = nn.Linear(width, 2)

    def forward(self, x):
        return self.fc2(gf.relu(self.fc1(x)))


class Scale(nn.Module):
    def __init__(self, name=None):
        super().__init__(name=name)
        self.gain = gf.Variable([1.0, 2.0], name="gain")
        self.count = gf.Variable(0, name="count", trainable=False)

    def forward(self, x):
        return x * self.gain


@pytest.fixture(autouse=True)
def graph():
    with gf.Graph() as g:
        yield g


def names(module):
    return [v.name for v in module.variables()]


# Names.


def test_names_come_from_attributes_without_super_init():
    model = MLP()
    assert names(model) == ["mlp.fc1.weight", "mlp.fc1.bias", "mlp.fc2.weight", "mlp.fc2.bias"]
    assert [n for n, _ in model.named_parameters()] == [
        "fc1.weight",
        "fc1.bias",
        "fc2.weight",
        "fc2.bias",
    ]


def test_second_root_is_numbered(graph):
    first, second = MLP(), MLP()
    assert (first.path, second.path) == ("mlp", "mlp_1")
    assert names(second)[0] == "mlp_1.fc1.weight"
    graph.check_names()


def test_variables_with_the_same_name_in_two_instances():
    first, second = Scale(), Scale()
    assert names(first) == ["scale.gain", "scale.count"]
    assert names(second) == ["scale_1.gain", "scale_1.count"]


def test_attaching_renames_and_frees_the_root_name():
    submodule = Scale()
    gain = submodule.gain
    assert gain.name == "scale.gain"
    whole = nn.Sequential(nn.Sequential(nn.Identity(), submodule))
    assert gain.name == "sequential.0.1.gain"
    assert submodule.path == "sequential.0.1"
    assert Scale().path == "scale"
    assert whole[0][1] is submodule


def test_first_parent_names_a_shared_module():
    shared = nn.Linear(3, 3)
    first = nn.Sequential(shared)
    second = nn.Sequential(nn.ReLU(), shared)
    assert shared.path == "sequential.0"
    assert second[1] is shared
    assert names(second) == names(first)


def test_shared_variables_count_once():
    class Tied(nn.Module):
        def __init__(self):
            self.a = nn.Linear(3, 3, bias=False)
            self.b = nn.Linear(3, 3, bias=False)
            self.b.weight = self.a.weight

    model = Tied()
    assert len(model.parameters()) == 1
    assert names(model) == ["tied.a.weight"]


def test_explicit_name_and_scope():
    with gf.name_scope("model"):
        assert Scale(name="head").gain.name == "model.head.gain"
        assert Scale().path == "model.scale"
    assert nn.Linear(1, 1, name="out").weight.name == "out.weight"
    with pytest.raises(gf.GraphError, match='a module named "out" exists already'):
        nn.Linear(1, 1, name="out")
    for bad in ("", "a.b", "a b"):
        with pytest.raises(gf.ArgumentError, match="is empty or has dots or spaces"):
            nn.ReLU(name=bad)


def test_snake_case():
    assert nn.MultiHeadAttention(4, 2).path == "multi_head_attention"
    assert nn.GELU().path == "gelu"
    assert nn.BatchNorm(2).path == "batch_norm"
    assert nn.LeakyReLU().path == "leaky_relu"
    assert nn.SiLU().path == "silu"


def test_replaced_submodules_take_another_name(graph):
    model = MLP()
    old, weight = model.fc2, model.fc1.weight
    model.fc2 = nn.Linear(8, 5)
    assert model.fc2.weight.name == "mlp.fc2.weight"
    assert old.weight.name == "linear.weight"
    model.fc1.weight = gf.Variable(np.zeros((4, 8), np.float32))
    assert model.fc1.weight.name == "mlp.fc1.weight"
    assert weight.name == "mlp.fc1.weight.former"
    del model.fc1
    assert [n for n, _ in model.named_children()] == ["fc2"]
    graph.check_names()


def test_replacing_by_none_unregisters():
    layer = nn.Linear(2, 2)
    layer.bias = None
    assert [n for n, _ in layer.named_parameters()] == ["weight"]


def test_dropped_modules_without_variables_free_their_name():
    assert nn.ReLU().path == "relu"
    gc.collect()
    assert nn.ReLU().path == "relu"


def test_provisional_scope_ends_when_init_fails():
    class Bad(nn.Module):
        def __init__(self):
            raise KeyError("no")

    with pytest.raises(KeyError):
        Bad()
    assert gf.Variable(0.0, name="free").name == "free"


def test_graphs_and_modules_are_collected():
    with gf.Graph() as other:
        MLP()(gf.placeholder((2, 4)))
    dead = weakref.ref(other)
    del other
    gc.collect()
    assert dead() is None


def test_nested_modules_settle_their_root_name():
    inner = nn.Sequential(nn.Sequential(nn.Linear(1, 1)))
    assert nn.ModuleList([inner, nn.Sequential(nn.Linear(1, 1))]).path == "module_list"
    assert nn.Sequential(nn.Linear(1, 1))[0].weight.name == "sequential.0.weight"


# Registration.


def test_plain_containers_are_fine():
    model = MLP()
    loop = [1, 2]
    loop.append(loop)
    model.sizes = loop
    model.options = {"a": (1, "b")}
    assert model.sizes is loop


def test_method_names_are_refused():
    model = MLP()
    for name in ("parameters", "forward", "path", "eval"):
        with pytest.raises(gf.ArgumentError, match=f"MLP.{name} is a method or the like"):
            setattr(model, name, nn.ReLU())


def test_cycles_are_refused():
    model = MLP()
    with pytest.raises(gf.ArgumentError, match="can't contain itself"):
        model.me = model
    with pytest.raises(gf.ArgumentError, match=r"Linear\.owner: .* contain itself"):
        model.fc1.owner = model


def test_traversals():
    model = nn.Sequential(MLP(), nn.Sequential(Scale(), nn.ReLU()))
    assert [n for n, _ in model.named_modules()] == [
        "",
        "0",
        "0.fc1",
        "0.fc2",
        "1",
        "1.0",
        "1.1",
    ]
    assert len(model.modules()) == 7
    assert model.children() == [model[0], model[1]]
    assert [v.name for v in model.buffers()] == ["sequential.1.0.count"]
    assert len(model.parameters()) == 5
    assert len(model.variables()) == 6
    assert [n for n, _ in model.named_variables()][-1] == "1.0.count"


def test_abstract_modules():
    class Base(nn.Module, ABC):
        @abstractmethod
        def forward(self, x): ...

    class Double(Base):
        def forward(self, x):
            return x * 2

    with pytest.raises(TypeError, match="abstract"):
        Base()
    assert float(Double()(gf.asarray(2.0)).numpy()) == 4.0


# Calling.


def test_scope_and_location_of_nodes():
    model = MLP()
    y = model(gf.placeholder((3, 4)))
    assert y.node.loc.layer == "mlp.fc2"
    assert y.node.loc.function == "forward"


def test_name_scope_around_a_call():
    class Named(nn.Module):
        def __init__(self):
            self.inner = nn.ReLU()

        def forward(self, x):
            with gf.name_scope("part"):
                return gf.identity(self.inner(x), name="hidden")

    model = Named()
    x = gf.placeholder((3,))
    assert model(x).name == "named.part.hidden"
    with gf.name_scope("eval"):
        second = model(x)
    assert second.name == "eval.named.part.hidden"
    assert second.node.inputs[0].node.loc.layer == "eval.named.inner"
    with gf.name_scope("tower"):
        inside = Named()
        assert inside(x).name == "tower.named.part.hidden"


def test_draws_differ_by_call_and_by_layer(graph):
    drop = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5))
    ones = gf.ones((64,))
    outputs = [drop[0](ones), drop[0](ones), drop[1](ones)]
    with gf.Session(graph) as session:
        a, b, c = session.run(outputs)
    assert (a != b).any()
    assert (a != c).any()
    assert (b != c).any()


def test_missing_forward():
    class Typo(nn.Module):
        def foward(self, x):
            return x

    with pytest.raises(gf.GraphError, match="Typo does not say what it computes") as caught:
        Typo()(1)
    assert caught.value.fix == 'did you mean "foward"?'

    class Empty(nn.Module):
        pass

    with pytest.raises(gf.GraphError) as caught:
        Empty()(1)
    assert caught.value.fix == "define a method forward(self, x)"


def test_train_and_eval():
    model = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Dropout()))
    inner = model[1][0]
    assert inner.training
    with gf.training(False):
        assert not inner.training
        assert model.train() is model
        assert not inner.training
    assert inner.training
    assert model.eval() is model
    assert not inner.training
    x = gf.ones((3,))
    assert model(x) is x
    with pytest.raises(gf.ArgumentError, match="mode=None must be True or False"):
        model.train(None)


def test_training_in_a_call_holds_for_that_call(graph):
    model = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Dropout()))
    x = gf.ones((3,))
    assert model(x, training=False) is x
    assert model(x) is not x
    with gf.training(False):
        assert model(x, training=True) is not x
        assert model(x, training=None) is x
    with pytest.raises(gf.ArgumentError, match="training=1 must be True, False or None"):
        model(x, training=1)
    with pytest.raises(gf.ArgumentError, match="after eval") as caught:
        model.eval()(x, training=True)
    assert caught.value.fix.startswith("call train() before; instead of eval(), write training=F")


def test_a_forward_with_training_of_its_own_gets_it():
    class Keras(nn.Module):
        def __init__(self):
            self.drop = nn.Dropout()

        def forward(self, x, training=None):
            return self.drop(x, training=training)

    model, x = Keras(), gf.ones((3,))
    assert model(x, training=False) is x
    assert model(x) is not x


# Contents.


def test_state_dict_moves_between_graphs(rng, graph):
    with gf.Session(graph) as session:
        pass
    first = nn.Sequential(MLP(), Scale())
    with gf.Session(graph, seed=1) as session:
        state = first[0].state_dict(session)
        assert list(state) == ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
    with gf.Graph() as other:
        second = MLP()
    with gf.Session(other, seed=2) as session:
        assert (session[second.fc1.weight] != state["fc1.weight"]).any()
        second.load_state_dict(session, state)
        for name, array in second.state_dict(session).items():
            np.testing.assert_array_equal(array, state[name])


def test_load_state_dict_mismatches(graph):
    model = MLP()
    with gf.Session(graph) as session:
        state = model.state_dict(session)
        renamed = {("fc1.wieght" if k == "fc1.weight" else k): v for k, v in state.items()}
        with pytest.raises(gf.CheckpointError, match=r'missing "fc1\.weight", extra "fc1\.w') as e:
            model.load_state_dict(session, renamed)
        assert e.value.fix == '"fc1.wieght": did you mean "fc1.weight"?'
        found = model.load_state_dict(session, renamed, strict=False)
        assert (found.missing, found.extra) == (("fc1.weight",), ("fc1.wieght",))
        assert model.load_state_dict(session, state) == gf.io.Mismatch()
        zero = {name: array * 0 for name, array in state.items()}
        with pytest.raises(gf.CheckpointError) as e:
            model.load_state_dict(session, {**zero, "fc1.bias": np.zeros(3, np.float32)})
        assert e.value.summary == (
            'MLP.load_state_dict: 1 mismatched: "fc1.bias" is float32[3], not float32[8]'
        )
        assert (
            e.value.fix
            == "build the model with the shapes and dtypes of the state, or load another one"
        )
        np.testing.assert_array_equal(session[model.fc2.weight], state["fc2.weight"])


def test_load_state_dict_says_nothing_of_what_is_not_in_the_module(graph):
    model = MLP()
    gf.optim.SGD(0.1).minimize(gf.sum(model(gf.placeholder(("batch", 4)))))
    with gf.Session(graph) as session:
        state = model.state_dict(session)
        with pytest.raises(gf.CheckpointError) as e:
            model.load_state_dict(session, {**state, "fc1.bias": np.zeros(3, np.float32)})
        assert "sgd.step" not in str(e.value)
        more = {**state, "head.weight": np.zeros(3, np.float32)}
        with pytest.raises(gf.CheckpointError, match=r'extra "head\.weight"') as e:
            model.load_state_dict(session, more)
        assert e.value.fix == "pass ignore_extra=True to leave these out"
        found = model.load_state_dict(session, more, ignore_extra=True)
        assert found == gf.io.Mismatch(extra=("head.weight",))
        del more["fc1.bias"]
        with pytest.raises(gf.CheckpointError, match=r'missing "fc1\.bias", extra "head'):
            model.load_state_dict(session, more, ignore_extra=True)


def test_initial_values_depend_on_the_name_alone():
    with gf.Graph() as small:
        a = MLP()
    with gf.Graph() as large:
        nn.Linear(50, 50)
        gf.random.uniform((3,))
        b = MLP()
    with gf.Session(small, seed=3) as s, gf.Session(large, seed=3) as t:
        np.testing.assert_array_equal(s[a.fc2.weight], t[b.fc2.weight])
        assert (s[a.fc1.weight][:2, :2] != s[a.fc2.weight][:2, :2]).all()


# Text.


def test_text():
    model = nn.Sequential(
        nn.Linear(64, 128),
        nn.ReLU(),
        nn.Sequential({"norm": nn.BatchNorm(128), "drop": nn.Dropout(0.2)}),
        Scale(),
    )
    assert (
        repr(model)
        == """\
Sequential(
  (0): Linear(64 -> 128, bias=True)  # 8,320 parameters
  (1): ReLU()
  (2): Sequential(
    (norm): BatchNorm(128, momentum=0.1, eps=1e-05, affine=True)  # 256 parameters, \
256 not trained
    (drop): Dropout(p=0.2)
  )  # 256 parameters, 256 not trained
  (3): Scale(gain: float32[2], count: int64[])  # 2 parameters, 1 not trained
)  # 8,578 parameters, 257 not trained"""
    )


def test_text_of_one_parameter():
    assert repr(nn.Linear(1, 1, bias=False)) == "Linear(1 -> 1, bias=False)  # 1 parameter"
