"""The server of examples/serve.py: answers, refusals, new weights, and its end."""

from __future__ import annotations

import importlib.util
import io
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import graphfw as gf

FILE = Path(__file__).parent.parent / "examples" / "serve.py"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("serve", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.WIDTH = 64  # which is described in less time
    return module


def write(example: ModuleType, out: Path, seed: int) -> None:
    """Write a checkpoint of weights that nobody has trained."""
    with gf.Session(example.describe().graph, seed=seed) as session:
        session.run("sequential.0.weight")
        session.save(example.checkpoint(out), metadata={"trained": seed})


@pytest.fixture
def server(example: ModuleType, tmp_path: Path) -> Iterator[Any]:
    write(example, tmp_path, 1)
    server = example.Server(("127.0.0.1", 0), tmp_path, 8, 0.01, 20.0)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.finish()
    thread.join()


def asked(server: Any, body: bytes | str | None, headers: dict[str, str], path="/predict") -> Any:
    connection = HTTPConnection("127.0.0.1", server.server_address[1], timeout=20)
    connection.request("GET" if body is None else "POST", path, body, headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, json.loads(content)


def test_calls_of_many_threads_share_runs_and_have_the_bits_of_single_ones(server, example):
    images = np.random.default_rng(0).integers(0, 17, (40, 2, 64)).astype(np.float32)
    single = [server.batcher(image) for image in images]
    runs = server.batcher.runs
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(server.batcher, images))
    assert server.batcher.runs - runs < 30
    for one, other in zip(single, together, strict=True):
        np.testing.assert_array_equal(one["scores"], other["scores"])
        np.testing.assert_array_equal(one["class"], np.argmax(one["scores"], axis=1))


def test_json_and_npy_have_the_same_answer(server, example):
    image = np.random.default_rng(1).integers(0, 17, (3, 64)).astype(np.float32)
    status, answer = asked(server, json.dumps({"image": image.tolist()}), JSON)
    assert status == 200
    connection = HTTPConnection("127.0.0.1", server.server_address[1])
    scores = example.ask(connection, image)
    connection.close()
    np.testing.assert_array_equal(np.float32(answer["scores"]), scores)
    assert asked(server, None, {}, "/health")[1]["status"] == "ok"


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


ROW = [0.0] * 64


@pytest.mark.parametrize(
    ("status", "body", "headers", "says"),
    [
        (400, json.dumps({"image": [ROW[:63]]}), JSON, "dim 1 is 63, not 64"),
        (400, json.dumps({"image": ROW}), JSON, "1 dim, not 2"),
        (400, json.dumps({"image": [ROW, ROW[:3]]}), JSON, "same length"),
        (400, json.dumps({"image": [["a"] * 64]}), JSON, "not numbers"),
        (400, json.dumps({"image": [[float("nan")] * 64]}), JSON, "NaN or infinity"),
        (400, json.dumps({"image": [ROW] * 9}), JSON, "send 1 to 8 rows"),
        (400, json.dumps({"image": np.zeros((0, 64)).tolist()}), JSON, "dim"),
        (400, json.dumps({"picture": [ROW]}), JSON, "send image"),
        (400, "[1, 2", JSON, "no application/json"),
        (400, "[" * 200_000, JSON, "no application/json"),
        (400, npy(np.zeros((1, 64)) + 0.1), {"Content-Type": "application/x-npy"}, "float64"),
        (400, npy(np.zeros((0, 64), "f4")), {"Content-Type": "application/x-npy"}, "1 to 8 rows"),
        (400, b"\x93NUMPY", {"Content-Type": "application/x-npy"}, "no application/x-npy"),
        (415, "image", {"Content-Type": "text/plain"}, "send application/json"),
        (411, "", {**JSON, "Content-Length": "many"}, "Content-Length"),
        (413, "", {**JSON, "Content-Length": str(1 << 30)}, "at most"),
    ],
)
def test_wrong_requests_are_refused_and_the_server_goes_on(server, status, body, headers, says):
    found, answer = asked(server, body, headers)
    assert found == status
    assert says in f"{answer['error']} {answer['fix']}"
    assert ".py" not in answer["error"]
    assert asked(server, json.dumps({"image": [ROW]}), JSON)[0] == 200
    assert asked(server, "{}", JSON, "/elsewhere")[0] == 404
    assert asked(server, None, {}, "/elsewhere")[0] == 404


def test_new_weights_are_taken_between_runs_and_damaged_ones_are_not(server, example, capsys):
    path = server.path
    image = np.ones((1, 64), np.float32)
    first = server.batcher(image)["scores"]
    write(example, path.parent, 2)
    stop = threading.Event()
    seen = set()

    def client() -> None:
        while not stop.is_set():
            seen.add(server.batcher(image)["scores"].tobytes())

    with ThreadPoolExecutor(2) as pool:
        clients = [pool.submit(client) for _ in range(2)]
        time.sleep(0.05)
        server.follow()
        second = server.batcher(image)["scores"]
        stop.set()
        for one in clients:
            one.result()
    assert server.step == 2
    assert not np.array_equal(first, second)
    assert seen <= {first.tobytes(), second.tobytes()}  # never some weights of each
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    server.follow()
    assert "the weights stay as they are" in capsys.readouterr().err
    np.testing.assert_array_equal(server.batcher(image)["scores"], second)


def test_one_call_that_fails_does_not_fail_the_others(example):
    with gf.Graph() as g:
        index = gf.placeholder(("batch",), gf.int64, name="index")
        found = gf.take(gf.asarray(np.arange(10.0)), index, axis=0)
    with gf.Session(g) as session:
        plan = session.compile({"found": found}, feeds=[index])
        batcher = example.Batcher(plan, rows=8, wait=0.2)
        try:
            with ThreadPoolExecutor(3) as pool:
                calls = [pool.submit(batcher, np.array([i])) for i in (3, 99, 4)]
            assert [calls[i].result()["found"].tolist() for i in (0, 2)] == [[3.0], [4.0]]
            with pytest.raises(gf.ExecutionError, match="99"):
                calls[1].result()
            with pytest.raises(TimeoutError):
                batcher(np.array([1]), timeout=0.01)
        finally:
            batcher.close()
        with pytest.raises(example.Busy, match="closing"):
            batcher(np.array([1]))


def test_calls_that_are_waiting_are_finished_at_the_end(example):
    with gf.Graph() as g:
        x = gf.placeholder(("batch",), name="x")
        y = x * 2
    with gf.Session(g) as session:
        plan = session.compile({"y": y}, feeds=[x])
        batcher = example.Batcher(plan, rows=4, wait=0.05, waiting=100)
        with ThreadPoolExecutor(20) as pool:
            calls = [pool.submit(batcher, np.full(3, i, np.float32)) for i in range(20)]
            while batcher.calls < 20:
                time.sleep(0.001)
            batcher.close()
            assert [float(call.result()["y"][0]) for call in calls] == [2.0 * i for i in range(20)]


@pytest.mark.slow
def test_serving_from_training_to_sigterm(tmp_path):
    """Train, compare under load, and end a server by a signal while it answers."""
    command = [sys.executable, str(FILE)]
    done = subprocess.run(
        [*command, "serve"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stderr == "no model in serve-out: run `serve.py train` first\n"
    for mode in (["train"], ["load", "--threads", "8", "--requests", "40"]):
        done = subprocess.run(
            [*command, *mode], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert "have the bits of single requests" in done.stdout
    process = subprocess.Popen(
        [*command, "serve", "--port=0", "--wait=500"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    port = int(process.stdout.readline().split()[-1])
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("POST", "/predict", json.dumps({"image": [ROW]}), JSON)
    time.sleep(0.2)  # it waits for others now
    process.send_signal(signal.SIGTERM)
    answer = connection.getresponse()
    assert answer.status == 200
    assert len(json.loads(answer.read())["scores"][0]) == 10
    connection.close()
    rest, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "1 calls in 1 runs" in rest
