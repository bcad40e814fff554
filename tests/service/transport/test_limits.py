"""Tests of limits per client, with the service process as users start it, over sockets."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest

from anabranch_service.transport.limits import HEADER_BYTES
from tests.service.api.test_process import environment
from tests.service.conftest import PAIR, STREAMS
from tests.support.worlds.access import bearer
from tests.support.worlds.service import eventually

#: Limits of the tested process: seconds instead of the default minutes.
SECONDS, CONNECTIONS, BODY = 1.0, 24, 64 * 1024
LARGE = 24 * 1024 * 1024
#: More chunks of 4 KiB than socket buffers hold.
CHUNKS = 20_000
NOW = "POST /v1/streams HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@contextmanager
def process(redis: str, folder: Path, *more: str) -> Iterator[int]:
    """Return the port of a service process with small limits."""
    port_file = folder / "port"
    started = subprocess.Popen(
        [
            *(sys.executable, "-m", "anabranch_service", "--port", "0", "--mode", "step"),
            *("--port-file", str(port_file), "--namespace", f"limits{folder.name}"),
            *("--redis-url", redis, "--request-seconds", str(SECONDS)),
            *("--connections", str(CONNECTIONS), "--body-limit", str(BODY), *more),
        ],
        env=environment(),
        stderr=(folder / "log").open("w"),
        cwd=folder,
    )
    try:
        eventually(lambda: port_file.exists() or started.poll() is not None, "it listens")
        assert started.poll() is None, (folder / "log").read_text()
        yield int(port_file.read_text())
        assert "Traceback" not in (folder / "log").read_text()
    finally:
        started.kill()
        started.wait()


@pytest.fixture(scope="module")
def port(redis: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with process(redis, tmp_path_factory.mktemp("limits")) as found:
        yield found


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def rest_of(connection: socket.socket) -> bytes:
    """Return everything that is sent until the other side closes."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def healthy(port: int) -> bool:
    return (
        httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=60, verify=False).status_code == 200
    )


def test_a_header_that_never_ends(port: int) -> None:
    started = time.monotonic()
    with closing(connect(port)) as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: ")
        assert rest_of(slow).startswith(b"HTTP/1.1 408")
    assert SECONDS * 0.8 < time.monotonic() - started < SECONDS + 4


def test_a_header_a_byte_at_a_time(port: int) -> None:
    """Bytes that continue to arrive do not extend the deadline."""
    started = time.monotonic()
    with closing(connect(port)) as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        for _ in range(100):
            try:
                slow.sendall(b"X")
            except OSError:
                break
            time.sleep(0.05)
        assert b"200 OK" not in rest_of(slow)
    assert time.monotonic() - started < SECONDS + 5


def test_a_connection_that_says_nothing(port: int) -> None:
    with closing(connect(port)) as silent:
        assert rest_of(silent).startswith(b"HTTP/1.1 408")


def test_a_second_request_that_never_ends(port: int) -> None:
    with closing(connect(port)) as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" in slow.recv(65536)
        slow.sendall(b"GET /healthz HTTP/1.1\r\n")
        assert b"408" in rest_of(slow)


@pytest.mark.parametrize("length", ["Content-Length: 100", "Transfer-Encoding: chunked"])
def test_a_body_that_never_ends(port: int, length: str) -> None:
    with closing(connect(port)) as slow:
        slow.sendall(
            f"{NOW}{length}\r\n\r\n".encode() + (b"" if "100" in length else b"5\r\n{\r\n")
        )
        answer = rest_of(slow)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"body-too-slow" in answer
    assert b"connection: close" in answer.lower()


def test_a_body_that_no_route_reads(port: int) -> None:
    """The answer is sent at once, and the connection is closed."""
    with closing(connect(port)) as slow:
        slow.sendall(
            NOW.replace("/v1/streams", "/nothing").encode() + b"Content-Length: 9999\r\n\r\n"
        )
        started = time.monotonic()
        for _ in range(200):
            try:
                slow.sendall(b"x")
            except OSError:
                break
            time.sleep(0.05)
        assert b"404" in rest_of(slow)[:20]
    assert time.monotonic() - started < 2 * SECONDS + 5


def test_a_body_that_says_how_large_it_is(port: int) -> None:
    with closing(connect(port)) as large:
        large.sendall(f"{NOW}Content-Length: {BODY + 1}\r\n\r\n".encode())
        assert rest_of(large).startswith(b"HTTP/1.1 413")


@pytest.fixture(scope="module")
def roomy(redis: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Port of a service whose body limit exceeds socket buffers."""
    more = ("--body-limit", str(LARGE // 3), "--request-seconds", "20")
    with process(redis, tmp_path_factory.mktemp("roomy"), *more) as found:
        yield found


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("path", ["/v1/streams", "/nothing"])
def test_a_client_that_sends_all_of_a_large_body_sees_the_answer(
    roomy: int, path: str, chunked: bool
) -> None:
    """If the connection were closed at once, sending would fail before the answer is read."""
    piece = LARGE // 16 * b"1"
    content = (piece for _ in range(16)) if chunked else 16 * piece
    with closing(HTTPConnection("127.0.0.1", roomy, timeout=60)) as plain:
        plain.request("POST", path, content, {"content-type": "application/json"})
        # The size of a chunked body is known only when a route reads it; ``/nothing`` reads none.
        assert plain.getresponse().status == (404 if chunked and path == "/nothing" else 413)


def test_curl_sees_the_answer_to_a_large_body(roomy: int, tmp_path: Path) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("no curl")
    (tmp_path / "body").write_bytes(LARGE * b"1")
    sent = ("-H", "Content-Type: application/json", "--data-binary", f"@{tmp_path / 'body'}")
    url = f"http://127.0.0.1:{roomy}/v1/streams"
    for expect in ((), ("-H", "Expect:")):
        found = subprocess.run([curl, "-sS", *sent, *expect, url], capture_output=True, text=True)
        assert "body-too-large" in found.stdout, found.stderr


def test_more_of_a_body_than_is_dropped_ends_the_connection(roomy: int) -> None:
    with closing(connect(roomy)) as large:
        large.sendall(f"{NOW}Content-Length: {100 * LARGE}\r\n\r\n".encode())
        assert large.recv(12) == b"HTTP/1.1 413"
        with pytest.raises(OSError, match=r"reset|Broken pipe"):
            large.sendall(10 * LARGE * b"1")


def test_a_key_that_is_there_twice_is_refused(port: int) -> None:
    headers = {"content-type": "application/json"}
    for body in (
        '{"name": "s", "name": "t", "columns": {"a": "int"}}',
        '{"name": "s", "columns": {"a": "int", "a": "string"}}',
        '{"name": "s", "columns": [{"name": "a", "type": "int", "\\u0074ype": "string"}]}',
    ):
        found = httpx.post(
            f"http://127.0.0.1:{port}/v1/streams", content=body, headers=headers, timeout=60
        )
        assert (found.status_code, found.json()["code"]) == (400, "duplicate-key")
        assert found.json()["remedy"]
    rows = '{"rows": [{"a": 1, "a": 2}]}'
    url = f"http://127.0.0.1:{port}/v1/streams/any/rows"
    assert (
        httpx.post(url, content=rows, headers=headers, timeout=60).json()["code"] == "duplicate-key"
    )


def test_a_body_that_does_not(port: int) -> None:
    with closing(connect(port)) as large:
        large.sendall(f"{NOW}Transfer-Encoding: chunked\r\n\r\n".encode())
        chunk = b"1000\r\n" + 4096 * b"x" + b"\r\n"
        sent = 0
        try:
            for _ in range(CHUNKS):
                large.sendall(chunk)
                sent += 4096
        except OSError:
            pass
        answer = rest_of(large)
    assert answer == b"" or b"body-too-large" in answer
    assert sent < CHUNKS * 4096
    with closing(connect(port)) as just:
        just.sendall(
            f"{NOW}Transfer-Encoding: chunked\r\n\r\n".encode() + 15 * chunk + b"0\r\n\r\n"
        )
        assert just.recv(65536).startswith(b"HTTP/1.1 400")


def test_a_body_where_none_belongs(port: int) -> None:
    for method in ("GET", "DELETE"):
        found = httpx.request(
            method, f"http://127.0.0.1:{port}/v1/streams/x", content=b"{}", timeout=60
        )
        assert found.status_code == 400
        assert found.json()["code"] == "unexpected-body"


@pytest.mark.parametrize("size", [HEADER_BYTES - 1024, HEADER_BYTES + 2048, 4 * HEADER_BYTES])
@pytest.mark.parametrize("fields", [1, 100])
def test_a_header_that_is_large(port: int, size: int, fields: int) -> None:
    with closing(connect(port)) as large:
        values = [f"x-{n:03}: {'v' * (size // fields - 7)}\r\n" for n in range(fields)]
        head = f"GET /healthz HTTP/1.1\r\nHost: localhost\r\n{''.join(values)}\r\n"
        with suppress(OSError):
            large.sendall(head.encode())
        first = rest_of(large)[:15] if size > HEADER_BYTES else large.recv(15)
    if size > HEADER_BYTES:
        # Read in one piece or in several; either way it is refused.
        assert first in (b"HTTP/1.1 431 Re", b"HTTP/1.1 400 Ba", b""), first
    else:
        assert first == b"HTTP/1.1 200 OK"


def test_connections_are_bounded_and_idle_ones_end(port: int) -> None:
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            stack.enter_context(closing(connect(port)))
        with closing(connect(port)) as one_more:
            assert rest_of(one_more).startswith(b"HTTP/1.1 503")
        # Silent connections are closed by then, and new ones are served.
        eventually(lambda: _served(port), "others are served")


def _served(port: int) -> bool:
    try:
        return healthy(port)
    except httpx.HTTPError:
        return False


def test_who_does_not_read_is_cut_off(port: int) -> None:
    """A client that requests much and reads nothing must not keep its answer in memory."""
    for n in range(40):
        columns = {f"{'c' * 200}{i}": "bigint" for i in range(200)}
        body = {"name": f"wide{n}", "columns": columns}
        found = httpx.post(
            f"http://127.0.0.1:{port}/v1/streams", json=body, verify=False, timeout=60
        )
        assert found.status_code in (200, 201)
    with closing(socket.socket()) as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.settimeout(20)
        lazy.connect(("127.0.0.1", port))
        for _ in range(4):
            lazy.sendall(b"GET /v1/streams HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(3 * SECONDS)
        got = len(rest_of(lazy))
    assert got < 4 * len(httpx.get(f"http://127.0.0.1:{port}/v1/streams", timeout=60).content)
    assert healthy(port)


def test_deeply_nested_bodies_are_the_clients_fault(port: int) -> None:
    base = f"http://127.0.0.1:{port}"
    headers = {"content-type": "application/json"}
    for depth in (50, 200, 300, 900, 990, 1100, 20_000):
        for name in ("/v1/queries", "/v1/plans:dry-run", "/v1/streams", "/v1/queries:explain"):
            for opening, closing_ in (("[", "]"), ('{"a":', "}")):
                nested = opening * depth + "1" + closing_ * depth
                wrapped = '{"query": {"from": %s}, "sql": %s, "add": [{"query": %s}]}'
                content = wrapped % (nested, nested, nested)
                if len(content) >= BODY:
                    continue
                found = httpx.post(
                    base + name, content=content, headers=headers, verify=False, timeout=60
                )
                assert found.status_code in (400, 422), (depth, name, found.text[:200])
    assert healthy(port)


def test_beyond_loopback_it_starts_with_a_token_in_a_file(redis: str, tmp_path: Path) -> None:
    file = tmp_path / "anabranch-admin.token"
    with process(redis, tmp_path, "--host", "0.0.0.0") as port:
        base = f"http://127.0.0.1:{port}"
        assert httpx.get(f"{base}/healthz", timeout=60).status_code == 200
        assert httpx.get(f"{base}/readyz", timeout=60).status_code == 401
        token = file.read_text().strip()
        assert httpx.get(f"{base}/readyz", headers=bearer(token), timeout=60).status_code == 200
        log = (tmp_path / "log").read_text()
        assert str(file.name) in log
        assert token not in log
        assert file.stat().st_mode & 0o777 == 0o600


def test_it_does_not_start_beyond_loopback_without_tokens(redis: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "anabranch_service", "--host", "0.0.0.0", "--auth", "off"]
    ended = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert ended.returncode == 2
    assert "auth" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_it_does_not_start_with_a_token_file_it_can_not_use(redis: str, tmp_path: Path) -> None:
    (tmp_path / "anabranch-admin.token").write_text("hunter2")
    command = [sys.executable, "-m", "anabranch_service", "--host", "0.0.0.0", "--port", "0"]
    ended = subprocess.run(
        [*command, "--redis-url", redis],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert ended.returncode == 2
    assert "remove the file" in ended.stderr
    assert "hunter2" not in ended.stderr
    assert "Traceback" not in ended.stderr


def test_https(redis: str, tmp_path: Path) -> None:
    made = subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", "key.pem", "-out", "cert.pem"),
        ],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("no openssl to make a certificate with")
    with process(redis, tmp_path, "--tls-cert", "cert.pem", "--tls-key", "key.pem") as port:
        trusted = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        found = httpx.get(f"https://127.0.0.1:{port}/readyz", verify=trusted, timeout=60)
        assert found.status_code == 200
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=60)


def test_tails_leave_room_for_others(redis: str, tmp_path: Path) -> None:
    follow = b"GET /v1/queries/pair/results HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with (
        process(redis, tmp_path) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http,
    ):
        for stream in STREAMS:
            http.post("/v1/streams", json=stream)
        http.post("/v1/queries", json={"id": "pair", "sql": PAIR})
        with ExitStack() as stack:
            for _ in range(CONNECTIONS // 2):
                tail = stack.enter_context(closing(connect(port)))
                tail.sendall(follow)
                assert tail.recv(12) == b"HTTP/1.1 200"
            with closing(connect(port)) as one_more:
                one_more.sendall(
                    b"GET /v1/queries/pair/results HTTP/1.1\r\nHost: localhost\r\n\r\n"
                )
                assert one_more.recv(12) == b"HTTP/1.1 503"
            assert http.get("/healthz").status_code == 200
