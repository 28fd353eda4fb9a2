"""Arrays between the host and a GPU: pinned memory, `run(host=True)`, streams, other frameworks."""

from collections import defaultdict, deque

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import FeedError
from graphfw.runtime.cupy_executor import staging
from graphfw.runtime.cupy_executor.streams import StreamEvents
from tests.strict_xp import plain_array, strict_array
from tests.support.fake_streams import FakeStream

H2D, D2H = 1, 2


@pytest.fixture
def several():
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3), name="x")
        v = gf.Variable(np.ones(3, np.float32), name="v")
        y = gf.exp(x) * v
        fetches = {"y": y, "sums": [gf.sum(y, axis=0), gf.sum(y)], "any": gf.any(y > 2), "x": x.T}
        grow = gf.update(v, v + 1)
    return g, x, fetches, grow


def test_results_come_home_together(fake, several, monkeypatch, rng):
    g, x, fetches, grow = several
    data = rng.normal(size=(4, 3)).astype(np.float32)
    waits = []
    synchronize = FakeStream.synchronize
    monkeypatch.setattr(
        FakeStream, "synchronize", lambda self: waits.append(self) or synchronize(self)
    )
    with gf.Session(g) as cpu, gf.Session(g, "cupy") as gpu:
        wanted = cpu.run(fetches, {x: data})
        gpu.run(fetches, {x: data})
        waits.clear()
        fake.copied.clear()
        found = gpu.run({**fetches, "grow": grow}, {x: data}, host=True)
    assert found.pop("grow") is None
    assert found.keys() == wanted.keys()
    pairs = [(found[k], wanted[k]) for k in ("y", "any", "x")]
    for array, right in [*pairs, *zip(found["sums"], wanted["sums"], strict=True)]:
        assert type(array) is np.ndarray
        assert (array.dtype, array.shape) == (right.dtype, right.shape)
        np.testing.assert_allclose(array, right, rtol=1e-6)
    assert len(waits) == 1
    assert [kind for kind, _ in fake.copied].count(D2H) == 5


def test_results_on_the_host_are_not_copied(several, rng):
    g, x, fetches, _ = several
    data = rng.normal(size=(4, 3)).astype(np.float32)
    with gf.Session(g) as session:
        made = []
        execute = session._runs.execute
        session._runs.execute = lambda *args: made.append(execute(*args)) or made[-1]
        found = session.run(fetches, {x: data}, host=True)
    assert found["y"] is made[0][0]


def test_large_results_take_no_pinned_memory(fake, several, monkeypatch, rng):
    g, x, fetches, _ = several
    monkeypatch.setattr(staging, "_MOST", 100)
    with gf.Session(g, "cupy") as session:
        home = session.run(fetches["y"], {x: np.zeros((20, 3), np.float32)}, host=True)
    np.testing.assert_array_equal(home, np.ones((20, 3)))
    assert D2H not in [kind for kind, _ in fake.copied]


def test_pinned_memory_is_kept_until_it_is_copied(fake, monkeypatch):
    monkeypatch.setattr(staging, "_SENT", defaultdict(deque))
    made = [staging.Staging(fake, number) for number in range(2)]
    target = fake.empty(64, np.uint8)
    stream = fake.cuda.get_current_stream()

    def send(number):
        piece = staging.HostArray(np.arange(16, dtype=np.float32), 0)
        made[number].send([piece], target.data.ptr, stream)
        return len(staging._SENT[number])

    fake.streams.is_done = False
    assert [send(0), send(0), send(0), send(1)] == [1, 2, 3, 1]
    fake.streams.is_done = True
    assert send(1) == 1  # whatever another GPU is at
    assert len(staging._SENT[0]) == 3
    assert send(0) == 1
    np.testing.assert_array_equal(plain_array(target).view(np.float32), np.arange(16))


def test_new_contents_wait_for_who_reads_the_old_ones(fake):
    with gf.Graph() as g:
        v = gf.Variable(np.ones(3, np.float32), name="v")
        y = v * 2.0
    one, other = fake.cuda.Stream(), fake.cuda.Stream()
    with gf.Session(g, "cupy") as session:
        with one:
            session.run(y)
        fake.streams.waits.clear()
        with other:
            session[v] = np.zeros(3, np.float32)
    assert (other.ptr, one.ptr) in fake.streams.waits, "what lies there next would be read"


def test_who_reads_is_waited_for_also_behind_contents_that_could_not_be_made(fake):
    streams = StreamEvents(fake)
    one, other, third = [fake.cuda.Stream() for _ in range(3)]
    streams.has_read(one)
    streams.overwrites(other)  # and then there is no memory for what is new
    fake.streams.waits.clear()
    streams.overwrites(third)
    assert (third.ptr, other.ptr) in fake.streams.waits


def test_pieces_that_lie_side_by_side_go_together(fake):
    made = staging.Staging(fake, 0)
    target = fake.empty(1024, np.uint8)
    arrays = [
        (np.arange(5, dtype=np.int64), 0),
        (np.ones((), np.float16), 64),
        (np.zeros((0, 3), np.float32), 128),
        (np.arange(12, dtype=np.float32).reshape(3, 4).T, 128),
        (np.array([True, False]), 512),
    ]
    pieces = [staging.HostArray(*one) for one in arrays]
    made.send(pieces, target.data.ptr, fake.cuda.get_current_stream())
    assert fake.copied == [(H2D, 128 + 48), (H2D, 2)]
    for array, offset in arrays:
        held = plain_array(target)[offset : offset + array.nbytes].view(array.dtype)
        np.testing.assert_array_equal(held.reshape(array.shape), array)


def test_runs_and_copies_are_on_the_current_stream(fake, several, rng):
    g, x, fetches, _ = several
    streams = []
    copy = fake.cuda.runtime.memcpyAsync

    def noted(target, source, nbytes, kind, stream):
        streams.append(stream)
        copy(target, source, nbytes, kind, stream)

    fake.cuda.runtime.memcpyAsync = noted
    with gf.Session(g, "cupy") as session, fake.cuda.Stream() as stream:
        for _ in range(4):
            session.run(fetches, {x: rng.normal(size=(4, 3)).astype(np.float32)}, host=True)
    assert set(streams) == {stream.ptr}


def test_arrays_that_only_say_where_they_lie(fake, monkeypatch):
    array = strict_array(np.arange(4, dtype=np.float32))

    class Theirs:
        __cuda_array_interface__ = None

    monkeypatch.setattr(fake, "asarray", lambda value: array, raising=False)
    with gf.Graph() as g:
        x = gf.placeholder((4,), name="x")
        y = x + 1.0
    with gf.Session(g, "cupy") as session:
        np.testing.assert_array_equal(session.run(y, {x: Theirs()}, host=True), [1, 2, 3, 4])
        assert type(session.run(y, {x: array})) is fake.ndarray


def test_arrays_that_are_not_handed_over(fake, monkeypatch):
    class Theirs:
        def __dlpack_device__(self):
            return 2, 0

        def __dlpack__(self, **_):
            raise RuntimeError("Can't export tensors that require gradient")

    monkeypatch.setattr(fake, "from_dlpack", lambda value: value.__dlpack__(), raising=False)
    with gf.Graph() as g:
        x = gf.placeholder((4,), name="x")
        y = x + 1.0
    with gf.Session(g, "cupy") as session:
        with pytest.raises(FeedError, match=r'"x" can\'t take(.|\n)*require gradient(.|\n)*detach'):
            session.run(y, {x: Theirs()})


@pytest.mark.gpu
def test_torch_takes_and_gives_memory_as_it_is():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch has no GPU")
    with gf.Graph() as g:
        x = gf.placeholder((4,), name="x")
        y = x + 1.0
    with gf.Session(g, "cupy") as session:
        fed = torch.arange(4.0, device="cuda")
        seen = session.executor.feed(x, fed)
        assert seen.data.ptr == fed.data_ptr()
        found = session.run(y, {x: fed})
        theirs = torch.from_dlpack(found)
        assert theirs.data_ptr() == found.data.ptr
        assert theirs.tolist() == [1, 2, 3, 4]
