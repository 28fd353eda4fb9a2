"""`Tensor`: what it says of itself, values of constants, operators, NumPy's protocols."""

import operator

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ConcreteValueError, DTypeError
from graphfw.ir.dim import symbol


@pytest.fixture
def fed():
    """A tensor that has no value."""
    with gf.Graph():
        yield gf.placeholder(("batch", 3), name="x")


def test_what_it_is(fed: gf.Tensor):
    assert fed.shape == (symbol("batch"), 3)
    assert fed.dtype is gf.float32
    assert fed.ndim == 2
    assert fed.size == 3 * symbol("batch")
    assert fed.name == "x"
    assert (fed * 2).name == ""
    assert fed.graph is gf.current_graph()
    assert fed.device == "graph"
    assert fed.to_device("graph") is fed
    with pytest.raises(ConcreteValueError, match='executor="cupy"'):
        fed.to_device("cuda")


def test_identity_is_the_object(fed: gf.Tensor):
    other = fed + 0
    table = {fed: 1, other: 2}
    assert table[fed] == 1
    assert (fed == other).dtype is gf.bool
    assert hash(fed) == hash(fed)


# Values.


def test_values_of_constants(rng: np.random.Generator):
    a = rng.normal(size=(3, 1)).astype("float32")
    t = gf.tanh(gf.asarray(a)) - 1
    value = t.numpy()
    np.testing.assert_allclose(value, np.tanh(a) - 1, rtol=1e-6)
    assert value.dtype == np.float32
    assert not value.flags.writeable
    assert t.numpy() is value
    np.testing.assert_array_equal(np.asarray(t), value)
    copy = np.array(t)
    copy[0] = 7
    np.testing.assert_array_equal(t.numpy(), value)
    assert np.asarray(t, np.float64).dtype == np.float64
    np.testing.assert_array_equal(np.from_dlpack(t), value)
    np.testing.assert_array_equal(np.from_dlpack(t, copy=True), value)


def test_dlpack_without_a_copy():
    """The memory is shared with those alone who know that they must not write to it."""
    t = gf.asarray([1.0, 2.0])
    shared = np.from_dlpack(t, copy=False)
    assert np.shares_memory(shared, t.numpy())
    assert not shared.flags.writeable
    assert not np.shares_memory(np.from_dlpack(t), t.numpy())
    with pytest.raises(BufferError, match="readonly"):
        t.__dlpack__(copy=False)


def test_scalars():
    t = gf.asarray(2.5)
    assert float(t) == t.item() == 2.5
    assert int(t) == 2
    assert bool(t) is True
    assert complex(t) == 2.5 + 0j
    assert f"{t:.2f}" == "2.50"
    assert float(gf.asarray([[3.0]])) == 3
    assert [10, 20][gf.asarray(1)] == 20  # type: ignore[call-overload]  # concrete
    assert list(range(gf.asarray(3))) == [0, 1, 2]  # type: ignore[call-overload]  # concrete
    with pytest.raises(DTypeError, match="only integer tensors become Python ints"):
        operator.index(t)
    with pytest.raises(ConcreteValueError, match=r"float\(\) wants one element: .*float32\[2\]"):
        float(gf.asarray([1.0, 2.0]))
    with pytest.raises(ConcreteValueError, match=r"gf\.any, gf\.all"):
        bool(gf.asarray([True, False]))


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda t: t.numpy(), ".numpy()"),
        (np.asarray, "np.asarray()"),
        (lambda t: t.item(), ".item()"),
        (bool, "bool()"),
        (int, "int()"),
        (float, "float()"),
        (complex, "complex()"),
        (np.from_dlpack, "__dlpack__()"),
        (lambda t: f"{t:.1f}", "format()"),
    ],
)
def test_no_values_without_a_session(fed: gf.Tensor, call, what: str):
    with pytest.raises(ConcreteValueError) as caught:
        call(gf.sum(fed))
    text = str(caught.value)
    assert text.startswith(f"{what} wants a value, and this tensor has none until a session runs")
    assert 'from  "x"  float32[batch, 3]  placeholder' in text
    assert "session.run(tensor, feeds)" in text
    assert ("gf.where(condition, a, b)" in text) == (what == "bool()")
    assert isinstance(caught.value, TypeError)


def test_variables_have_no_value_either():
    with gf.Graph():
        w = gf.Variable(1.0, name="w")
        with pytest.raises(ConcreteValueError, match="wants a value"):
            float(w + 1)


def test_constants_in_a_graph_have_values():
    with gf.Graph():
        assert float(gf.constant(2.0) * 3) == 6


def test_random_tensors_have_values_outside_graphs_only():
    assert gf.random.uniform((3,)).numpy().shape == (3,)
    with gf.Graph(), pytest.raises(ConcreteValueError, match="wants a value"):
        gf.random.uniform((3,)).numpy()


def test_symbolic_sizes_have_no_value(fed: gf.Tensor):
    with pytest.raises(ConcreteValueError):
        gf.zeros(fed.shape).numpy()
    with pytest.raises(ConcreteValueError):
        int(gf.dim_size(fed, 0))
    assert int(gf.dim_size(fed, 1)) == 3


def test_long_chains_are_evaluated_without_recursion():
    t = gf.asarray(0.0)
    for _ in range(20_000):
        t = t + 1
    assert float(t) == 20_000


# Sequences.


def test_len_and_iteration(rng: np.random.Generator):
    a = rng.normal(size=(3, 2))
    t = gf.asarray(a)
    assert len(t) == 3
    for row, expected in zip(t, a, strict=True):
        np.testing.assert_array_equal(row.numpy(), expected)
    first, *rest = t
    assert first.shape == (2,)
    assert len(rest) == 2
    for call, what in ((len, "len()"), (iter, "iteration")):
        with pytest.raises(ConcreteValueError) as caught:
            call(gf.asarray(1.0))
        assert caught.value.summary == f"{what} of a 0-d tensor"


def test_len_of_a_symbolic_dim(fed: gf.Tensor):
    for call, what, instead in (
        (len, "len()", "gf.dim_size(x, 0)"),
        (iter, "iteration", "gf.scan and gf.map go through its elements"),
    ):
        with pytest.raises(ConcreteValueError) as caught:
            call(fed)
        text = str(caught.value)
        assert text.startswith(f"{what} of a tensor whose length `batch` is not known until")
        assert instead in text


def test_contains_is_refused():
    with pytest.raises(ConcreteValueError, match="`in` looks at values") as caught:
        1.0 in gf.asarray([1.0])  # noqa: B015  asking is the mistake
    assert "gf.any(x == value)" in str(caught.value)


def test_setitem_is_refused():
    with pytest.raises(ConcreteValueError, match="tensors don't change") as caught:
        gf.asarray([1.0])[0] = 2.0
    assert isinstance(caught.value, TypeError)
    assert "x = x.at[i].set(v)" in caught.value.fix
    assert "gf.update" in caught.value.fix


def test_numpys_dot_is_matmul(rng: np.random.Generator):
    a, b = rng.normal(size=(3, 2)), rng.normal(size=(2, 5))
    for x, y in ((a, b), (a, b[:, 0]), (a[0], b), (a[0], b[:, 0])):
        np.testing.assert_allclose(np.dot(gf.asarray(x), y).numpy(), np.dot(x, y))


@pytest.mark.parametrize(
    ("written", "fix"),
    [
        ("x.backward()", "write gf.grad(loss, xs), or optimizer.minimize(loss)"),
        ("x.view(2, 3)", "x.reshape(2, 3)"),
        ("x.tolist()", "x.numpy().tolist()"),
        ("(x + 1).float()", "(x + 1).astype(gf.float32)"),
        ("x.real", "gf.real(x)"),
        ("x.imag", "gf.imag(x)"),
        ("x.transpose(0, 1)", "gf.swapaxes(x, 0, 1)"),
        ("x.transpose((1, 0))", "gf.permute_dims(x, (1, 0))"),
        ("x.assign(y)", "gf.update(x, y)"),
        ("x.tanh()", "gf.tanh(x)"),
        ("x.std(dim=0)", "gf.std(x, axis=0, correction=1)"),
        ("x.unsqueeze(1)", "gf.expand_dims(x, 1)"),
        (
            "x.mul_(y)",
            "gf.multiply(x, y); tensors don't change: use the result; gf.update changes variables",
        ),
        ("x.masked_fill(x > y, 0)", "gf.where(x > y, 0, x)"),
        ("x.reshap(2)", 'did you mean "reshape"?'),
    ],
)
def test_other_libraries_names_get_a_hint(written, fix, tmp_path):
    (tmp_path / "user.py").write_text(written)  # for the error to read
    code = compile(written, str(tmp_path / "user.py"), "eval")
    with pytest.raises(gf.UnknownNameError) as caught:
        eval(code, {"gf": gf, "x": gf.asarray([1.0]), "y": gf.asarray([2.0])})
    assert isinstance(caught.value, AttributeError)
    assert caught.value.summary.startswith("a Tensor has no attribute")
    assert caught.value.fix == fix


def test_an_unknown_attribute_has_no_hint():
    with pytest.raises(
        AttributeError, match=r"a Tensor has no attribute 'bogus'\n  at [^\n]*$"
    ) as caught:
        gf.asarray([1.0]).bogus  # noqa: B018  asking is the mistake
    assert caught.value.name == "bogus"


def test_a_concrete_value_that_fails_says_where():
    x = gf.take(gf.asarray([1, 2]), gf.asarray([5]))
    with pytest.raises(gf.ExecutionError, match="IndexError: index 5 is out of range") as caught:
        str(x)
    assert caught.value.at == x.node.loc
    assert [o.type for o in caught.value.operands] == ["int64[2] in [1, 2]", "int64[1] in [5, 5]"]


# Texts.


def test_texts(fed: gf.Tensor):
    y = fed * 2
    assert repr(fed).startswith('<Tensor "x" float32[batch, 3] from placeholder at test_tensor.py:')
    assert repr(y).startswith("<Tensor float32[batch, 3] from multiply at test_tensor.py:")
    assert str(y) == f"{y}" == repr(y)


def test_texts_of_constants():
    t = gf.asarray([1, 2]) + 1
    assert repr(t) == "Tensor([2, 3], dtype=int64)"
    assert str(t) == "[2 3]"
    assert repr(gf.asarray(1.5)) == "Tensor(1.5, dtype=float32)"
    with gf.Graph():
        inside = gf.constant([1.0])
    assert repr(inside).startswith("<Tensor float32[1] from constant at")
    assert str(inside) == "[1.]"


# Operators.

BINARY = [
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv),
    *(operator.mod, operator.pow),
]
BITS = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]
ORDER = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


@pytest.mark.parametrize("op", [*BINARY, *BITS, *ORDER])
@pytest.mark.parametrize("other", ["tensor", "scalar", "array", "list"])
def test_operators_are_numpys(op, other: str, rng: np.random.Generator):
    kind = np.int64 if op in BITS else np.float64
    a, b = (rng.integers(1, 5, size=4).astype(kind) for _ in range(2))
    second = {"tensor": gf.asarray(b), "scalar": b[0].item(), "array": b, "list": b.tolist()}[other]
    plain = b[0].item() if other == "scalar" else b
    for mine, expected in (
        (op(gf.asarray(a), second), op(a, plain)),
        (op(second, gf.asarray(a)), op(plain, a)),
    ):
        assert isinstance(mine, gf.Tensor)
        np.testing.assert_allclose(mine.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("op", [operator.neg, operator.pos, operator.abs, operator.invert])
def test_unary_operators(op, rng: np.random.Generator):
    a = rng.integers(-5, 5, size=4)
    np.testing.assert_array_equal(op(gf.asarray(a)).numpy(), op(a))


def test_matmul_operator(rng: np.random.Generator):
    a, b = rng.normal(size=(2, 3)), rng.normal(size=(3, 4))
    for result in (gf.asarray(a) @ gf.asarray(b), gf.asarray(a) @ b, a @ gf.asarray(b)):
        np.testing.assert_allclose(result.numpy(), a @ b, rtol=1e-6)


@pytest.mark.parametrize("op", [*BINARY, operator.lt])
@pytest.mark.parametrize("other", [None, "text"])
def test_operators_refuse_what_is_no_number(op, other: object):
    with pytest.raises(TypeError, match=r"not supported between|unsupported operand|only integer"):
        op(gf.asarray([1.0]), other)


def test_in_place_operators_make_new_tensors():
    t = u = gf.asarray([1.0])
    u += 1
    assert u is not t
    assert t.numpy() == 1


def test_methods(rng: np.random.Generator):
    a = rng.normal(size=(2, 3))
    t = gf.asarray(a)
    np.testing.assert_array_equal(t.T.numpy(), a.T)
    np.testing.assert_array_equal(t.mT.numpy(), a.T)
    np.testing.assert_array_equal(t.reshape(3, 2).numpy(), a.reshape(3, 2))
    np.testing.assert_array_equal(t.reshape((6,)).numpy(), a.reshape(6))
    np.testing.assert_array_equal(t.reshape(-1).numpy(), a.reshape(-1))
    np.testing.assert_array_equal(t.astype(gf.float32).numpy(), a.astype("float32"))
    np.testing.assert_array_equal(t[1, ::2].numpy(), a[1, ::2])
    for name in ("sum", "mean", "max", "min"):
        expected = getattr(a, name)(axis=1, keepdims=True)
        mine = getattr(t, name)(axis=1, keepdims=True)
        np.testing.assert_allclose(mine.numpy(), expected, rtol=1e-12)
        np.testing.assert_allclose(getattr(t, name)().numpy(), getattr(a, name)(), rtol=1e-12)


@pytest.mark.parametrize("dtype", [gf.float16, gf.int8])
def test_new_tensors_have_the_dtype_of_the_old(dtype: gf.DType):
    with gf.Graph():
        x = gf.placeholder(("n", 3), dtype, name="x")
        for new in (x.new_zeros, x.new_ones, x.new_empty, lambda *s: x.new_full(s, 2)):
            assert new(*x.shape, 2).type == gf.TensorType(dtype, (*x.shape, 2))
        for new in (x.new_zeros, x.new_ones, x.new_empty):
            assert new((4,), dtype=gf.float64).type == gf.TensorType(gf.float64, (4,))
            assert new().shape == ()
    x = gf.asarray(1, dtype=dtype)
    values = [x.new_zeros(2), x.new_ones([2]), x.new_empty((2,)), x.new_full(2, 5)]
    assert [t.numpy().tolist() for t in values] == [[0, 0], [1, 1], [0, 0], [5, 5]]
    assert x.new_full((), 1.5, dtype="float32").item() == 1.5


# NumPy and the Array API.


def test_numpys_functions_make_nodes(fed: gf.Tensor):
    for result, name in (
        (np.add(fed, 1), "add"),
        (np.ones(3, "float32") * fed, "multiply"),
        (np.float32(2) * fed, "multiply"),
        (np.tanh(fed), "tanh"),
        (np.arctan2(fed, fed), "atan2"),
        (np.sum(fed, axis=1), "sum"),
        (np.where(fed > 0, fed, 0), "where"),
        (np.concatenate([fed, fed], axis=1), "concat"),
    ):
        assert isinstance(result, gf.Tensor), name
        assert result.node.op.name == name


def test_errors_show_arrays_too(fed: gf.Tensor):
    with pytest.raises(gf.ShapeError) as caught:
        np.ones((2, 3), "float32") + fed
    assert "x1[-2] = 2, x2[-2] = batch" in caught.value.summary
    assert [o.cells()[:4] for o in caught.value.operands] == [
        ("x1", "", "float32[2, 3]", "ndarray"),
        ("x2", '"x"', "float32[batch, 3]", "placeholder"),
    ]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda t: np.spacing(t), "np.spacing of a graphfw tensor: graphfw has no such function"),
        (lambda t: np.add.reduce(t), "np.add.reduce of a graphfw tensor"),
        (
            lambda t: np.add(t, t, out=np.zeros(3)),
            "np.add .* not take out=\n(?s:.*)use gf.add",
        ),
        (lambda t: np.sum(t, where=t > 0), "np.sum .* does not take where=\n(?s:.*)use gf.sum"),
        (
            lambda t: np.linalg.svd(t, hermitian=True),
            "take hermitian=\n(?s:.*)use gf.linalg.svd$",
        ),
        (lambda t: np.frexp(t), "np.frexp .* no such function"),
        (lambda t: np.dot(t, gf.ones((2, 3, 4))), r"np.dot .* for 1 and 2 dims, .*gf.tensordot"),
        (
            lambda t: np.unique(t, return_counts=True),
            "take return_counts=\n(?s:.*)gf.unique_val",
        ),
        (lambda t: np.logaddexp2(t, t), "np.logaddexp2 .*\n(?s:.*)fix  gf.logaddexp"),
    ],
)
def test_what_numpy_cant_do_with_a_tensor(call, text: str):
    with pytest.raises(TypeError, match=text):
        call(gf.asarray([1.0, 2.0, 3.0]))


def test_array_namespace():
    t = gf.asarray([1.0])
    assert t.__array_namespace__() is gf
    assert t.__array_namespace__(api_version="2024.12") is gf
    with pytest.raises(gf.GraphfwError, match="1999"):
        t.__array_namespace__(api_version="1999.01")
