"""Settings of uvicorn, the same in the service's process and in tests."""

from __future__ import annotations

import socket

import uvicorn
from starlette.types import ASGIApp

from anabranch_service.settings import ServiceSettings
from anabranch_service.transport.limits import HEADER_BYTES
from anabranch_service.transport.protocol import bounded

#: Maximum pause between two requests of one connection, in seconds.
KEEP_ALIVE = 5


def server_config(app: ASGIApp, settings: ServiceSettings) -> uvicorn.Config:
    """Return settings of uvicorn for ``app``."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=bounded(settings.web.connections, settings.web.request_seconds),
        ws="none",
        h11_max_incomplete_event_size=HEADER_BYTES,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=5,
        ssl_certfile=settings.web.tls_cert or None,
        ssl_keyfile=settings.web.tls_key or None,
        # Headers such as X-Forwarded-For are not trusted: any client could forge them.
        proxy_headers=False,
        server_header=False,
        log_config=None,
        access_log=False,
        lifespan="on",
    )


def listening_socket(settings: ServiceSettings) -> socket.socket:
    """Return a socket bound to the address of ``settings``, without Nagle's algorithm.

    asyncio disables the algorithm only for sockets created with an explicit protocol, which
    uvicorn's are not. With it, a response's second packet waits 40 ms for the client's delayed ACK.
    """
    address = uvicorn.Config("", host=settings.host, port=settings.port, log_config=None)
    found = address.bind_socket()
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found
