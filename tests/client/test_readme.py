"""Test of the README's statement and its plan against a service's answer."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from anabranch_client.rest.api import Client
from tests.client.cli.test_app import run

README = Path(__file__).resolve().parents[2] / "README.md"
STREAMS = {
    "logins": ("host", "account"),
    "processes": ("host", "file"),
    "downloads": ("host", "file"),
}
RUNNING = """SELECT p.host, p.file FROM processes p
    JOIN downloads d ON d.host = p.host AND d.file = p.file"""


def test_the_statement_is_explained_as_shown(url: str, client: Client) -> None:
    section = README.read_text(encoding="utf-8").partition("## A query and its plan")[2]
    command, plan = re.findall(r"^```\w+\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    for name, texts in STREAMS.items():
        columns = [*((column, "string") for column in texts), ("ts", "timestamp")]
        client.create_stream(name, columns, event_time="ts", lateness="1 minute")
    client.create_query(RUNNING, name="run_after_download", window="10 minutes")
    name, *arguments = shlex.split(command)
    assert name == "anabranch"
    assert plan in run(*arguments, url=url).stdout
