"""`einsum`: values against NumPy, gradients, symbolic dims, order of work, errors."""

import itertools
import re

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, DTypeError, ShapeError
from graphfw.ir.walk import ancestors
from tests.support.gradcheck import check_gradients

SIZES = {"a": 2, "b": 3, "c": 4, "d": 5, "e": 1, "z": 0}

EQUATIONS = [
    "a->a",
    "ab->ba",
    "abc->",
    "abc->b",
    "ab",
    "ba",
    "abc->ca",
    "aa",
    "aa->a",
    "aba->ba",
    "aab->b",
    "aaa->a",
    "a,a",
    "a,b",
    "a,a->a",
    "a,b->ba",
    "ab,bc",
    "ab,bc->ca",
    "ab,cb->ac",
    "ab,ab->",
    "ab,ab->b",
    "dab,dbc->dac",
    "abd,dbc->acd",
    "abc,cd->abd",
    "abc,bc->a",
    "abc,db->acd",
    "ab,c->c",
    "aab,bc->ac",
    "ae,eb->ab",
    "az,zb->ab",
    "az,b->b",
    "z->",
    "ab,bc,cd->ad",
    "ab,bc,cd",
    "ab,bc,ca->",
    "abc,cd,bd,a->bd",
    "a,b,c,d->dbca",
    "aab,bb,bc->ca",
    " a b , b c -> a c ",
]


@pytest.mark.parametrize("equation", EQUATIONS)
def test_against_numpy(equation: str, rng: np.random.Generator) -> None:
    operands = equation.replace(" ", "").split("->")[0].split(",")
    xs = [rng.normal(size=[SIZES[c] for c in subscripts]) for subscripts in operands]
    y, expected = gf.einsum(equation, *xs), np.einsum(equation, *xs)
    assert y.shape == expected.shape
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("...ab,...bc->...ac", [(4, 5, 2, 3), (5, 3, 4)]),
        ("...ab,...bc->...ac", [(4, 1, 2, 3), (5, 3, 4)]),
        ("...ab,...bc", [(1, 2, 3), (5, 3, 4)]),
        ("a...,a->...", [(3, 4, 5), (3,)]),
        ("...", [(2, 3)]),
        ("...a->a...", [(2, 3, 4)]),
        ("...a,...a->...", [(3,), (4, 3)]),
        ("a...b,b...c,...->ac...", [(2, 1, 3), (3, 5, 2), (1,)]),
        ("...,...", [(1, 3), (2, 1)]),
        ("...aa->...a", [(2, 3, 3)]),
    ],
)
def test_ellipsis(equation: str, shapes: list[tuple[int, ...]], rng: np.random.Generator) -> None:
    xs = [rng.normal(size=shape) for shape in shapes]
    y, expected = gf.einsum(equation, *xs), np.einsum(equation, *xs)
    assert y.shape == expected.shape
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("equation", ["ab,bc,cd->da", "aab,bc->ac", "...a,...a->...", "a,b->ab"])
def test_gradients(equation: str, rng: np.random.Generator) -> None:
    operands = equation.replace("...", "d").split("->")[0].split(",")
    leaves = [
        gf.asarray(rng.normal(size=[SIZES[c] for c in subscripts])) for subscripts in operands
    ]
    check_gradients(gf.einsum(equation, *leaves), leaves, rng)


def test_complex_and_integers(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(2, 3)) + 1j, rng.normal(size=(3, 2)) * 1j
    np.testing.assert_allclose(gf.einsum("ab,bc->ac", x, y).numpy(), x @ y)
    n = rng.integers(0, 5, size=(2, 3)).astype(np.int32)
    total = gf.einsum("ab->a", gf.asarray(n))
    assert total.dtype == gf.int32
    assert total.numpy().tolist() == n.sum(axis=1).tolist()


def test_half_floats_are_summed_in_float32() -> None:
    x = gf.asarray(np.full((1, 5000), 1.0, np.float16))
    for equation in ("ab,ab->", "ab,ab->a", "ab,cb->ac"):
        y = gf.einsum(equation, x, x)
        assert y.dtype == gf.float16
        assert float(gf.max(y)) == 5000


def test_symbolic_dims() -> None:
    with gf.Graph():
        x = gf.placeholder(("batch", "n", 3), name="x")
        y = gf.placeholder((3, "m"), name="y")
        assert str(gf.einsum("bnk,km->bmn", x, y).shape) == "(batch, m, n)"
        assert str(gf.einsum("bnk,km,bnk->bm", x, y, x).shape) == "(batch, m)"
        square = gf.placeholder(("n", "n"), name="square")
        assert gf.einsum("ii->i", square).shape == square.shape[:1]
        assert gf.einsum("...k,km->...m", x, y).shape == (*x.shape[:2], y.shape[1])


@pytest.mark.parametrize("dims", [(50, 50, 50, 50), (48, 71, 81, 64), (90, 3, 70, 200)], ids=str)
def test_good_order(dims: tuple[int, ...]) -> None:
    """A long chain is multiplied from the vector on, never matrix by matrix."""
    matrices = [gf.zeros(shape) for shape in itertools.pairwise(dims)]
    y = gf.einsum("ab,bc,cd,d->a", *matrices, gf.zeros(dims[-1:]))
    products = [node for node in ancestors([y]) if node.op.name == "matmul"]
    assert [node.outputs[0].size for node in products] == [*reversed(dims[:-1])]


def test_more_names_than_letters() -> None:
    x = gf.ones((1,) * 30)
    names = "".join(chr(ord("a") + i) for i in range(26)) + "ABCD"
    y = gf.einsum(f"{names},{names},{names[:3]}...->{names[:2]}...", x, x, x)
    assert y.shape == (1,) * 29
    assert y.item() == 1


def test_errors_in_the_equation() -> None:
    x = gf.zeros((2, 3))
    with pytest.raises(ArgumentError, match='"ij,jk" is for 2 operands, and 1 are given'):
        gf.einsum("ij,jk", x)
    with pytest.raises(ArgumentError, match="has '1', which is no letter"):
        gf.einsum("i1->i", x)
    with pytest.raises(ArgumentError, match=r"has '.', which is no letter"):
        gf.einsum("i.->i", x)
    with pytest.raises(ArgumentError, match=r'"k", which no operand has(.*\n)+.*names are: i, j'):
        gf.einsum("ij->ik", x)
    with pytest.raises(ArgumentError, match='output of "ij->ii" has "i" twice'):
        gf.einsum("ij->ii", x)
    with pytest.raises(ArgumentError, match=r"needs \.\.\., as the operands have further dims"):
        gf.einsum("...i->i", x)
    with pytest.raises(ArgumentError, match="the equation must be a string"):
        gf.einsum(x, "ij->i")


def test_errors_of_shapes() -> None:
    x, y = gf.identity(gf.zeros((2, 3))), gf.identity(gf.zeros((4, 5)))
    with pytest.raises(ShapeError) as error:
        gf.einsum("ij,jk->ik", x, y)
    lines = str(error.value).splitlines()
    assert lines[0] == 'einsum: "j" of "ij,jk->ik" has two sizes: 3 in operand 1, 4 in operand 2'
    assert re.match(r"  operand 1 +float32\[2, 3\] +identity +test_einsum.py:", lines[1])
    assert re.match(r"  operand 2 +float32\[4, 5\] +identity +test_einsum.py:", lines[2])
    with pytest.raises(ShapeError, match='operand 1 of "ijk->" has 2 dims, and "ijk" names 3'):
        gf.einsum("ijk->", x)
    with pytest.raises(ShapeError, match=r'has 2 dims, and "i...jk" names 3 or more'):
        gf.einsum("i...jk->", x)
    with pytest.raises(ShapeError, match=r"a dim of ... of .* two sizes: 2 in operand 1, 4 in op"):
        gf.einsum("...,...", x, y)
    with pytest.raises(ShapeError, match="has two sizes: 2 in operand 1, 3 in operand 1"):
        gf.einsum("ii", x)
    with pytest.raises(ShapeError, match=r'"i" of .* two sizes: 1 in operand 1, 2 in operand 2'):
        gf.einsum("i,i", gf.zeros(1), gf.zeros(2))
    with pytest.raises(DTypeError, match="numeric"):
        gf.einsum("i,i", gf.zeros(2, dtype="bool"), gf.zeros(2, dtype="bool"))
    with gf.Graph():
        n = gf.placeholder(("n",), name="n")
        with pytest.raises(ShapeError, match=r"n in operand 1, 2 in operand 2(.*\n)+.*if n always"):
            gf.einsum("i,i", n, gf.zeros(2))
