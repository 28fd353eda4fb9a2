"""Initial values: their distributions, options, and mistakes."""

import math

import numpy as np
import pytest

import graphfw as gf
from graphfw.nn import init


def drawn(initial, shape=(300, 200), dtype=None):
    with gf.Graph() as g:
        w = gf.Variable(initial, shape=shape, dtype=dtype, name="w")
    with gf.Session(g) as session:
        return session[w]


@pytest.mark.parametrize(
    ("initial", "value"),
    [(init.zeros, 0), (init.ones, 1), (init.constant(value=2.5), 2.5), (init.constant, 0)],
)
def test_constants(initial, value):
    array = drawn(initial, (3, 0, 2) if value == 1 else (3, 2))
    assert (array == value).all()
    assert array.dtype == np.float32


def test_identity():
    np.testing.assert_array_equal(drawn(init.identity(gain=2), (2, 3)), [[2, 0, 0], [0, 2, 0]])
    with pytest.raises(gf.ShapeError, match=r"identity: the shape \[3\] is no matrix"):
        init.identity((3,))


def test_a_text_of_earlier_versions_names_the_identity():
    with gf.Graph() as g:
        gf.Variable(init.identity(gain=2.0), name="w", shape=(2, 3))
    text = str(g)
    assert "IdentityMatrix(gain=2.0)" in text
    g = gf.parse(text.replace("IdentityMatrix", "Identity"))
    with gf.Session(g) as session:
        np.testing.assert_array_equal(session.run("w"), [[2, 0, 0], [0, 2, 0]])


@pytest.mark.parametrize("name", ["normal", "uniform"])
def test_a_text_of_earlier_versions_names_other_initialisers(name):
    with gf.Graph() as g:
        gf.Variable(getattr(init, name), name="w", shape=(2, 3))
    earlier = str(g).replace(f"{name.capitalize()}Initializer", name.capitalize())
    assert earlier != str(g)
    assert gf.parse(earlier).variables[0].initial == getattr(init, name)


@pytest.mark.parametrize(
    ("initial", "std", "bound"),
    [
        (init.uniform(low=-2, high=2), 2 / math.sqrt(3), 2),
        (init.normal(std=0.02), 0.02, 0.12),
        (init.xavier_normal, math.sqrt(2 / 500), 0.4),
        (init.xavier_uniform, math.sqrt(2 / 500), math.sqrt(6 / 500)),
        (init.he_normal, math.sqrt(2 / 300), 0.5),
        (init.he_normal(mode="fan_out"), math.sqrt(2 / 200), 0.6),
        (init.he_uniform, math.sqrt(2 / 300), math.sqrt(6 / 300)),
        (init.lecun_normal, math.sqrt(1 / 300), 0.4),
        (init.lecun_normal(in_axis=1, out_axis=0), math.sqrt(1 / 200), 0.4),
        (init.lecun_uniform, math.sqrt(1 / 300), math.sqrt(3 / 300)),
        (init.orthogonal, math.sqrt(1 / 300), 0.4),
        (init.truncated_normal(std=0.5, low=-1, high=1), 0.5 * 0.5396, 0.5),
    ],
)
def test_distributions(initial, std, bound):
    array = drawn(initial)
    assert abs(array.mean()) < 0.02 * std
    assert abs(array.std() / std - 1) < 0.02
    assert np.abs(array).max() <= bound


@pytest.mark.parametrize("shape", [(5, 5), (7, 3), (3, 7), (2, 3, 4), (4, 2, 1, 2), (6, 1), (1, 6)])
@pytest.mark.parametrize("out_axis", [-1, 0])
def test_orthogonal(shape, out_axis):
    array = drawn(init.orthogonal(gain=2, out_axis=out_axis), shape, gf.float64)
    matrix = np.moveaxis(array, out_axis, -1).reshape(-1, shape[out_axis])
    rows, columns = matrix.shape
    product = matrix.T @ matrix if rows >= columns else matrix @ matrix.T
    np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-12)


def test_orthogonal_matrices_are_uniform():
    """The mean of each element, and of the determinant, is 0: no sign is preferred."""
    with gf.Graph() as g:
        names = [gf.Variable(init.orthogonal, shape=(2, 2), name=f"w{i}") for i in range(400)]
    with gf.Session(g) as session:
        arrays = np.stack([session[v] for v in names])
    assert np.abs(arrays.mean(0)).max() < 0.15
    assert np.abs(np.linalg.det(arrays).mean()) < 0.2
    assert drawn(init.orthogonal, (0, 4)).shape == (0, 4)
    assert drawn(init.orthogonal, (3, 0, 4)).shape == (3, 0, 4)


@pytest.mark.parametrize("dtype", [gf.float16, gf.bfloat16])
def test_orthogonal_of_low_precision(dtype):
    array = drawn(init.orthogonal, (8, 4), dtype)
    assert array.dtype == dtype
    values = array.astype(np.float64)
    np.testing.assert_allclose(values.T @ values, np.eye(4), atol=0.02)


@pytest.mark.parametrize("initial", [init.orthogonal(gain=2.0, out_axis=0), init.dirac(groups=2)])
def test_a_text_has_the_options(initial):
    with gf.Graph() as g:
        gf.Variable(initial, name="w", shape=(4, 2, 3))
    values = []
    for graph in (g, gf.parse(str(g))):
        with gf.Session(graph, seed=3) as session:
            values.append(session.run("w"))
    np.testing.assert_array_equal(*values)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("shape", [(4, 4, 3), (6, 2, 3, 5), (2, 4, 1, 2, 3), (4, 3, 0)])
def test_dirac(shape, groups):
    torch = pytest.importorskip("torch")
    expected = torch.nn.init.dirac_(torch.empty(*shape), groups) if 0 not in shape else None
    got = drawn(init.dirac(groups=groups), shape)
    np.testing.assert_array_equal(got, np.empty(shape) if expected is None else expected.numpy())


def test_a_dirac_kernel_passes_images_on(rng):
    x = rng.normal(size=(2, 4, 5, 6))
    kernel = init.dirac(groups=2)((4, 2, 3, 3), gf.float64)
    np.testing.assert_array_equal(gf.conv(x, kernel, padding="same", groups=2).numpy(), x)


def test_fans_of_kernels():
    assert init.fans((64, 32, 3, 5), in_axis=1, out_axis=0) == (480, 960)
    assert init.fans((3, 5, 32, 64)) == (480, 960)
    with pytest.raises(gf.ShapeError, match=r"a weight of shape \[5\] has no fans"):
        init.he_normal((5,))
    with pytest.raises(gf.AxisError, match="are not two axes of"):
        init.fans((3, 4), in_axis=1, out_axis=-1)


def test_empty_and_low_precision():
    assert drawn(init.he_normal, (0, 4)).shape == (0, 4)
    assert drawn(init.he_normal, (8, 4), gf.bfloat16).dtype == gf.bfloat16
    assert drawn(init.xavier_uniform, (8, 4), gf.float64).dtype == np.float64


def test_options_make_another():
    assert init.he_normal() == init.he_normal
    assert init.he_normal(mode="fan_out").mode == "fan_out"
    assert init.he_normal.mode == "fan_in"
    assert repr(init.normal(std=0.02)) == "NormalInitializer(mean=0.0, std=0.02)"


@pytest.mark.parametrize(
    ("make", "text", "fix"),
    [
        (lambda: init.normal(sdt=1), "normal: got an unexpected keyword argument 'sdt'",
         'did you mean "std"?'),
        (lambda: init.zeros(foo=1), "zeros: got an unexpected keyword argument 'foo'",
         "its arguments are: shape, dtype, value"),
        (lambda: init.constant(0.5), "Constant: 0.5 is no shape", "name the option: value=0.5"),
        (lambda: init.normal(std=-1), "std=-1 must not be negative", "use std="),
        (lambda: init.uniform(low=1), "low=1 must be below high=1.0", "name the options"),
        (lambda: init.he_normal(mode="fan_on"), 'mode=\'fan_on\' is none of "fan_in"',
         'use mode="fan_'),
        (lambda: init.he_normal(gain=0), "gain=0 must be positive", "use gain=1.0"),
        (lambda: init.orthogonal((3,)), "orthogonal: the shape [3] has not 2", "use init."),
        (lambda: init.orthogonal(out_axis=2)((3, 4)), "out_axis=2 is no axis of [3, 4]", "use "),
        (lambda: init.orthogonal(gain="2"), "gain='2' is no number", "use gain=1.0"),
        (lambda: init.dirac((3, 4)), "dirac: the shape [3, 4] is no kernel's", "use init.identity"),
        (lambda: init.dirac(groups=0), "dirac: groups=0 must be 1 or more", "use groups=1"),
        (lambda: init.dirac(groups=2)((3, 4, 5)), "3 output channels are no multiple of groups=2",
         "use groups=1"),
        (lambda: init.normal((3,), std=1), "options come in a call of their own", "init(…)(shape)"),
    ],
)  # fmt: skip
def test_mistakes(make, text, fix):
    with pytest.raises((gf.ArgumentError, gf.ShapeError, gf.AxisError)) as caught:
        make()
    assert text in caught.value.summary
    assert caught.value.fix.startswith(fix)
    assert caught.value.at.file == __file__


OPTIONS = [
    init.uniform(low=-0.5, high=0.25),
    init.normal(mean=1, std=2.0),
    init.normal(mean=1.0, std=2.0),
    init.truncated_normal(low=-1.0),
    init.he_uniform,
    init.he_normal(mode="fan_out"),
    init.identity(gain=3.0),
    init.orthogonal,
    init.constant(value=0.0),
    init.constant(value=-0.0),
    init.constant(value=True),
    init.constant(value=1),
]


@pytest.mark.parametrize("dtype", [gf.float16, gf.bfloat16, gf.float32, gf.float64])
def test_variables_of_one_initialiser_have_what_each_would_have_alone(dtype):
    """Variables described once for many are as if described for each."""

    def filled(wrapped):
        with gf.Graph() as g:
            for i, initial in enumerate(OPTIONS * 2):
                made = (lambda *args, initial=initial: initial(*args)) if wrapped else initial
                gf.Variable(made, f"layers.{i}.w", shape=(5, 3), dtype=dtype)
        with gf.Session(g, seed=7) as session:
            return [session[v] for v in g.variables]

    shared, alone = filled(False), filled(True)
    for one, other in zip(shared, alone, strict=True):
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()
    assert not np.array_equal(shared[0], shared[len(OPTIONS)])  # draws are those of the names
