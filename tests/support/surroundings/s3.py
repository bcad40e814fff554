"""A server of the S3 API on this machine: the library ``moto`` as a separate process."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

BUCKET = "states"
#: Program of the server: it prints its port, and ends when its standard input ends. Requests are
#: processed one at a time: the library checks the condition of a write before it writes, so of two
#: conditional writes at a time both could succeed.
SERVER = """
import sys
import threading
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication, MotoRequestHandler, create_backend_app
)
from werkzeug.serving import make_server
application, lock = DomainDispatcherApplication(create_backend_app), threading.Lock()
def answer(environ, start):
    with lock:
        return list(application(environ, start))
server = make_server("127.0.0.1", 0, answer, True, request_handler=MotoRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
sys.stdin.read()
"""


@contextmanager
def s3_server(*, closed: bool = False) -> Iterator[str]:
    """Context with a server that has a bucket ``BUCKET``; yields its address. ``closed``: every
    request is denied.
    """
    # The first request creates the bucket, and is permitted without credentials.
    rights = {"INITIAL_NO_AUTH_ACTION_COUNT": "1"} if closed else {}
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **rights},
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        address = f"127.0.0.1:{int(process.stdout.readline())}"
        request = urllib.request.Request(f"http://{address}/{BUCKET}", method="PUT")
        urllib.request.urlopen(request).close()
        yield address
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def uri(address: str, prefix: str, bucket: str = BUCKET) -> str:
    """Return the URL of an object store."""
    options = f"endpoint_override={address}&scheme=http&region=us-east-1"
    return f"s3://key:secret@{bucket}/{prefix}?{options}"
