"""Streams that fall silent, and tuples that come too late: against the oracle, and kept aside."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
import yaml

from anabranch_runtime.sinks.late import LATE, own_columns
from tests.support.local_replay import LocalReplay
from tests.support.oracle import Oracle
from tests.support.scenario_file import read_scenario
from tests.support.scenarios import Generated, generate
from tests.support.script import Death, Script

if TYPE_CHECKING:
    from pathlib import Path


def with_silences(generated: Generated, seed: int) -> Generated:
    """The scenario with streams that pause and time out, and whose late tuples are kept."""
    rng = Random(seed)
    document = yaml.safe_load(generated.path.read_text())
    batches = max(
        -(-pq.read_metadata(generated.folder / s["path"]).num_rows // s["rows_per_batch"])
        for s in document["streams"].values()
    )
    for number, stream in enumerate(document["streams"].values()):
        if "event_time" not in stream:
            continue
        stream["lateness"] = rng.choice(["0 seconds", "5 minutes", "15 minutes", "30 minutes"])
        stream["keep_late"] = rng.random() < 0.8
        if rng.random() < 0.8:
            stream["idle_timeout"] = rng.choice(["10 minutes", "20 minutes", "45 minutes"])
        if number:
            stream["cuts"] = _cuts(generated.folder / stream["path"], stream, batches, rng)
    generated.path.write_text(yaml.safe_dump(document, sort_keys=False, width=100))
    return generated


def _cuts(path: Path, stream: dict[str, Any], batches: int, rng: Random) -> list[int]:
    """Rows of a stream by batches, some of which have none."""
    rows, at, cuts = pq.read_metadata(path).num_rows, 0, []
    silent = rng.randint(0, batches // 2) if rng.random() < 0.3 else 0
    for _ in range(batches):
        if silent:
            silent -= 1
        else:
            at = min(at + stream["rows_per_batch"], rows)
            silent = rng.randint(2, 6) if rng.random() < 0.25 else 0
        cuts.append(at)
    return [*cuts[:-1], rows]


def check(generated: Generated, replay: LocalReplay) -> dict[str, int]:
    """Everything is as the oracle has it. What the scenario was good for, counted."""
    activations = replay.run()
    scenario = read_scenario(generated.path)
    oracle = Oracle(scenario)
    met = dict.fromkeys(("late", "idle", "kept", "first"), 0)
    try:
        for name, query in generated.queries.items():
            if name in activations:
                found = oracle.compare(
                    query, scenario.queries[name], activations[name], replay.out / "results" / name
                )
                assert not found.problems, f"{name}: {found.problems}"
        for name, stream in scenario.streams.items():
            kept = sorted((replay.out / "results" / LATE / name).glob("*.parquet"))
            counts = oracle.counts(name)
            assert bool(kept) == (stream.keep_late and counts.late + counts.invalid > 0)
            if kept:
                met["kept"] += _compare_kept(oracle, name, kept)
            met["late"] += counts.late
            own = oracle.one(
                f'SELECT count(*) FROM "{name}" WHERE __late AND __tau >= coalesce('
                f'(SELECT max(o.__tau) - {stream.lateness or 0} FROM "{name}" o'
                f' WHERE o.__batch < "{name}".__batch), __tau)'
            )
            met["idle"] += own
            met["first"] += oracle.one(
                f'SELECT count(*) FROM "{name}" WHERE __late AND __batch ='
                f' (SELECT min(__batch) FROM "{name}")'
            )
    finally:
        oracle.close()
    return met


def _compare_kept(oracle: Oracle, name: str, files: list[Path]) -> int:
    """The kept tuples are those that the oracle sets aside, with why, when and by what."""
    reason, batch, watermark, _ = own_columns(oracle.columns()[name])
    marks = ", ".join(f"({b}, {m})" for b, m in oracle.watermarks[name].items() if m is not None)
    listed = ", ".join(f"'{f}'" for f in files)
    columns = ", ".join(f'"{c}"' for c in oracle.columns()[name])
    oracle.db.execute(
        f"CREATE OR REPLACE TEMP TABLE kept AS SELECT {columns}, {reason} AS r, {batch} AS b,"
        f" epoch_us({watermark}) AS w FROM read_parquet([{listed}])"
    )
    oracle.db.execute(
        "CREATE OR REPLACE TEMP TABLE aside AS SELECT "
        f"{columns}, CASE WHEN __invalid THEN 'invalid' ELSE 'late' END AS r, __batch AS b, m.w"
        f' FROM "{name}" LEFT JOIN (VALUES {marks or "(-1, 0)"}) m(batch, w) ON m.batch = __batch'
        " WHERE __late OR __invalid"
    )
    for one, other in (("kept", "aside"), ("aside", "kept")):
        query = f"SELECT count(*) FROM (SELECT * FROM {one} EXCEPT ALL SELECT * FROM {other})"
        assert oracle.one(query) == 0, f"{name}: more in {one}"
    return int(oracle.one("SELECT count(*) FROM kept"))


@pytest.mark.parametrize("seed", [5001, 5003, 5004])
def test_silent_streams_hold_nothing_back_and_late_tuples_are_kept(
    seed: int, redis: str, tmp_path: Path
) -> None:
    generated = with_silences(generate(seed, tmp_path / "scenario"), seed)
    deaths = ((1, Death.JOB), (3, Death.COMMIT), (5, Death.COMMITTED))
    script = Script(odd=seed % 2 == 1, seed=seed, tasks=((1 + seed % 3,),), deaths=deaths)
    check(generated, LocalReplay(generated.path, tmp_path / "out", redis, script=script))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(5100, 5200, 20))
def test_many_silent_streams(first: int, redis: str, tmp_path: Path) -> None:
    met = dict.fromkeys(("late", "idle", "kept", "first"), 0)
    for seed in range(first, first + 20):
        generated = with_silences(generate(seed, tmp_path / f"s{seed}"), seed)
        script = Script(odd=seed % 2 == 1, seed=seed)
        replay = LocalReplay(generated.path, tmp_path / f"o{seed}", redis, script=script)
        met = {k: v + met[k] for k, v in check(generated, replay).items()}
    assert all(met.values()), f"the scenarios did not do what they are for: {met}"
