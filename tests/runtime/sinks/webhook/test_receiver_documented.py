"""Test of the webhook receiver in docs/sinks.md: it keeps each result once, whatever
is repeated.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from contextlib import closing
from pathlib import Path
from urllib.error import HTTPError

import pytest

from anabranch_client.processes.children import free_port
from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.connectors.webhook.options import webhook_options
from anabranch_runtime.sinks.webhook.receiver import Receiver
from anabranch_runtime.sinks.webhook.requests import requests_of
from anabranch_runtime.sinks.webhook.signing import keys_of
from anabranch_runtime.sinks.webhook.writer import headers_of
from tests.runtime.sinks.webhook.test_requests import delivery
from tests.support.surroundings.receiver import SECRET

PAGE = Path(__file__).parents[4] / "docs" / "sinks.md"


def test_the_documented_receiver_has_each_result_once(tmp_path: Path) -> None:
    found = re.search(r"```python\n(import base64.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    port = free_port()
    environ = {**os.environ, "ANABRANCH_SINK_HOOK": SECRET, "PORT": str(port)}
    environ["STORE"] = str(tmp_path / "store.db")
    process = subprocess.Popen(
        [sys.executable, "-c", found[1]], env=environ, stderr=subprocess.DEVNULL
    )
    try:
        url = f"http://127.0.0.1:{port}/"
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.02)
        receiver = Receiver(url, AccessPolicy(hosts=("localhost",)), 10)
        options = webhook_options({"url": url, "secret": SECRET, "rows": "2"})
        one = delivery(tmp_path, {"x": ["a", "b", "ü", "d", "d"]})
        for request in [*requests_of(one, options, "p"), *requests_of(one, options, "p")]:
            now = int(time.time())
            receiver.post(request.body, dict(headers_of(keys_of(SECRET), request, now)))
        for wrong, now in ((SECRET, int(time.time()) - 400), ("whsec_" + "A" * 44, 0)):
            moment = now or int(time.time())
            forged = headers_of(keys_of(wrong), request, moment)
            with pytest.raises(HTTPError, match="401"):
                urllib.request.urlopen(urllib.request.Request(url, request.body, dict(forged)))
    finally:
        process.kill()
        process.wait()
    with closing(sqlite3.connect(environ["STORE"])) as store:
        texts = [text for (text,) in store.execute("SELECT row FROM results WHERE query = 'q'")]
    assert [json.loads(text)["x"] for text in texts] == ["a", "b", "ü", "d", "d"]
