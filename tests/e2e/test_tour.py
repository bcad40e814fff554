"""Tests of the tutorial, the command line page and the tour of connectors, literally, each in an
empty folder.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest

from anabranch_client.processes.children import free_port
from tests.support.surroundings import kafka, postgres

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
API = "http://127.0.0.1:8080"
#: Maximum seconds for Spark and all that follows.
PATIENCE = 400.0


def blocks(page: str, *languages: str) -> list[str]:
    """Return the code blocks to type on a page of docs/, which must have all these languages."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    typed = [(language, block) for language, block in found if language != "text"]
    assert [language for language, _ in typed] == list(languages)
    return [block for _, block in typed]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An empty folder beside the installation, in which the pipeline is started."""
    with socket.socket() as port:
        if port.connect_ex(("127.0.0.1", 8080)) == 0:
            pytest.skip("somebody else listens on the port that the tour uses")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    yield tmp_path
    run(tmp_path, ".venv/bin/anabranch down")


def run(folder: Path, script: str) -> str:
    """Run a script, in which every command must succeed; return its output."""
    path = f"{folder / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    found = subprocess.run(
        ["/bin/bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert found.returncode == 0, f"{script}\n{found.stdout}\n{found.stderr}"
    return found.stdout


def until(query: str, api: str = API, **wanted: Any) -> dict[str, Any]:
    """Wait until the query's document has the fields ``wanted``; return it."""
    end = time.monotonic() + PATIENCE
    found: dict[str, Any] = {}
    while any(found.get(name) != value for name, value in wanted.items()):
        assert time.monotonic() < end, f"{query} is never {wanted}: {found}"
        time.sleep(0.2)
        found = httpx.get(f"{api}/v1/queries/{query}", timeout=60).json()
    return found


@pytest.mark.spark
@pytest.mark.e2e
def test_the_tour_works_word_for_word(folder: Path) -> None:
    start, curl, feed, second, shared, client = blocks(
        "tutorial.md", "sh", "sh", "python", "sh", "sh", "python"
    )
    ways = [line.partition("#")[0].strip() for line in start.splitlines()]
    assert ways == [f".venv/bin/anabranch {way}" for way in ("up", "up --wait", "down")]
    assert "ready" in run(folder, ways[1])

    answers = run(folder, curl.replace("curl ", "curl -sSf "))
    assert '"status":"pending"' in answers.replace(" ", "")
    until("delays", status="active")
    (folder / "feed.py").write_text(feed)
    run(folder, ".venv/bin/python feed.py")
    delays = until("delays", results=2)
    assert delays["results_at"] == str(folder / ".anabranch" / "results" / "delays")
    rows = pq.read_table(folder / ".anabranch" / "results" / "delays").to_pylist()
    assert sorted(row["wind"] for row in rows) == [9.5, 11.0]

    assert run(folder, second).count("used by delays, explained") == 2
    until("gusts", status="active")
    printed = run(folder, shared)
    assert "⇒ delays" in printed
    assert "⇒ gusts" in printed
    printed = run(folder, f"python - <<'END'\n{client}\nEND")
    assert printed.count("row ") == 2
    assert "jointly" in printed
    until("storms", status="expired")
    the_command_line(folder)


def the_command_line(folder: Path) -> None:
    """Test the command line page, which continues the tutorial."""
    commands, declaration, family, doctor = blocks("command-line.md", "sh", "yaml", "yaml", "sh")
    (folder / "queries.yaml").write_text(declaration)
    for command in commands.replace("\\\n", " ").splitlines():
        written = run(folder, command)
        if "query tail" in command:
            assert len(written.splitlines()) == 3
        if command.startswith("anabranch apply"):
            assert "1 would be replaced" in written
        if "--json" in command.partition("#")[0]:
            assert json.loads(written)
    (folder / "family.yaml").write_text(family)
    written = run(folder, "anabranch apply -f family.yaml --yes")
    assert "2 created" in written
    assert "large-kef" in run(folder, "anabranch query families")
    assert until("delays~2", status="active")["sql"].endswith("> 9")
    assert run(folder, doctor.replace("8080 ", "8081 "))


@contextmanager
def made(target: str, required: str) -> Iterator[None]:
    """Context in which ``make`` runs a target that starts a server."""
    process = subprocess.Popen(
        ["make", target],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if "Ctrl-C ends it" in line:
                break
        else:
            if os.environ.get(required):
                pytest.fail("".join(lines))
            pytest.skip(f"make {target}: {lines[-1]}")
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=60)


def answered(folder: Path, *wanted: str) -> None:
    """Print the tour's answers until all of ``wanted`` are in them."""
    end = time.monotonic() + PATIENCE
    printed = ""
    while any(text not in printed for text in wanted):
        assert time.monotonic() < end, f"no {wanted} in\n{printed}"
        time.sleep(1.0)
        # A table exists from its first commit on.
        if len(list(folder.glob(f"lake/*/_delta_log/{0:020}.json"))) >= 3:
            printed = run(folder, "python answers.py")


@pytest.mark.spark
@pytest.mark.slow
def test_the_tour_of_connectors_works_word_for_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".venv").symlink_to(sys.prefix)
    monkeypatch.setenv("ANABRANCH_PORT", str(port := free_port()))
    monkeypatch.setenv("ANABRANCH_URL", api := f"http://127.0.0.1:{port}")
    try:
        tour_connectors(tmp_path, api)
    finally:
        run(tmp_path, "anabranch down")


def tour_connectors(folder: Path, api: str) -> None:
    """Type what the tour's page says, and compare its answers."""
    languages = ("python", "sh", "sh", "python", "python", "sh", "sh", "python", "sh")
    shop, fill, begin, sales, answers, sell, plan, move, moved = blocks(
        "pipeline-tour.md", *languages
    )
    names = ("shop", "sales", "answers", "move")
    for name, script in zip(names, (shop, sales, answers, move), strict=True):
        (folder / f"{name}.py").write_text(script)
    with ExitStack() as servers:
        servers.enter_context(made("kafka", kafka.REQUIRED))
        servers.enter_context(made("postgres", postgres.REQUIRED))
        run(folder, fill)
        assert "ready" in run(folder, begin)
        until("revenue", api, status="active")
        feed, _, show = sell.replace(".venv/bin/python", "python").splitlines()
        assert show == "python answers.py"
        run(folder, feed)
        until("settled", api, results=270)
        answered(folder, "│          270 │           30.0 │", "│ UK      │       2235.00 │")
        trees = run(folder, plan)
        for query, times in (("settled", 2), ("receipts", 3), ("revenue", 3)):
            assert trees.count(f"⇒ {query}") == times, trees
        change, _, show, down = moved.replace(".venv/bin/python", "python").splitlines()
        run(folder, change)
        answered(folder, "│ US      │     90 │       2235.00 │", "│ US      │       2235.00 │")
        printed = run(folder, show)
        assert "UK" not in printed
        assert "stopped" in run(folder, down)


@pytest.mark.spark
@pytest.mark.slow
def test_the_demo_is_left_running_with_its_dashboard(tmp_path: Path) -> None:
    """The README shows the results of this demo."""
    shown = README.read_text(encoding="utf-8").partition("The demo ends with\n\n```text\n")[2]
    log = tmp_path / "demo.log"
    with log.open("w") as written:
        demo = subprocess.Popen(
            ["make", "demo", "ARGS=--keep"],
            cwd=README.parent,
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        end, found = time.monotonic() + 4 * PATIENCE, None
        while found is None:
            text = log.read_text()
            assert demo.poll() is None, text
            assert time.monotonic() < end, text
            time.sleep(0.5)
            found = re.search(r"all is still running; see\s+(http://\S+?);", text)
        queries = httpx.get(f"{found[1]}/v1/queries", timeout=60).json()["items"]
        assert sorted(query["id"] for query in queries) == ["q1", "q2", "q3", "q4", "q5"]
        assert "anabranch" in httpx.get(found[1], timeout=60).text
        table = [line.rstrip() for line in shown.partition("```")[0].splitlines()]
        assert len(table) == 7
        assert [line for line in table if line not in log.read_text()] == []
    finally:
        os.killpg(demo.pid, signal.SIGINT)
        demo.wait(60)
    # Ctrl-C in a terminal reaches the whole process group, and make reports the interruption.
    assert demo.returncode in (0, -signal.SIGINT), log.read_text()
    with pytest.raises(httpx.ConnectError):
        httpx.get(found[1], timeout=60)
