"""Tests that a batch takes no more private memory than allowed, with the same results."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis as redis_client

from anabranch_contract.plans.ruleset import ProbeRule
from anabranch_contract.protocol.merging import FANOUT
from anabranch_runtime.__main__ import main
from anabranch_runtime.epochs.lifecycle import enter_epoch
from anabranch_runtime.epochs.merging import merges
from anabranch_runtime.errors import PipelineError
from anabranch_runtime.probe.probe import Prober
from anabranch_runtime.state.coverage import Access
from anabranch_runtime.state.manifest import State
from anabranch_runtime.storage.partial import Partial
from anabranch_runtime.task import memory as module
from anabranch_runtime.task.memory import (
    Budget,
    PrivateMemory,
    budget,
    byte_size,
    check_limit,
    largest_merge,
    least_limit,
    private_bytes,
)
from tests.support.cases.states import RS, rules, segment
from tests.support.worlds.driven import driver, job, publish

LIMIT = 256 << 20


def run(url: str, folder: Path, what: str, *limit: str) -> dict[str, int]:
    """Run one batch in a separate process, without ``coverage``, which would load numba."""
    module = "tests.support.surroundings.memory_run"
    code = "import runpy, sys; sys.modules['coverage'] = None; runpy.run_module(%r, run_name=%r)"
    command = [
        sys.executable,
        "-c",
        code % (module, "__main__"),
        url,
        str(folder),
        what,
        *limit,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_tasks_do_not_load_libraries_of_the_driver() -> None:
    """Each worker process would have them in its memory."""
    code = "import sys, anabranch_runtime.task.worker; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"redis", "pydantic", "pyarrow.flight", "pyspark", "sqlglot", "fastapi", "httpx"}
    assert heavy & set(done.stdout.split()) == set()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    ("what", "results"),
    [("partners", 6_000_000), pytest.param("texts", 6_000, marks=pytest.mark.slow)],
)
def test_a_limit_is_kept_where_results_are_many_or_wide(
    what: str, results: int, url: str, tmp_path: Path
) -> None:
    # Kernels that are not compiled yet are compiled here, so that no batch needs the compiler's
    # memory.
    free = run(url, tmp_path / "free", what)
    assert free["results"] == results
    redis_client.Redis.from_url(url).flushall()
    limited = run(url, tmp_path / "limited", what, str(LIMIT))
    assert limited["results"] == results
    assert limited["peak"] <= LIMIT
    # Otherwise the limit would have had no effect.
    assert free["peak"] - free["before"] > 1.5 * (limited["peak"] - limited["before"])


def test_a_probe_makes_no_more_than_it_may(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tuples of batch ``b`` have ``b`` and ``b + 1`` partners."""
    made: list[tuple[int, int]] = []
    probe = Prober.probe

    def watched(self: Prober, partial: Partial, rule: ProbeRule, access: Access) -> Any:
        found = probe(self, partial, rule, access)
        made.append((partial.length, 0 if found is None else found.length))
        return found

    monkeypatch.setattr(Prober, "probe", watched)
    # Rounds also make no more than allowed, but of all edges together.
    monkeypatch.setattr("anabranch_runtime.probe.probe.FEW", 0)
    small = Budget(pairs=80, combinations=1, page=100)
    monkeypatch.setattr("anabranch_runtime.task.worker.budget", lambda limit, tasks: small)
    publish(url, 0)
    one = driver(url, tmp_path, every=100)
    for batch in range(5):
        one.run(job(batch, copies=8))
    assert one.state.queries["q"].results == (5 * 8) ** 2
    assert sum(found for _, found in made) == (5 * 8) ** 2
    assert all(found <= 80 or length == 1 for length, found in made)
    assert max(length for length, _ in made) > 1
    # Tuples with too many matches are repeated in smaller pieces, but counted once.
    assert sum(length for length, _ in made) == 2 * 5 * 8


def test_the_limit_bounds_merges() -> None:
    known = rules(0, {"q": RS})
    state = replace(enter_epoch(State(), known, 0), next_batch=50)
    parts = tuple(segment("R/1", (i, i)) for i in range(FANOUT))
    stores = {**state.stores, "R/1": replace(state.stores["R/1"], segments=parts)}
    state = replace(state, stores=stores)
    size = FANOUT * max(p.bytes for p in parts)
    assert len(merges(state, known, most=size)) == 1
    assert merges(state, known, most=size - 1) == ()


def test_shares_add_up_to_less_than_the_limit() -> None:
    for tasks in (1, 2, 7):
        for limit in (least_limit(tasks), 1 << 30, 1 << 36):
            one, merge = budget(limit, tasks), largest_merge(limit, tasks)
            assert one.total is not None
            assert merge is not None
            probes = one.pairs * 96 * 4
            assert probes + one.combinations * 96 + 2 * one.page <= one.total
            assert tasks * one.total + 3 * merge <= limit
    assert budget(None, 2).total is None
    assert largest_merge(None, 2) is None


@pytest.mark.parametrize("total", [1, None])
def test_memory_is_given_back_at_the_end_of_a_task(
    total: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = PrivateMemory()
    # Earlier tests may have left free memory in the heap.
    memory.give_back(Budget(total=1))
    before = private_bytes()
    monkeypatch.setattr(module, "_SPARE", 0)
    monkeypatch.setattr(PrivateMemory, "kept", before // 2)
    # Too small to be mapped separately: the allocator's memory is in the heap.
    parts: list[Any] = [np.ones(8_000, np.int8) for _ in range(8_000)]
    held = parts[-1]
    assert memory.look() > before + (50 << 20)
    del parts
    memory.give_back(Budget(total=total))
    assert private_bytes() < before + (20 << 20)
    assert memory.peak > before + (50 << 20)
    assert held[0] == 1


def test_memory_without_a_limit_is_given_back_when_it_has_doubled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = iter([100, 699, 701, 300, 800, 1099, 801, 400])
    memory, given = PrivateMemory(read.__next__), list[int]()
    monkeypatch.setattr(module, "_SPARE", 500)
    monkeypatch.setattr(PrivateMemory, "kept", 100)
    monkeypatch.setattr(PrivateMemory, "again", time.monotonic() + 1e6)
    monkeypatch.setattr(module, "_trim", lambda: given.append)
    for times in (0, 0, 1, 1, 1):
        memory.give_back(Budget())
        assert len(given) == times
    assert PrivateMemory.kept == 300
    # After a minute, less is returned, too.
    assert PrivateMemory.again > time.monotonic()
    PrivateMemory.again = time.monotonic()
    memory.give_back(Budget())
    assert (len(given), PrivateMemory.kept) == (2, 400)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1024", 1024),
        ("2GB", 2_000_000_000),
        ("2 GiB", 2 << 30),
        ("1.5 mib", 3 << 19),
        ("7k", 7000),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert byte_size(text) == size


@pytest.mark.parametrize("text", ["", "many", "-1", "2 ib", "1e9", "1 GB more", "٣GB"])
def test_what_is_no_size(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="not a number of bytes"):
        byte_size(text)
    with pytest.raises(SystemExit):
        main(["--memory-limit", text, "--results", "r"])
    assert "not a number of bytes" in capsys.readouterr().err


@pytest.mark.parametrize("tasks", [1, 2, 16])
def test_too_small_a_limit_is_refused(tasks: int) -> None:
    check_limit(None, tasks)
    check_limit(least_limit(tasks), tasks)
    with pytest.raises(PipelineError) as caught:
        check_limit(least_limit(tasks) - 1, tasks)
    assert caught.value.code == "memory-limit"
    assert f"{least_limit(tasks) >> 20} MiB" in caught.value.remedy


@pytest.mark.slow
def test_the_runtime_refuses_it_on_one_line(url: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "anabranch_runtime", "--redis-url", url]
    command += ["--state", str(tmp_path / "s"), "--results", str(tmp_path / "r")]
    command += ["--master", "local[2]", "--memory-limit", "200MiB"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "a memory limit of 200 MiB is not enough for 2 tasks" in last
    assert "at least 288 MiB" in last
