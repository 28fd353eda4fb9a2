"""`Variable` and `Update`: initial values, names, what fits."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, DTypeError, GraphError, ShapeError


def test_initial_values(rng: np.random.Generator):
    a = rng.normal(size=(2, 3))
    with gf.Graph() as g:
        of_array = gf.Variable(a, name="array")
        of_list = gf.Variable([[1, 2]], name="list")
        of_float = gf.Variable(0.5, name="float")
        of_int = gf.Variable(7, name="int")
        of_bool = gf.Variable(True, name="bool")
        of_tensor = gf.Variable(gf.zeros((2,)) + 3, name="tensor")
        of_call = gf.Variable(lambda shape, dtype: gf.ones(shape, dtype=dtype), shape=(2,))
        converted = gf.Variable([1, 2], dtype="float64", name="converted")
    types = [str(v.type) for v in g.variables]
    assert types == [
        *("float32[2, 3]", "int64[1, 2]", "float32[]", "int64[]", "bool[]"),
        *("float32[2]", "float32[2]", "float64[2]"),
    ]
    with gf.Session(g) as session:
        np.testing.assert_array_equal(session[of_array], a.astype(np.float32))
        np.testing.assert_array_equal(session[of_list], [[1, 2]])
        assert session[of_float] == 0.5
        assert session[of_int] == 7
        assert session[of_bool]
        np.testing.assert_array_equal(session[of_tensor], [3, 3])
        np.testing.assert_array_equal(session[of_call], [1, 1])
        np.testing.assert_array_equal(session[converted], [1, 2])


def test_arrays_of_numpy_s_default_dtype_get_the_default_dtype():
    with gf.Graph():
        assert gf.Variable(np.zeros(3)).dtype is gf.float32
        assert gf.Variable(np.zeros(3) + 1j).dtype is gf.complex64
        assert gf.Variable(np.float64(2)).dtype is gf.float32
        assert gf.Variable(np.zeros(3, np.float16)).dtype is gf.float16
        assert gf.Variable(np.zeros(3), dtype="float64").dtype is gf.float64
        assert gf.Variable(gf.asarray(np.zeros(3))).dtype is gf.float64  # as it was described
        inf = gf.Variable([np.inf, np.nan], name="inf")
        assert np.isinf(inf.initial[0])
        with pytest.raises(gf.DTypeError, match="float64 array is beyond float32") as caught:
            gf.Variable(np.array([1e300]))
        assert caught.value.fix == "pass dtype=gf.float64"
        assert caught.value.at.file == __file__
        with gf.default_dtype("float64"):
            assert gf.Variable(np.zeros(3)).dtype is gf.float64
            assert gf.Variable(np.zeros(3) + 1j).dtype is gf.complex128


def test_initial_values_are_copied():
    a = np.zeros(3)
    with gf.Graph() as g:
        w = gf.Variable(a, name="w")
    a[:] = 5
    with gf.Session(g) as session:
        np.testing.assert_array_equal(session[w], np.zeros(3))
    assert not w.initial.flags.writeable


def test_no_initial_value():
    with gf.Graph() as g:
        with pytest.raises(ArgumentError, match="None is no initial value") as caught:
            gf.Variable(None, name="w")
        assert "a shape, for contents that are loaded or assigned" in caught.value.fix
        w = gf.Variable(None, name="w", shape=(2,))
    assert g.variables == [w]
    with gf.Session(g) as session:
        session[w] = [1.0, 2.0]
        np.testing.assert_array_equal(session.run(w), [1, 2])


def test_initialiser_gets_shape_and_dtype():
    asked = []

    def initial(shape, dtype):
        asked.append((shape, dtype))
        return np.ones(shape)

    with gf.Graph() as g:
        w = gf.Variable(initial, shape=[2, 3], dtype=gf.float64, name="w")
    assert asked == []  # called when a session starts
    with gf.Session(g) as session:
        np.testing.assert_array_equal(session[w], np.ones((2, 3)))
    assert asked == [((2, 3), gf.float64)]


def test_names():
    with gf.Graph():
        assert gf.Variable(0.0, name="a").name == "a"
        assert gf.Variable(0.0).name == "variable"
        assert gf.Variable(0.0).name == "variable_1"
        with gf.name_scope("fc"):
            assert gf.Variable(0.0, name="a").name == "fc.a"
            assert gf.Variable(0.0).name == "fc.variable"
        with pytest.raises(GraphError, match='a variable named "a" exists already') as caught:
            gf.Variable([1.0], name="a")
    assert 'first  "a"  float32[]  variable' in str(caught.value)
    assert "fix  give each its own name, or use gf.name_scope" in str(caught.value)


def test_renamed():
    with gf.Graph() as g:
        w = gf.Variable(0.0)
    w.rename(lambda: "mlp.fc1.weight")
    assert w.name == "mlp.fc1.weight"
    assert g.find("mlp.fc1.weight") is w
    assert repr(w) == '<Variable "mlp.fc1.weight" float32[]>'


def test_trainable():
    with gf.Graph():
        assert gf.Variable(0.0, name="a").trainable
        b = gf.Variable(0.0, name="b", trainable=False)
    assert not b.trainable
    assert repr(b) == '<Variable "b" float32[], trainable=False>'


def test_variables_are_tensors():
    with gf.Graph():
        w = gf.Variable([1.0, 2.0], name="w")
        y = w * 2
    assert isinstance(w, gf.Tensor)
    assert y.node.inputs[0] is w
    assert w.node.outputs[0] is w
    assert {w: 1}[w] == 1


@pytest.mark.parametrize(
    ("args", "error", "match"),
    [
        ({"initial": gf.zeros}, ArgumentError, "an initialiser needs to know the shape"),
        ({"initial": [1.0], "shape": (2,)}, ShapeError, r"shape=\(2,\) but the initial value is"),
        ({"initial": gf.zeros, "shape": ("n", 2)}, ShapeError, "is not known when the session"),
        ({"initial": gf.zeros, "shape": (None,)}, ShapeError, "use ints"),
        ({"initial": gf.zeros, "shape": (-1, 3)}, ShapeError, "-1"),
        ({"initial": gf.zeros, "shape": (2.5,)}, ShapeError, "2.5"),
        ({"initial": gf.zeros, "shape": 3}, ShapeError, "3"),
        ({"initial": "text"}, DTypeError, "its elements are not numbers"),
        ({"initial": [1.0], "dtype": "flaot32"}, DTypeError, "did you mean"),
        ({"initial": [[1], [2, 3]]}, ArgumentError, "can't make an array"),
        ({"initial": [1e3], "dtype": "int8"}, DTypeError, "1000.0 does not fit int8"),
        ({"initial": 1j, "dtype": "float32"}, DTypeError, "complex numbers don't fit float32"),
    ],
)
def test_bad_variables(args, error: type, match: str):
    with gf.Graph() as g, pytest.raises(error, match=match):
        gf.Variable(**args)
    assert g.variables == []
    assert g.nodes == []


@pytest.mark.parametrize("kind", ["placeholder", "variable"])
def test_initial_values_depend_on_constants_alone(kind: str):
    with gf.Graph():
        x = gf.placeholder((2,), name="x") if kind == "placeholder" else gf.Variable([1.0, 2.0])
        with pytest.raises(GraphError, match=f"the initial value depends on a {kind}") as caught:
            gf.Variable(x * 2)
    assert "use an array, a constant, or an initialiser" in str(caught.value)


def test_initial_values_have_a_fixed_size():
    with gf.Graph():
        x = gf.placeholder(("n",), name="x")
        with pytest.raises(GraphError, match=r"the size of its initial value .* is not fixed"):
            gf.Variable(gf.zeros(x.shape))


# Updates.


def test_update():
    with gf.Graph() as g:
        w = gf.Variable([1.0, 2.0], name="w")
        tensor, array, scalar = gf.update(w, w * 2), gf.update(w, np.ones(2, "float32")), None
        count = gf.Variable(3, name="count")
        scalar = gf.update(count, 5)
    assert g.updates == [tensor, array, scalar]
    assert tensor.pairs[0][0] is w
    assert repr(tensor).startswith('<Update of "w" at test_variable.py:')
    with gf.Session(g) as session:
        session.run(tensor)
        np.testing.assert_array_equal(session[w], [2, 4])
        session.run([array, scalar])
        np.testing.assert_array_equal(session[w], [1, 1])
        assert session[count] == 5


def test_reads_see_the_start_of_the_run():
    with gf.Graph() as g:
        a, b = gf.Variable(1.0, name="a"), gf.Variable(2.0, name="b")
        swap = gf.group(gf.update(a, b), gf.update(b, a))
        total = a + 10 * b
    assert repr(swap).startswith('<Update of "a", "b" at test_variable.py:')
    with gf.Session(g) as session:
        assert session.run([swap, total])[1] == 21
        assert (session[a], session[b]) == (2, 1)


def test_bad_updates():
    with gf.Graph():
        w = gf.Variable([1.0, 2.0], name="w")
        x = gf.placeholder((2,), name="x")
        with pytest.raises(
            ShapeError, match=r"the value is float32\[3\], the variable \"w\" float"
        ):
            gf.update(w, gf.zeros(3))
        with pytest.raises(DTypeError, match="the value is float64") as caught:
            gf.update(w, np.zeros(2))
        assert "gf.astype(value, gf.float32)" in str(caught.value)
        with pytest.raises(DTypeError, match="complex numbers don't fit float32"):
            gf.update(gf.Variable(1.0), 1j)
        with pytest.raises(ArgumentError, match="only variables can be updated") as caught:
            gf.update(x, w)
        assert "make it with gf.Variable" in str(caught.value)
    with pytest.raises(GraphError, match="an Update belongs to a graph"):
        gf.update(w, w)
    with gf.Graph(), pytest.raises(GraphError, match="belongs to another graph"):
        gf.update(w, [1.0, 2.0])


def test_group_refuses_updates_that_contradict_each_other():
    with gf.Graph():
        w = gf.Variable([1.0], name="w")
        more, twice = gf.update(w, w + 1), gf.update(w, w * 2)
        assert len(gf.group(more, more).pairs) == 1
        with pytest.raises(gf.GraphError, match='two updates give "w" different values') as caught:
            gf.group(more, twice)
    assert "the first is made at" in caught.value.why


def test_group_joins_updates_of_its_graph():
    with gf.Graph() as other:
        foreign = gf.update(gf.Variable(0.0, name="w"), 1.0)
    with gf.Graph() as g:
        gf.update(gf.Variable(0.0, name="w"), 1.0)
        with pytest.raises(GraphError, match="another graph"):
            gf.group(foreign)
        with pytest.raises(ArgumentError, match="is no Update"):
            gf.group(foreign.pairs[0])  # type: ignore[arg-type]  # the mistake
    assert len(other.updates) == len(g.updates) == 1


@pytest.mark.parametrize("name", ["session/step", "session/seed", "session/w"])
def test_names_of_a_sessions_own_entries_are_refused(name: str):
    with gf.Graph(), pytest.raises(ArgumentError, match=f'"{name}" begins with "session/"'):
        gf.Variable(1.0, name=name)
    with gf.Graph(), gf.name_scope("net"):
        assert gf.Variable(1.0, name=name).name == f"net.{name}"
