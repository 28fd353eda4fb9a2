"""`gf.bisect`: where two sessions of one graph part."""

import types

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError


@pytest.fixture
def net(rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 5), name="x")
        other = gf.placeholder(("n",), name="other")
        w = gf.Variable(np.eye(5, dtype=np.float32), name="w")
        h = gf.tanh(x @ w)
        y = gf.identity(gf.sum(gf.exp(h), axis=1), name="y")
        index = gf.argmax(h, axis=1)
        lost = other * 2.0
    return g, x, w, h, y, index, lost


def test_equal_sessions(net, rng):
    g, x, w, *_ = net
    with gf.Session(g) as a, gf.Session(g, debug=True) as b:
        found = gf.bisect(a, b, {"x": rng.normal(size=(4, 5)).astype(np.float32)})
    assert found.first is None
    assert "no tensor of" in str(found)
    names = {one.tensor.node.op.name for one in found.entries}
    assert {"variable", "matmul", "tanh", "exp", "argmax"} <= names
    assert not any("other" in one.tensor.name for one in found.entries)


def test_contents_that_differ(net, rng):
    g, x, w, h, y, *_ = net
    with gf.Session(g) as a, gf.Session(g) as b:
        changed = np.eye(5, dtype=np.float32)
        changed[2, 2] = 1.5
        b[w] = changed
        found = gf.bisect(a, b, {x: rng.normal(size=(4, 5)).astype(np.float32)}, [y])
    assert found.first.tensor is w
    assert found.first.error == pytest.approx(0.5)
    text = str(found)
    assert 'the first to diverge: 0.5  "w" variable made at test_comparing.py' in text
    assert "how the error grows" in text


def test_an_operation_that_differs(net, monkeypatch, rng):
    g, x, w, h, *_ = net
    monkeypatch.setenv("GRAPHFW_JIT", "0")
    feeds = {x: rng.normal(size=(4, 5)).astype(np.float32)}
    wrong = []

    def tanh(values):
        return np.tanh(values) + np.float32(0.01 * len(wrong))

    with gf.Session(g) as a, gf.Session(g) as b:
        monkeypatch.setattr(type(h.node.op), "kernel", lambda self, xp, *dtypes: tanh)
        run = b.run
        monkeypatch.setattr(b, "run", lambda *a, **k: wrong.append(1) or run(*a, **k))
        found = gf.bisect(a, b, feeds)
    assert found.first.tensor is h
    lines = str(found).splitlines()
    assert "tanh made at test_comparing.py" in lines[0]
    assert lines[1].startswith("  of   0  matmul made at")


def test_a_nan_of_one_and_integers(rng):
    with gf.Graph() as g:
        x = gf.Variable(np.ones(3, np.float32), name="x")
        n = gf.Variable(np.arange(3), name="n")
        gf.log(x)
    with gf.Session(g) as a, gf.Session(g) as b:
        b[x] = np.array([1, -1, 1], np.float32)
        b[n] = np.array([0, 1, 3])
        errors = {one.tensor.node.op.name + one.tensor.name: one for one in gf.bisect(a, b).entries}
        assert np.isinf(errors["log"].error)
        assert not gf.bisect(a, b, rtol=3.0).entries[0].diverges
    assert errors["variablex"].error == 2
    assert np.isinf(errors["variablen"].error)


def test_numbers_for_storage_may_be_the_next_ones():
    with gf.Graph() as g:
        x = gf.Variable(np.array([0.3, 3.37, -3, np.nan], np.float32), name="x")
        kept = gf.astype(x, "float8_e4m3fn")
        few = gf.astype(x[:3], "int4")
    with gf.Session(g) as a, gf.Session(g) as b:
        b[x] = np.array([0.3, 3.38, -3, np.nan], np.float32)
        found = {one.tensor: one for one in gf.bisect(a, b).entries}
        assert 0 < found[kept].error <= found[kept].allowed == 0.125
        assert not found[few].diverges
        b[x] = np.array([0.3, 4.6, -2, np.nan], np.float32)
        found = {one.tensor: one for one in gf.bisect(a, b).entries}
        assert found[kept].diverges
        assert found[few].diverges


def test_mistakes(net):
    g, *_ = net
    with gf.Graph() as other:
        gf.random.uniform((3,))
    with gf.Session(g) as a, gf.Session(other) as b, gf.Session(other, seed=1) as c:
        with pytest.raises(ArgumentError, match="different graphs"):
            gf.bisect(a, b)
        with pytest.raises(ArgumentError, match="by the seeds 0 and 1"):
            gf.bisect(b, c)


def test_to_numpy():
    x = np.arange(3.0)
    found = gf.to_numpy({"a": [x, None], "b": (np.float32(1), 2.0)})
    assert found["a"][0] is x
    assert found["a"][1] is None
    assert found["b"] == (np.float32(1), 2.0)
    assert isinstance(found["b"], tuple)

    on_device = types.SimpleNamespace(__cuda_array_interface__={}, get=lambda: x)
    assert gf.to_numpy(on_device) is x
    with gf.Graph():
        t = gf.placeholder((2,), name="t")
    with pytest.raises(ArgumentError, match="a tensor has no value"):
        gf.to_numpy(t)
    with pytest.raises(ArgumentError, match=r"no result of a run(?s:.*)fix  tensor\.numpy\(\)"):
        gf.to_numpy(gf.asarray([1.0]))  # has a value
    with pytest.raises(ArgumentError, match="can't be made a NumPy array"):
        gf.to_numpy(object())


def test_what_rounding_leaves_over_is_not_compared(rng):
    with gf.Graph() as g:
        q = gf.placeholder((2, 3, 4), name="q")
        y = gf.scaled_dot_product_attention(q, q, q, causal=True)
    with gf.Session(g) as a, gf.Session(g, debug=True) as b:
        found = gf.bisect(a, b, {q: rng.normal(size=(2, 3, 4)).astype(np.float32)}, [y])
    (node,) = [node for node in g.nodes if node.op.name == "attention"]
    compared = [one.tensor for one in found.entries if one.tensor.node is node]
    assert [id(t) for t in compared] == [id(t) for t in node.outputs[:2]]
