"""Connections of the service send what they have at once."""

from __future__ import annotations

import socket

import uvicorn

from anabranch_service.transport.serving import listening_socket


def test_an_accepted_connection_does_not_wait_for_acknowledgements() -> None:
    # Every request of a kept connection took 44 ms.
    config = uvicorn.Config("unused", host="127.0.0.1", port=0, log_config=None)
    with (
        listening_socket(config) as listening,
        socket.create_connection(_listen(listening)),
        listening.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def _listen(listening: socket.socket) -> tuple[str, int]:
    listening.listen()
    host, port = listening.getsockname()
    return host, port
