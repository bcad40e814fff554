"""Tests of the connections between tasks and driver: refused without the token, at the configured
address.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from anabranch_client.processes.children import free_port
from anabranch_runtime.errors import PipelineError
from anabranch_runtime.exchange import lines
from anabranch_runtime.exchange.complaints import own_version
from anabranch_runtime.exchange.lines import DriverAddress, DriverMessage, TaskListener, call_driver


@pytest.fixture
def listener() -> Iterator[TaskListener]:
    found = TaskListener("127.0.0.1")
    yield found
    found.close()


class Mark:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def raw(address: DriverAddress) -> Connection:
    """Return a connection without a handshake."""
    client = socket.create_connection((address.host, address.port))
    client.settimeout(None)
    return Connection(client.detach())


def read_all(line: Connection) -> None:
    """Read until the connection is closed."""
    while True:
        line.recv_bytes()


def test_a_task_is_known_by_stage_number_host_and_version(listener: TaskListener) -> None:
    line = call_driver(listener.address, "s", 1, ["a", "b"])
    called = listener.take(60)
    assert called is not None
    assert (called[0].stage, called[0].task, called[0].host) == ("s", 1, "b")
    assert called[0].version == own_version()
    called[1].send_bytes(pickle.dumps(DriverMessage(1, "work")))
    assert line.next_order() == "work"
    called[1].close()
    assert line.next_order() is None
    with pytest.raises(PipelineError, match=f"127.0.0.1:{listener.address.port}"):
        line("hello")


def test_a_peer_without_the_token_is_refused_undecoded(
    listener: TaskListener, tmp_path: Path
) -> None:
    stranger = replace(listener.address, token="guessed")
    with pytest.raises(PipelineError, match="can't reach the driver") as caught:
        call_driver(stranger, "s", 0, ["a"])
    assert caught.value.code == "driver-unreachable"
    line = raw(listener.address)
    for _ in range(3):
        line.send_bytes(pickle.dumps(Mark(tmp_path / "decoded"))[:64])
    with pytest.raises((EOFError, OSError)):
        read_all(line)
    assert listener.take(0.2) is None
    assert not (tmp_path / "decoded").exists()


def test_a_task_decodes_nothing_of_another_driver(listener: TaskListener, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            line = Connection(server.accept()[0].detach())
            line.send_bytes(bytes(32))
            line.send_bytes(bytes(32))
            line.send_bytes(pickle.dumps(DriverMessage(1, Mark(tmp_path / "decoded"))))

        threading.Thread(target=answer, daemon=True).start()
        other = replace(listener.address, port=server.getsockname()[1])
        with pytest.raises(PipelineError, match="can't reach the driver"):
            call_driver(other, "s", 0, ["a"])
    assert not (tmp_path / "decoded").exists()


def test_a_proof_can_not_be_sent_back_to_its_sender(listener: TaskListener) -> None:
    line = raw(listener.address)
    line.send_bytes(line.recv_bytes())
    line.send_bytes(line.recv_bytes())
    assert listener.take(0.5) is None


def test_long_and_slow_callers_hold_up_nobody(
    listener: TaskListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "PATIENCE", 5.0)
    silent = [raw(listener.address) for _ in range(5)]
    long = raw(listener.address)
    os.write(long.fileno(), struct.pack("!i", 1 << 30) + bytes(100))
    began = time.monotonic()
    call_driver(listener.address, "s", 0, ["a"])
    assert listener.take(60) is not None
    assert time.monotonic() - began < 5.0
    for line in (*silent, long):
        with pytest.raises((EOFError, OSError)):
            read_all(line)
    assert time.monotonic() - began < 60


def test_a_task_gives_few_signs(listener: TaskListener, monkeypatch: pytest.MonkeyPatch) -> None:
    line = call_driver(listener.address, "s", 0, ["a"])
    called = listener.take(60)
    assert called is not None
    called[1].send_bytes(pickle.dumps(DriverMessage(1, "work")))
    line.next_order()
    for _ in range(1000):
        line.sign()
    assert not called[1].poll(0.1)
    monkeypatch.setattr(line, "_next", 0.0)
    for _ in range(1000):
        line.sign()
    assert pickle.loads(called[1].recv_bytes()).kind is lines.MessageKind.SIGN
    assert not called[1].poll(0.1)


def test_a_driver_that_has_gone_is_named_with_the_remedy(listener: TaskListener) -> None:
    listener.close()
    with pytest.raises(PipelineError, match=f"127.0.0.1:{listener.address.port}") as caught:
        call_driver(listener.address, "s", 0, ["a"])
    assert "spark.driver.host" in caught.value.remedy


def test_the_token_is_not_in_texts(listener: TaskListener) -> None:
    assert listener.address.token not in repr(listener)


def test_tasks_call_another_name_than_the_driver_listens_on() -> None:
    port = free_port()
    listener = TaskListener("localhost", port, "127.0.0.1")
    assert (listener.address.host, listener.address.port) == ("localhost", port)
    call_driver(listener.address, "s", 0, ["a"])
    assert listener.take(60) is not None
    listener.close()
    # The port is available again at once.
    TaskListener("localhost", port, "127.0.0.1").close()


def test_a_port_that_is_taken_is_named_with_the_remedy(listener: TaskListener) -> None:
    port = listener.address.port
    with pytest.raises(PipelineError, match=f"can't listen on 127.0.0.1:{port}") as caught:
        TaskListener("127.0.0.1", port)
    assert caught.value.code == "no-port"
    assert "--meeting-port" in str(caught.value)


def test_an_address_of_another_host_is_named_with_the_remedy() -> None:
    with pytest.raises(PipelineError, match=r"can't listen on 192.0.2.77:\(any port\)") as caught:
        TaskListener("127.0.0.1", bind="192.0.2.77")
    assert "spark.driver.bindAddress" in str(caught.value)


def test_a_listener_that_closes_ends_lines_that_nobody_has_taken(listener: TaskListener) -> None:
    taken = call_driver(listener.address, "s", 0, ["a", "b"])
    called = listener.take(60)
    assert called is not None
    untaken = call_driver(listener.address, "s", 1, ["a", "b"])
    time.sleep(0.1)
    listener.close()
    assert untaken.next_order() is None
    called[1].send_bytes(pickle.dumps(DriverMessage(1, "batch")))
    assert taken.next_order() == "batch"
