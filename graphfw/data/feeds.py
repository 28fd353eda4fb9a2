"""Feeds of a plan or function from a dataset: checked, and made in advance."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Self

from graphfw.data.fitting import Feed, Fitting, FunctionFitting, PlanFitting
from graphfw.data.readers import Reader, reader_of
from graphfw.errors import ArgumentError, FeedError, GraphfwError, a_type, counted
from graphfw.hints.calls import explained
from graphfw.loc import capture
from graphfw.runtime.functions import Function
from graphfw.runtime.plan import Plan


@explained
def feeds(
    dataset: Any,
    plan: Plan | Function,
    *,
    ahead: int = 2,
    workers: int = 0,
    position: Mapping[str, Any] | None = None,
) -> Feeds:
    """Return an iterator over the batches of a dataset, each as the feed of a plan or function.

    A thread makes the next batches while a run goes on. The first one is checked before this
    returns: names, shapes and dtypes. A function is built for it, and runs nothing.

    Args:
        dataset: Batches: dicts by the names of the placeholders, tuples in the order of the plan's
            feeds, or arrays if there is one feed. `gf.data.batches`, a dataset of grain, a
            `DataLoader` of PyTorch, a list, or any iterable. Names that the plan does not feed are
            left out. For a function its parameters take the role of placeholders; arrays may be
            nested in tuples, lists and dicts.
        plan: The plan that takes them, of `session.compile(fetches, feeds=[…])` or
            `function.plan(…)`: a feed has its arrays by placeholder. Or a `gf.function`: a feed has
            its arguments by name, for `function(**feed)`.
        ahead: The number of batches that are made in advance; 0 for no thread.
        workers: The number of processes that make batches, of a dataset by number; needs the
            package grain. The batches and the position are the same with any number.
        position: The `position` of the feeds of an earlier run, to go on from.

    Raises:
        FeedError: The first batch does not fit the placeholders, or the function's parameters.
        ArgumentError: The dataset gives no batches, `plan` is neither plan nor function, or takes
            nothing, or `position` is of other data.

    >>> import numpy as np
    >>> import graphfw as gf
    >>> with gf.Graph() as g:
    ...     x = gf.placeholder(("batch", 2), name="x")
    ...     total = gf.sum(x)
    >>> with gf.Session(g) as session:
    ...     plan = session.compile(total, feeds=[x])
    ...     found = gf.data.feeds(gf.data.batches({"x": np.ones((5, 2), np.float32)}, 2), plan)
    ...     [float(session.run(total, feed)) for feed in found]
    [4.0, 4.0, 2.0]
    """
    if not isinstance(plan, Plan | Function):
        raise ArgumentError(
            f"feeds: the plan is {a_type(plan)}",
            fix="pass plan = session.compile(fetches, feeds=[x, y]), or a function with "
            "@gf.function above it",
        )
    fitting = PlanFitting(plan) if isinstance(plan, Plan) else FunctionFitting(plan)
    for name, number in (("ahead", ahead), ("workers", workers)):
        if type(number) is not int or number < 0:
            raise ArgumentError(
                f"feeds: {name}={number!r} is no integer of at least 0", fix=f"write {name}=2"
            )
    return Feeds(reader_of(dataset, position, workers), fitting, ahead)


class _End:
    """Stands for the end of a dataset."""


class _Failure:
    """Stands for a batch that could not be made."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Maker:
    """Makes feeds of batches, in a thread where there is one.

    It knows nothing of `Feeds`, whose end stops the thread.
    """

    def __init__(self, reader: Reader, fitting: Fitting, ahead: int) -> None:
        self._reader = reader
        self._fitting = fitting
        self._stopped = threading.Event()
        self._made: queue.Queue[Any] = queue.Queue(max(ahead, 1))
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Make feeds in a thread from now on."""
        self._thread = threading.Thread(target=self._make_all, daemon=True, name="graphfw-feeds")
        self._thread.start()

    def taken(self) -> Any:
        """Return the next feed with the position after it, an `_End` or a `_Failure`."""
        return self.make() if self._thread is None else self._made.get()

    def stop(self) -> None:
        """End the thread, and let go of what it has made."""
        self._stopped.set()
        thread = self._thread
        if thread is threading.current_thread():  # which collects what nobody refers to any more
            return
        while thread is not None and thread.is_alive():
            with contextlib.suppress(queue.Empty):
                self._made.get_nowait()
            thread.join(0.01)

    def _make_all(self) -> None:
        while not self._stopped.is_set():
            made = self.make()
            self._made.put(made)
            if isinstance(made, _End | _Failure):
                break

    def make(self) -> Any:
        """Make the next feed; see `taken`."""
        reader = self._reader
        number = reader.number
        try:
            batch = reader.read()
        except StopIteration:
            return _End()
        except BaseException as error:
            error.add_note(f"raised while batch {number} of the data was made")
            return _Failure(error)
        try:
            return self._fitted(batch, number), reader.position()
        except GraphfwError as error:
            return _Failure(error)

    def _fitted(self, batch: Any, number: int) -> Feed:
        """Return a batch as a feed.

        Raises:
            FeedError: It does not fit.
        """
        try:
            return self._fitting.feed(batch, number)
        except FeedError as error:
            raise FeedError(
                f"batch {number} of the data: {error.summary}",
                operands=error.operands,
                fix=error.fix,
            ) from None


def _located(error: BaseException) -> BaseException:
    """Return an error, at the line that runs now where its own is none of the user's."""
    if isinstance(error, GraphfwError):
        of_grain = f"{os.sep}grain{os.sep}_src{os.sep}" in error.at.file
        if of_grain or error.at.file == threading.__file__:
            error.at = capture()
    return error


class Feeds(Iterator[Feed]):
    """The feeds of a plan or function, one for each batch of a dataset; see `feeds`.

    The length is the number of batches that are left, if the dataset has a length. As a context
    manager it ends the thread at the end of the block.
    """

    def __init__(self, reader: Reader, fitting: Fitting, ahead: int) -> None:
        self._reader = reader
        self._left = reader.left()
        self._position = reader.position()
        self._taken = 0
        self._waited = 0.0
        self._begun: float | None = None
        self._is_over = False
        self._maker = _Maker(reader, fitting, ahead)
        self._first: Any = self._maker.make()
        if isinstance(self._first, _Failure):
            raise _located(self._first.error)
        if self.first is not None:
            fitting.begin(self.first)
        if ahead and not isinstance(self._first, _End):
            self._maker.start()
        self._stop = weakref.finalize(self, self._maker.stop)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Feed:
        if self._is_over:
            raise StopIteration
        begun = time.perf_counter()
        if self._first is not None:
            made, self._first, self._begun = self._first, None, begun
        else:
            made = self._maker.taken()
            self._waited += time.perf_counter() - begun
        if isinstance(made, _End | _Failure):
            self.close()
            if isinstance(made, _Failure):
                raise _located(made.error)
            raise StopIteration
        self._taken += 1
        feed: Feed
        feed, self._position = made
        return feed

    @property
    def first(self) -> Feed | None:
        """The first feed, as long as nobody has taken it; None where there is none."""
        is_there = self._first is not None and not isinstance(self._first, _End)
        return self._first[0] if is_there else None

    def __len__(self) -> int:
        if self._left is None:
            raise TypeError("the dataset has no end, or does not say how many batches it has")
        return self._left - self._taken

    @property
    def position(self) -> dict[str, Any]:
        """The position in the data after the batches that were taken, as numbers and text.

        Keep it by `session.save(path, metadata={"data": feeds.position})`, and resume by
        `gf.data.feeds(dataset, plan, position=session.restore(path).metadata["data"])`.
        """
        return self._position

    @property
    def waiting(self) -> float:
        """The fraction of the time since the first batch in which a run waited for data."""
        if self._begun is None or not self._waited:
            return 0.0
        return self._waited / (time.perf_counter() - self._begun)

    def close(self) -> None:
        """End the thread that makes batches, and the iterator."""
        self._is_over = True
        self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"<Feeds: {counted(self._taken, 'batch', 'batches')} taken, "
            f"{self.waiting:.0%} of the time waited for data>"
        )
