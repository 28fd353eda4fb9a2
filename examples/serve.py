"""Serve a model over HTTP: requests of many clients are computed together, in one run.

    python examples/serve.py train [--out serve-out] [--seed 0]
    python examples/serve.py serve [--out serve-out] [--port 8000] [--rows 32] [--wait 2]
    python examples/serve.py load [--out serve-out] [--threads 16] [--requests 100]

`train` writes a checkpoint of a classifier of handwritten digits. `serve` answers requests with it,
until Ctrl-C or SIGTERM; it then finishes those that it has accepted. Ask it:

    curl localhost:8000/predict -H "Content-Type: application/json" -d '{"image": [[0, 5, 13, …]]}'
    curl localhost:8000/health

If `train` writes another checkpoint, the server takes its weights between two runs. A body and an
answer may also be an array in NumPy's format (`application/x-npy`). `load` starts a server with
batches and one without, asks each from many threads, and checks that every answer has the same bits
as when it is asked by itself.

Needs the extra `examples` (scikit-learn for the data). docs/serving.md explains the server.
"""

from __future__ import annotations

import argparse
import io
import json
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import graphfw as gf

Array = np.ndarray[Any, Any]
NPY = "application/x-npy"
BODY_LIMIT = 1 << 20  # bytes
WIDTH = 2048  # of the network


class Network(NamedTuple):
    """The graph, and its tensors that the rest of the program uses."""

    graph: gf.Graph
    image: gf.Tensor
    model: gf.nn.Module


def describe() -> Network:
    """Describe the network that is trained and served."""
    with gf.Graph("serve") as graph:
        image = gf.placeholder(("batch", 64), name="image")
        model = gf.nn.Sequential(
            gf.nn.Linear(64, WIDTH), gf.nn.ReLU(), gf.nn.Dropout(0.2),
            gf.nn.Linear(WIDTH, WIDTH), gf.nn.ReLU(), gf.nn.Linear(WIDTH, 10),
        )  # fmt: skip
    return Network(graph, image, model)


def checkpoint(out: Path) -> Path:
    return out / "model.safetensors"


def train(out: Path, seed: int, epochs: int) -> None:
    """Train the network and write a checkpoint; a reader sees the old file or the new one."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    net = describe()
    with net.graph:
        label = gf.placeholder(("batch",), gf.int64, name="label")
        loss = gf.nn.cross_entropy(net.model(net.image / 16), label)
        step = gf.optim.AdamW(1e-3).minimize(loss)
    arrays = {"image": digits.data.astype(np.float32), "label": digits.target}
    data = gf.data.batches(arrays, 64, seed=seed, epochs=epochs)
    with gf.Session(net.graph, seed=seed) as session:
        trainer = gf.train.Trainer(session, step, {"loss": loss}, feeds=[net.image, label])
        result = trainer.fit(data)
        out.mkdir(parents=True, exist_ok=True)
        session.save(checkpoint(out), metadata={"trained": result.step})
    print(f"{result.step} steps, loss {result.history[-1]['loss']:.4f}")


class Busy(Exception):
    """More requests are waiting than may wait, or the server is closing."""


class Asked(NamedTuple):
    """One request: arrays with a row for each example, and the future of its results."""

    arrays: list[Any]
    rows: int
    results: Future[dict[str, Array]]


class Batcher:
    """A function of arrays that computes the calls of many threads in one run.

    Args:
        plan: A plan whose feeds and results all begin with the batch. It returns a dict.
        rows: The most rows of a run.
        wait: The most seconds that a call waits for others.
        waiting: The most calls that may wait; others are `Busy`.
        padded: Whether each run has `rows` rows. A product of few rows may add in another order
            than one of many, so without this the last bits of an answer depend on the size of the
            batch that it was in.
    """

    def __init__(
        self, plan: Any, *, rows: int, wait: float, waiting: int = 1024, padded: bool = True
    ) -> None:
        self.plan, self.rows, self.wait, self.padded = plan, rows, wait, padded
        self.runs = self.calls = 0
        self._queue: queue.Queue[Asked | None] = queue.Queue()
        self._waiting = waiting
        self._closed = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="batcher")
        self._thread.start()

    def __call__(self, *arrays: Any, timeout: float | None = None) -> dict[str, Array]:
        """Return the results for arrays, which other calls can't spoil.

        Raises:
            gf.FeedError: They don't fit the plan, or have too many rows or none.
            Busy: Too many calls are waiting, or `close` was called.
            TimeoutError: The results took longer than `timeout` seconds.
        """
        fed = self.plan.checked(*arrays)
        rows = len(fed[0])
        if not 0 < rows <= self.rows:
            raise gf.FeedError(f"{rows} rows in a request", fix=f"send 1 to {self.rows} rows")
        asked = Asked(fed, rows, Future())
        with self._lock:
            if self._closed or self._queue.qsize() >= self._waiting:
                raise Busy("the server is closing" if self._closed else "too many are waiting")
            self._queue.put(asked)
            self.calls += 1
        try:
            return asked.results.result(timeout)
        finally:
            asked.results.cancel()  # nobody waits for it any more

    def close(self) -> None:
        """Finish the calls that are waiting, and take no more."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def _serve(self) -> None:
        following = self._queue.get()
        while following is not None:
            batch, following = self._batch(following)
            batch = [asked for asked in batch if asked.results.set_running_or_notify_cancel()]
            if batch:
                self._compute(batch)
            if following is NOTHING:
                following = self._queue.get()

    def _batch(self, first: Asked) -> tuple[list[Asked], Asked | None]:
        """Return calls for one run, and the one after them that did not fit."""
        batch, rows, end = [first], first.rows, time.monotonic() + self.wait
        while rows < self.rows:
            try:
                asked = self._queue.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                break
            if asked is None or rows + asked.rows > self.rows:
                return batch, asked
            batch.append(asked)
            rows += asked.rows
        return batch, NOTHING

    def _compute(self, batch: list[Asked]) -> None:
        self.runs += 1
        try:
            fed = zip(*[asked.arrays for asked in batch], strict=True)
            results = self._run([np.concatenate(arrays) for arrays in fed])
        except Exception as error:
            if len(batch) == 1 or isinstance(error, TimeoutError):
                for asked in batch:
                    asked.results.set_exception(error)
            else:  # one call's values, such as an index, fail the run: not the others' calls
                for asked in batch:
                    self._compute([asked])
            return
        first = 0
        for asked in batch:
            last = first + asked.rows
            asked.results.set_result({name: a[first:last] for name, a in results.items()})
            first = last

    def _run(self, arrays: list[Array]) -> dict[str, Array]:
        if self.padded and (missing := self.rows - len(arrays[0])):  # with values that are valid
            arrays = [np.concatenate([a, np.repeat(a[:1], missing, axis=0)]) for a in arrays]
        found: dict[str, Array] = self.plan(*arrays)
        return found


NOTHING = Asked([], 0, Future())
"""No call has been taken from the queue."""


class Refused(Exception):
    """A request that gets an error as its answer."""

    def __init__(self, status: int, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.status, self.fix = status, fix


class Handler(BaseHTTPRequestHandler):
    """The requests of one connection."""

    server: Server
    protocol_version = "HTTP/1.1"  # a connection stays open for the next request
    timeout = 60.0  # of a client that is silent
    wbufsize = -1  # head and body leave in one packet
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.server.opened(self.connection)

    def finish(self) -> None:
        self.server.forgotten(self.connection)
        super().finish()

    def do_GET(self) -> None:
        if self.path == "/health":
            self._answer(200, self.server.health())
        else:
            self._answer(404, {"error": f"no {self.path} here", "fix": "GET /health"})

    def do_POST(self) -> None:
        try:
            self._answer(200, self._predicted())
        except Refused as error:
            self._answer(error.status, {"error": str(error), "fix": error.fix})
        except gf.FeedError as error:  # without `error.at`, which is a line of this program
            self._answer(400, {"error": error.summary, "fix": error.fix})
        except Busy as error:
            self._answer(503, {"error": str(error), "fix": "try again later"})
        except TimeoutError:
            self._answer(504, {"error": "it took too long", "fix": "send fewer rows"})
        except gf.GraphfwError as error:
            self.log_error("%s", error)
            self._answer(500, {"error": "the model can't compute this", "fix": ""})

    def _predicted(self) -> dict[str, Array]:
        arrays = self._arrays(self._body())
        for array in arrays:
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise Refused(400, "NaN or infinity in the request", "send finite numbers")
        return self.server.batcher(*arrays, timeout=self.server.limit)

    def _body(self) -> bytes:
        """Return the body, or leave it unread, which ends the connection after the answer."""
        self.close_connection = True
        if self.path != "/predict":
            raise Refused(404, f"no {self.path} here", "POST /predict")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise Refused(411, "no Content-Length", "send the body in one piece, with its length")
        if int(length) > BODY_LIMIT:
            raise Refused(413, f"{length} bytes", f"send at most {BODY_LIMIT} bytes")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise Refused(400, f"{len(body)} bytes of {length} arrived")
        self.close_connection = self.headers.get("Connection", "").lower() == "close"
        return body

    def _arrays(self, body: bytes) -> list[Array]:
        """Return the feeds of the plan, in its order."""
        names = self.server.names
        kind = self.headers.get_content_type()
        try:
            if kind == NPY and len(names) == 1:
                return [np.load(io.BytesIO(body), allow_pickle=False)]
            if kind == "application/json":
                fields = json.loads(body)
                if isinstance(fields, dict) and fields.keys() == set(names):
                    return self.server.batcher.plan.checked(*[fields[name] for name in names])
                raise Refused(400, "other fields than the model's", f"send {', '.join(names)}")
        except (ValueError, EOFError, RecursionError) as error:
            if isinstance(error, gf.FeedError):
                raise
            raise Refused(400, f"the body is no {kind}: {error}") from error
        raise Refused(415, f"a body of {kind}", f"send application/json or {NPY}")

    def _answer(self, status: int, fields: dict[str, Any]) -> None:
        wants_npy = self.headers.get("Accept") == NPY and status == 200 and "scores" in fields
        if wants_npy:
            file = io.BytesIO()
            np.save(file, fields["scores"])
            body = file.getvalue()
        else:
            body = json.dumps(fields, default=np.ndarray.tolist).encode()
        self.send_response(status)
        self.send_header("Content-Type", NPY if wants_npy else "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection or self.server.closing:
            self.send_header("Connection", "close")  # sets `close_connection` too
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Leave out a line for each request."""


class Server(ThreadingHTTPServer):
    """A session, its plan and its batcher at an address."""

    daemon_threads = False  # `server_close` waits for answers
    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], out: Path, rows: int, wait: float, limit: float
    ) -> None:
        net = describe()
        with net.graph:
            scores = gf.softmax(net.model(net.image / 16, training=False), axis=-1)
            answers = {"class": gf.argmax(scores, axis=-1), "scores": scores}
        self.path, self.limit, self.names = checkpoint(out), limit, ["image"]
        self.session = gf.Session(net.graph, timeout=limit)
        self.restore()
        plan = self.session.compile(answers, feeds=[net.image])
        plan(np.zeros((rows, 64), np.float32))  # allocates what a run needs
        self._connections: set[socket.socket] = set()
        self.closing = False
        self._lock = threading.Lock()
        super().__init__(address, Handler)
        self.batcher = Batcher(plan, rows=rows, wait=wait)

    def restore(self) -> None:
        """Take the weights of the checkpoint: all of them or, with an error, none."""
        changed = self.path.stat().st_mtime_ns
        restored = self.session.restore(self.path, ignore_extra=True)  # the optimiser's
        self.changed, self.step = changed, restored.metadata["trained"]

    def follow(self) -> None:
        """Take the weights of a newer checkpoint, if there is one. Runs go on meanwhile."""
        try:
            if self.path.stat().st_mtime_ns != self.changed:
                self.restore()
                print(f"weights of step {self.step}", flush=True)
        except (OSError, gf.CheckpointError) as error:
            print(f"the weights stay as they are: {error}", file=sys.stderr, flush=True)

    def health(self) -> dict[str, Any]:
        status, made = "closing" if self.closing else "ok", self.batcher
        return {"status": status, "step": self.step, "calls": made.calls, "runs": made.runs}

    def opened(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.add(connection)
            if self.closing:
                connection.shutdown(socket.SHUT_RD)

    def forgotten(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.discard(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print an error, but not that a client has gone before its answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def finish(self) -> None:
        """Answer the requests that have arrived, and end."""
        self.shutdown()  # no new connections
        with self._lock:
            self.closing = True
            for connection in self._connections:  # no new requests in open ones
                with suppress(OSError):  # the client has closed it
                    connection.shutdown(socket.SHUT_RD)
        self.server_close()  # waits for the threads of the connections
        self.batcher.close()
        self.session.close()


def serve(out: Path, port: int, rows: int, wait: float, limit: float) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    server = Server(("127.0.0.1", port), out, rows, wait, limit)
    thread = threading.Thread(target=server.serve_forever, name="accept")
    thread.start()
    print(f"serving on port {server.server_address[1]}", flush=True)
    while not ended.wait(0.5):
        server.follow()
    server.finish()
    thread.join()
    print(f"{server.batcher.calls} calls in {server.batcher.runs} runs")


def ask(connection: HTTPConnection, image: Array) -> Array:
    """Return a server's scores for an image."""
    file = io.BytesIO()
    np.save(file, image)
    headers = {"Content-Type": NPY, "Accept": NPY}
    connection.request("POST", "/predict", file.getvalue(), headers)
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise SystemExit(f"{answer.status}: {body.decode()}")
    scores: Array = np.load(io.BytesIO(body))
    return scores


def measure(port: int, threads: int, requests: int) -> tuple[float, Array]:
    """Ask from many threads; return the requests per second, and the seconds that each took."""
    images = np.random.default_rng(0).integers(0, 17, (64, 1, 64)).astype(np.float32)
    connection = HTTPConnection("127.0.0.1", port)
    single = [ask(connection, image) for image in images]
    connection.close()
    begin = threading.Barrier(threads + 1)

    def client(number: int) -> list[float]:
        connection = HTTPConnection("127.0.0.1", port)
        connection.connect()
        begin.wait()
        seconds = []
        for i in range(number, number + requests):
            start = time.perf_counter()
            scores = ask(connection, images[i % 64])
            seconds.append(time.perf_counter() - start)
            if scores.tobytes() != single[i % 64].tobytes():
                raise SystemExit("an answer differs from that of a single request")
        connection.close()
        return seconds

    with ThreadPoolExecutor(threads) as pool:
        clients = [pool.submit(client, number) for number in range(threads)]
        begin.wait()
        start = time.perf_counter()
        seconds = np.concatenate([one.result() for one in clients])
        return len(seconds) / (time.perf_counter() - start), seconds


def load(out: Path, threads: int, requests: int, rows: int, wait: float) -> None:
    """Compare a server that makes batches with one that does not."""
    print("batch  requests/s  median ms  95 % ms  99 % ms")
    for most in (rows, 1):
        command = [sys.executable, __file__, "serve", "--port=0", f"--out={out}"]
        command += [f"--wait={wait}", f"--rows={most}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            said = process.stdout.readline()
            if "port" not in said:
                raise SystemExit("the server did not start")
            rate, seconds = measure(int(said.split()[-1]), threads, requests)
            middle, high, highest = np.percentile(seconds * 1e3, [50, 95, 99])
            print(f"{most:5}  {rate:10.0f}  {middle:9.2f}  {high:7.2f}  {highest:7.2f}")
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
    print("all answers have the bits of single requests")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=["train", "serve", "load"])
    parser.add_argument("--out", type=Path, default=Path("serve-out"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--rows", type=int, default=32, help="the most rows of a run")
    parser.add_argument("--wait", type=float, default=2.0, help="milliseconds to wait for others")
    parser.add_argument("--limit", type=float, default=5.0, help="seconds of a request")
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--requests", type=int, default=100, help="of each thread")
    options = parser.parse_args()
    if options.rows < 1 or options.wait < 0:
        parser.error("--rows is at least 1, and --wait at least 0")
    if options.mode != "train" and not checkpoint(options.out).exists():
        raise SystemExit(f"no model in {options.out}: run `serve.py train` first")
    if options.mode == "train":
        train(options.out, options.seed, options.epochs)
    elif options.mode == "serve":
        serve(options.out, options.port, options.rows, options.wait / 1000, options.limit)
    else:
        load(options.out, options.threads, options.requests, options.rows, options.wait)


if __name__ == "__main__":
    main()
