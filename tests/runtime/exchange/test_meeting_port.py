"""The address and the port where tasks meet."""

from __future__ import annotations

import socket
import threading

import pytest

from anabranch_runtime.errors import PipelineError
from anabranch_runtime.exchange.meeting import Delegate, Meeting


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def test_tasks_get_everybodys_messages_at_the_port_that_was_asked_for() -> None:
    port = _free_port()
    # Tasks know the driver by another name than it listens on.
    with Meeting("localhost", port, "127.0.0.1") as meeting:
        assert meeting.place.location == f"grpc://localhost:{port}"
        answers: dict[int, list[str]] = {}

        def task(number: int) -> None:
            answers[number] = Delegate(meeting.place, "a", number, 2)(f"from {number}")

        threads = [threading.Thread(target=task, args=(n,)) for n in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert answers == {0: ["from 0", "from 1"], 1: ["from 0", "from 1"]}


def test_without_a_port_any_free_one_is_taken() -> None:
    with Meeting("127.0.0.1") as one, Meeting("127.0.0.1") as other:
        assert one.place.location != other.place.location
        assert not one.place.location.endswith(":0")


def test_a_port_that_is_taken_is_named_with_the_remedy() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PipelineError, match=f"can't listen on 127.0.0.1:{port}") as caught:
            Meeting("127.0.0.1", port)
    assert caught.value.code == "no-port"
    assert "--meeting-port" in str(caught.value)


def test_an_address_of_another_host_is_named_with_the_remedy() -> None:
    with pytest.raises(PipelineError, match=r"can't listen on 192.0.2.77:\(any port\)") as caught:
        Meeting("127.0.0.1", bind="192.0.2.77")
    assert "spark.driver.bindAddress" in str(caught.value)
