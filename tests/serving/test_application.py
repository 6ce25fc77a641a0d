"""The server itself: access, limits, errors in one shape, the page, load, malformed requests, the end."""

from __future__ import annotations

import asyncio
import base64
import html
import json
import logging
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from benchmarks.http_client import Answer, exchange, fuzz, load, message, post, send

from cvgnn.errors import CvgnnError
from cvgnn.serving.application import Application, bind, check_access, make_server, new_node
from cvgnn.serving.predictor import Limits, Predictor
from tests.serving.runs import NAMES, F, small_graph, small_run
from tests.training.test_edge_tasks import random_links

TOKEN = "secret-Token"
BEARER = {"authorization": f"Bearer {TOKEN}"}


@contextmanager
def serving(application: Application) -> Iterator[int]:
    """The port of a server in a thread."""
    with bind("127.0.0.1", 0) as listener:
        server = make_server(application)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(30)
            application.worker.shutdown()


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return Predictor(small_run(graph=small_graph(node_names=None)))


@pytest.fixture(scope="module")
def port(predictor: Predictor) -> Iterator[int]:
    with serving(Application(predictor, token=None)) as found:
        yield found


@pytest.fixture(scope="module")
def locked(predictor: Predictor) -> Iterator[int]:
    with serving(Application(predictor, token=TOKEN)) as found:
        yield found


def error(answer: Answer) -> tuple[int, str]:
    found = answer.value["error"]
    assert list(answer.value) == ["error"]
    assert found["status"] == answer.status
    return answer.status, found["message"]


def test_answers(port: int, predictor: Predictor) -> None:
    for path, body in (
        ("/predict", {"nodes": [3, "4"]}),
        ("/predict/new", {"nodes": [{"features": {"0": 1}, "neighbors": [2]}]}),
        ("/embeddings", {"nodes": [3], "layer": 2}),
    ):
        ask = {"/predict": predictor.predict, "/predict/new": predictor.predict_new, "/embeddings": predictor.embed}[
            path
        ]
        answer = send(port, post(path, body))
        assert (answer.status, answer.value) == (200, json.loads(json.dumps(ask(body))))
    assert send(port, message("GET", "/health")).value == {"status": "ok"}
    assert send(port, message("GET", "/info")).value == predictor.describe()


def test_errors_have_one_shape(port: int) -> None:
    assert error(send(port, message("GET", "/nope"))) == (404, "there is nothing at this address")
    assert error(send(port, message("GET", "/predict"))) == (405, "this address has another method")
    assert error(send(port, message("POST", "/predict", b"{"))) == (
        400, "the body is not valid JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1))"
    )  # fmt: skip
    assert error(send(port, post("/predict", [3]))) == (400, "the body is not a JSON object")
    assert error(send(port, post("/predict", {"nodes": [999]}))) == (
        404,
        "node '999' is not in the graph; its node ids are 0..59",
    )
    assert error(send(port, post("/predict", {}))) == (422, "the request lacks 'nodes'; it may have nodes, columns")


def test_the_size_of_a_body(predictor: Predictor) -> None:
    small = object.__new__(Predictor)
    vars(small).update(vars(predictor), limits=Limits(body=100))
    with serving(Application(small, token=None)) as port:
        assert send(port, post("/predict", {"nodes": [3]})).status == 200
        stated = message("POST", "/predict", content_length="101")
        sent = message("POST", "/predict", transfer_encoding="chunked") + b"65\r\n" + b" " * 101 + b"\r\n"
        for request in (stated, sent):
            assert error(send(port, request)) == (413, "the body is larger than 100 bytes")


def test_the_token(locked: int) -> None:
    basic = base64.b64encode(f"anybody:{TOKEN}".encode()).decode()
    for given in (f"Bearer {TOKEN}", f"bearer {TOKEN}", f"Basic {basic}"):
        assert send(locked, post("/predict", {"nodes": [3]}, authorization=given)).status == 200
    for path in ("/", "/info", "/metrics", "/predict", "/nope"):
        status, text = error(send(locked, message("GET", path, authorization=f"Bearer {TOKEN[:-1]}")))
        assert (status, text[:28]) == (401, "this server needs its token:")
    assert send(locked, message("GET", "/health")).status == 200


def test_a_page_elsewhere_cannot_read_through_a_browser(port: int, locked: int) -> None:
    """DNS rebinding: evil.example may resolve to 127.0.0.1, but the browser still names it as the host."""

    def asked(port: int, host: str, more: str = "") -> int:
        return send(port, f"GET /info HTTP/1.1\r\nhost: {host}\r\n{more}\r\n".encode()).status

    for host, status in (
        ("localhost", 200),
        (f"127.0.0.1:{port}", 200),
        ("[::1]:80", 200),
        ("evil.example", 421),
        ("", 421),
        ("evil:127.0.0.1", 421),
    ):
        assert asked(port, host) == status, host
    assert asked(locked, "any.example", f"authorization: Bearer {TOKEN}\r\n") == 200


def test_access_from_other_machines() -> None:
    with bind("0.0.0.0", 0) as listener:
        with pytest.raises(
            CvgnnError, match="everybody who reaches this address could read the predictions; set a token"
        ):
            check_access(listener, None)
        assert not check_access(listener, "a")
        taken = listener.getsockname()[1]
        with pytest.raises(
            CvgnnError, match=f"cannot listen on 0.0.0.0, port {taken}: Address already in use; choose another"
        ):
            bind("0.0.0.0", taken)
    with pytest.raises(CvgnnError, match=r"cannot listen on no\.such\.host\.invalid"):
        bind("no.such.host.invalid", 0)
    with bind("localhost", 0) as listener:
        assert check_access(listener, None)


def test_the_page() -> None:
    """Every id is escaped, every neighbor a link, and nothing is loaded from anywhere."""
    with serving(Application(Predictor(small_run()), token=None)) as port:
        head = send(port, message("GET", "/"))
        name = urllib.parse.quote(NAMES[5])
        page = send(port, message("GET", f"/?node={name}")).body.decode()
        assert head.status == 200
        assert "<svg viewBox" in page
        assert "<b>" not in page
        assert html.escape(NAMES[5]) in page.replace("&#34;", "&quot;").replace("&#39;", "&#x27;")
        assert not re.search(r"<script|<link|<img|src=|@import|url\(|https?://(?!localhost)", page)
        links = re.findall(r'href="\?node=([^"]+)"', page)
        assert links
        for link in links:
            assert send(port, message("GET", f"/?node={link}")).status == 200
        missing = send(port, message("GET", "/?node=%3Cscript%3E%ED%A0%80"))
        assert missing.status == 404
        assert b'role="alert"' in missing.body
        assert b"<script" not in missing.body
    with serving(Application(Predictor(small_run(graph=random_links(), task="link")), token=None)) as port:
        page = send(port, message("GET", "/?source=3&target=4")).body.decode()
        assert "probability" in page
        assert "Pair 3 – 4" in page


def page_of(port: int, **fields: str) -> tuple[int, str]:
    answer = send(port, message("GET", f"/?{urllib.parse.urlencode(fields)}"))
    return answer.status, answer.body.decode()


def test_the_form_for_a_new_node(port: int, predictor: Predictor) -> None:
    """Its fields are the request that a program sends."""
    node = {"id": "new", "features": {"0": 1.0, "4": -0.5}, "neighbors": ["3", "14"]}
    (row,) = predictor.predict_new({"nodes": [node]})["predictions"]
    for features in ("0:1 4:-0.5", "1 0 0 0 -0.5"):
        status, page = page_of(port, neighbors="3\r\n 14\n\n", features=features)
        assert status == 200
        assert f"<td>{row['class']}</td>" in re.sub(r"<td>.*</svg> ", "<td>", page)
        assert f'<meter min="0" max="1" value="{row["p_red"]}"' in page
        assert f'value="{features}"' in page
        assert ">\n3\r\n 14\n\n</textarea>" in page
    for fields, status, said in (
        ({"neighbors": "999"}, 404, "node &#39;999&#39; is not in the graph; its node ids are 0..59"),
        ({"neighbors": "", "features": "1 2"}, 422, "nodes[0].features must be a list of 5 numbers"),
        ({"neighbors": "", "features": "0:<b>"}, 422, "features has &#39;&lt;b&gt;&#39;, which is not a number"),
        ({"neighbors": "3", "id": "3"}, 422, "&#39;3&#39; is in the graph already; ask for it by its id"),
        ({"neighbors": "3", "weights": "1"}, 422, "the graph&#39;s edges have no weights; leave them out"),
    ):
        found, page = page_of(port, **fields)
        assert found == status
        assert said in page


def test_the_fields_are_columns_and_weights() -> None:
    form = {"neighbors": "a b\nc", "weights": "1 0.5", "column age": " 41 ", "column place": "", "column v": "1 2"}
    assert new_node(form, {"age": "numeric", "place": "categorical", "v": "vector"}) == {
        "id": "new", "neighbors": ["a b", "c"], "weights": [1.0, 0.5], "columns": {"age": "41", "place": None, "v": [1.0, 2.0]},
    }  # fmt: skip


def test_the_policy_allows_the_style_alone(port: int) -> None:
    async def head() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(message("GET", "/"))
        found = await reader.readuntil(b"\r\n\r\n")
        writer.close()
        return found

    text = asyncio.run(head()).decode()
    assert re.search(
        r"content-security-policy: default-src 'none'; style-src 'sha256-[\w+/]{43}='; form-action 'self'", text
    )


def test_metrics(predictor: Predictor) -> None:
    with serving(Application(predictor, token=None)) as port:
        for _ in range(3):
            send(port, post("/predict", {"nodes": [3]}))
        for path in ("/nope1", "/nope2"):
            send(port, message("GET", path))
        text = send(port, message("GET", "/metrics")).body.decode()
    assert 'cvgnn_requests_total{path="/predict",status="200"} 3' in text
    assert 'cvgnn_requests_total{path="other",status="404"} 2' in text
    assert 'cvgnn_request_seconds_count{path="/predict"} 3' in text
    counts = [int(n) for n in re.findall(r'bucket\{path="/predict",le="[^"]+"\} (\d+)', text)]
    assert counts == sorted(counts)
    assert counts[-1] == 3
    assert re.fullmatch(r"(# (HELP|TYPE) \w+ .+\n|\w+(\{\w+=\"[^\"]*\"(,\w+=\"[^\"]*\")*\})? [\d.]+\n)+", text)


def test_a_full_queue(predictor: Predictor) -> None:
    """One request more than the queue holds gets 503 at once; those that wait are answered."""
    application, gate = Application(predictor, token=None, queue=2), threading.Event()
    application.worker.submit(gate.wait, 30)

    async def run(port: int) -> list[int]:
        waiting = [asyncio.create_task(exchange(port, post("/predict", {"nodes": [3]}))) for _ in range(2)]
        while application.metrics.waiting < 2:
            await asyncio.sleep(0.01)
        refused = await exchange(port, post("/predict", {"nodes": [3]}))
        healthy = await exchange(port, message("GET", "/health"))  # the loop is not blocked
        gate.set()
        assert error(refused) == (503, "too many requests are waiting; try again later")
        return [healthy.status, *(answer.status for answer in await asyncio.gather(*waiting))]

    with serving(application) as port:
        assert asyncio.run(run(port)) == [200, 200, 200]


def test_a_bug_is_a_500_without_details(predictor: Predictor, caplog: pytest.LogCaptureFixture) -> None:
    broken = object.__new__(Predictor)
    vars(broken).update(vars(predictor))

    def fail(body: Any) -> None:
        raise RuntimeError("the secret of the house")

    object.__setattr__(broken, "predict", fail)
    with serving(Application(broken, token=None)) as port, caplog.at_level(logging.ERROR):
        answer = send(port, post("/predict", {"nodes": [3]}))
        assert error(answer) == (500, "an error of this server; its log has the details")
    assert "the secret of the house" in caplog.text


def test_two_hundred_clients(locked: int) -> None:
    """`benchmarks/serve.py` runs them for a minute."""
    kinds = {
        "predict": lambda rng: post("/predict", {"nodes": [rng.randrange(60)]}, **BEARER),
        "new": lambda rng: post("/predict/new", {"nodes": [{"features": {"0": 1}, "neighbors": [rng.randrange(60)]}]}, **BEARER),
        "page": lambda rng: message("GET", f"/?node={rng.randrange(60)}", **BEARER),
    }  # fmt: skip
    found = asyncio.run(load(locked, kinds, clients=200, seconds=1.0))
    assert set(found.statuses) == {200}
    assert found.statuses.total() >= 200


@pytest.mark.parametrize("seed", [0, 1])
def test_malformed_requests(locked: int, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """`benchmarks/serve.py` sends 5,000."""
    probe = post("/predict", {"nodes": list(range(60))}, **BEARER)
    before = send(locked, probe)
    found = asyncio.run(fuzz(locked, 150, num_features=F, token=TOKEN, seed=seed))
    assert found.wrong == []
    assert len(found.statuses) == 18  # all kinds
    assert send(locked, probe) == before
    assert caplog.text == ""


def test_requests_in_flight_are_answered_after_a_signal(tmp_path: Path) -> None:
    """SIGTERM while a body is half sent: the rest is read, the answer comes, the exit code is 0."""
    small_run(tmp_path / "run", graph=cvgnn_file(tmp_path))
    command = [
        sys.executable,
        "-m",
        "cvgnn",
        "serve",
        str(tmp_path / "run"),
        "--port",
        "0",
        "--graph",
        str(tmp_path / "graph.npz"),
    ]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([*command, "--json"], **pipes, text=True, env={**os.environ, "CVGNN_TOKEN": TOKEN})
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        while "Ctrl-C ends it" not in line:
            assert line, "the server ended"
            line = process.stderr.readline()
        port = int(re.findall(r"127\.0\.0\.1:(\d+)", line)[0])
        request = post("/predict", {"nodes": [3]}, **BEARER)
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(request[:-5])
            while send(port, message("GET", "/health")).status != 200:
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            connection.sendall(request[-5:])
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        assert process.wait(60) == 0
        rest, said = process.communicate()
        assert "2 requests answered" in said
        assert json.loads(rest) == {"run": str(tmp_path / "run"), "address": f"http://127.0.0.1:{port}", "requests": 2}
    finally:
        process.kill()
        process.communicate()


def cvgnn_file(folder: Path) -> Any:
    """A graph, and the same in graph.npz."""
    import numpy as np

    graph = small_graph(node_names=None)
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr.numpy()))
    np.savez(
        folder / "graph.npz", edge_index=np.stack([rows, graph.indices.numpy()]), x=graph.x.numpy(), y=graph.y.numpy(),  # type: ignore[union-attr]
        train_ids=graph.train_ids.numpy(), val_ids=graph.val_ids.numpy(), test_ids=graph.test_ids.numpy(),
    )  # fmt: skip
    return graph


def test_load_is_seeded() -> None:
    from benchmarks.http_client import malformed

    one, other = (malformed(random.Random(3), num_features=F, token=TOKEN) for _ in range(2))
    assert one == other
