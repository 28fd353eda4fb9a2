"""Dtypes that CuPy lacks, on a GPU: what goes there, what comes home, what is refused."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, FeedError
from graphfw.extend import NONDIFF
from graphfw.ir.dtype import STORAGE
from graphfw.ir.op import REGISTRY
from graphfw.runtime.cupy_executor import StoredArray
from tests.support.stored import numbers

every = pytest.mark.parametrize("dtype", STORAGE, ids=str)


@every
def test_weights_are_kept_and_replaced(anywhere, dtype, rng, tmp_path):
    first, second = numbers(rng, dtype, 3, 4), numbers(rng, dtype, 3, 4)
    with gf.Graph() as g:
        w = gf.Variable(first, name="w", trainable=False)
        x = gf.placeholder((3, 4), dtype, name="x")
        turn = gf.update(w, gf.flip(w, axis=0))
        wide = gf.astype(w, gf.float32)
    with gf.Session(g, executor="cupy") as session:
        for count in range(1, 6):  # some of them by CUDA graphs
            session.run(turn)
            right = first[::-1] if count % 2 else first
            np.testing.assert_array_equal(session["w"].view("u1"), right.view("u1"))
        session["w"] = second
        found = session.run(wide, host=True)
        np.testing.assert_array_equal(found, second.astype(np.float32))
        session.save(tmp_path / "w.safetensors")
        session["w"] = first
        session.restore(tmp_path / "w.safetensors")
        assert session["w"].dtype == dtype.dtype
        np.testing.assert_array_equal(session["w"].view("u1"), second.view("u1"))
        assert session.run(x, {"x": session.run(w)}).bytes.dtype == np.uint8


@pytest.fixture
def through(fake):
    """A session that gives back what it is fed, a dtype that CuPy lacks."""
    with gf.Graph() as g:
        x = gf.placeholder((2, 3), "float8_e4m3fn", name="x")
        y = gf.identity(x)
        gf.astype(x, gf.float32, copy=False)
    with gf.Session(g, executor="cupy") as session:
        yield session, x, y


def test_arrays_stay_on_the_gpu(through, rng):
    session, x, y = through
    given = numbers(rng, STORAGE[0], 2, 3)
    found = session.run(y, {x: given})
    assert isinstance(found, StoredArray)
    assert (found.shape, found.ndim, found.size, found.nbytes) == ((2, 3), 2, 6, 6)
    assert found.dtype == given.dtype
    assert found.bytes.dtype == np.uint8
    for home in (found.get(), gf.to_numpy(found), session.run(y, {x: found}, host=True)):
        assert home.dtype == given.dtype
        np.testing.assert_array_equal(home.view("u1"), given.view("u1"))
    assert repr(found) == f"StoredArray({given!r})"
    with pytest.raises(TypeError, match=r"call get\(\)"):
        np.asarray(found)


def test_wrong_arrays_are_refused(through, fake):
    session, x, y = through
    content = fake.asarray(np.zeros((2, 3), np.uint8))
    match = r'is fed uint8(.|\n)*StoredArray\(array, "float8_e4m3fn"'
    with pytest.raises(FeedError, match=match):
        session.run(y, {x: content})
    match = r"is float8_e4m3fn and is fed int4(.|\n)*in the graph: gf.astype"
    with pytest.raises(FeedError, match=match):
        session.run(y, {x: StoredArray(content, "int4")})
    with pytest.raises(FeedError, match=r"is fed float32(.|\n)*in the graph: gf.astype"):
        session.run(y, {x: fake.asarray(np.zeros((2, 3), np.float32))})
    with pytest.raises(FeedError, match=r"\"x\" is \[2, 3\] and is fed \[3, 2\]"):
        session.run(y, {x: StoredArray(content.reshape(3, 2), "float8_e4m3fn")})
    with pytest.raises(ArgumentError, match="CuPy has float16 itself"):
        StoredArray(content, "float16")
    with pytest.raises(ArgumentError, match=r"bytes are to be(.|\n)*view\(cupy.uint8\)"):
        StoredArray(fake.asarray(np.zeros(3, np.int8)), "int4")
    with pytest.raises(ArgumentError, match=r"bytes are to be"):
        StoredArray(np.zeros(3, np.uint8), "int4")


def test_ops_of_users_compute_with_numbers(fake, request):
    request.addfinalizer(lambda: REGISTRY.pop("mine.next_number"))

    @gf.op("mine.next_number")
    class NextNumber(gf.Op):
        """The number behind each, in another dtype.  x: [*A]  ->  [*A]"""

        vjp = NONDIFF

        def shape(self, x):
            return x

        def dtype(self, x):
            return gf.float32

        def eval(self, xp, x):
            return x.astype(xp.float32) + 1

    given = np.array([1, -2, 448]).astype(STORAGE[0].dtype)
    with gf.Graph() as g:
        x = gf.placeholder((3,), STORAGE[0], name="x")
        y = gf.apply(NextNumber(), x)
    with gf.Session(g, executor="cupy") as session:
        np.testing.assert_array_equal(session.run(y, {x: given}, host=True), [2, -1, 449])
