"""Test that the service's connections send data without delay."""

from __future__ import annotations

import socket

from anabranch_service.settings import ServiceSettings
from anabranch_service.transport.serving import listening_socket


def test_an_accepted_connection_does_not_wait_for_acknowledgements() -> None:
    # Regression: every request of a kept connection took 44 ms.
    with (
        listening_socket(ServiceSettings(port=0)) as listening,
        socket.create_connection(_listen(listening)),
        listening.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def _listen(listening: socket.socket) -> tuple[str, int]:
    listening.listen()
    host, port = listening.getsockname()
    return host, port
