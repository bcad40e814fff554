"""Tests of the command ``anabranch doctor``."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from tests.support.surroundings.terminal import in_terminal, piped

CHECKS = ["Python", "packages", "Java", "folder", "held by", "port", "Redis"]


def test_a_line_for_each_check_where_all_is_in_order(tmp_path: Path) -> None:
    done = piped("doctor", "--dir", str(tmp_path / "home"), "--port", "0")
    assert (done.code, done.stderr) == (0, ""), done
    lines = done.stdout.splitlines()
    assert [line.split(maxsplit=1)[0] for line in lines] == ["ok"] * len(CHECKS), done.stdout
    for line, check in zip(lines, CHECKS, strict=True):
        assert line.split(maxsplit=1)[1].startswith(check)
    assert not (tmp_path / "home").exists()


def test_what_fails_is_said_with_its_remedy_and_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        arguments = ("doctor", "--dir", str(tmp_path / "file"), "--port", port)
        redis = "redis://127.0.0.1:1/0"
        done = piped(*arguments, ANABRANCH_REDIS_URL=redis, JAVA_HOME=str(tmp_path))
        told = piped(*arguments, "--json", ANABRANCH_REDIS_URL=redis, JAVA_HOME=str(tmp_path))
        narrow = in_terminal(50, *arguments, ANABRANCH_REDIS_URL=redis, JAVA_HOME=str(tmp_path))
    assert done.code == told.code == narrow.code == 1
    failed = [line for line in done.stdout.splitlines() if line.startswith("fail")]
    assert len(failed) == 4, done.stdout
    document = json.loads(told.stdout)
    assert document["ok"] is False
    checks = {one["check"]: one for one in document["checks"]}
    assert {name for name, one in checks.items() if one["verdict"] == "fail"} == {
        "Java", "folder", f"port {port}", "Redis",
    }  # fmt: skip
    assert all(one["remedy"] for one in checks.values() if one["verdict"] != "ok")
    assert "…" not in narrow.stdout
    assert "--port 0" in " ".join(narrow.stdout.split())


def test_a_port_that_cannot_be_is_exit_code_2() -> None:
    assert piped("doctor", "--port", "70000").code == 2
