"""Tests of idle streams, and late and future tuples: results and rejected rows equal
the oracle's.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from anabranch_runtime.sinks.late import LATE, own_columns
from tests.support.oracles.oracle import Oracle
from tests.support.scenarios.draw import Generated, generate
from tests.support.scenarios.file import read_scenario
from tests.support.scenarios.script import Death, Script
from tests.support.scenarios.seeds import mostly_slow
from tests.support.worlds.local_replay import LocalReplay


def with_silences(generated: Generated, seed: int) -> Generated:
    """Return the scenario with streams that pause and time out, and whose late tuples are kept."""
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
    """Return the number of a stream's rows up to the end of each batch; some batches have none."""
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


def with_leaps(generated: Generated, seed: int) -> Generated:
    """Return the scenario with some rows far in the future of their streams, up to the year 9996.

    Random numbers of its own, so that the rest of the scenario stays what the seed has made it.
    """
    rng = Random(seed + 7)
    document = yaml.safe_load(generated.path.read_text())
    for name, stream in document["streams"].items():
        if "event_time" not in stream:
            continue
        if stream.get("lateness", "unbounded") == "unbounded" and rng.random() < 0.5:
            continue
        if rng.random() < 0.8:
            bound = rng.choice(["30 minutes", "2 hours", "1 day", "366 days", "unbounded"])
            stream["ahead_of_stream"] = bound
        path = generated.folder / stream["path"]
        table = pq.read_table(path)
        place = table.schema.get_field_index(stream["event_time"])
        times, kind = table.column(place).to_pylist(), table.schema.field(place).type
        # Mostly after the first batch, in which no time counts as future.
        first = 0 if rng.random() < 0.1 else stream["rows_per_batch"]
        share = rng.choice([0.0, 0.02, 0.1])
        for i in range(first, len(times)):
            if times[i] is not None and rng.random() < share:
                leap = rng.choice([timedelta(minutes=40), timedelta(days=2), timedelta(days=400)])
                far = times[i].replace(year=9996) if rng.random() < 0.5 else times[i] + leap
                times[i] = far
        data = table.set_column(place, stream["event_time"], pa.array(times, kind))
        pq.write_table(data, path, row_group_size=50)
        assert pq.read_metadata(generated.folder / f"{name}.parquet").num_rows == len(times)
    generated.path.write_text(yaml.safe_dump(document, sort_keys=False, width=100))
    return generated


def check(generated: Generated, replay: LocalReplay) -> dict[str, int]:
    """Compare everything with the oracle; return counts of what the scenario had."""
    activations = replay.run()
    scenario = read_scenario(generated.path)
    oracle = Oracle(scenario)
    met = dict.fromkeys(("late", "idle", "kept", "first", "ahead"), 0)
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
            aside = counts.late + counts.invalid + counts.ahead
            assert bool(kept) == (stream.keep_late and aside > 0)
            told = [replay.report[f"{what}_tuples"][name] for what in ("late", "invalid", "ahead")]
            assert told == [counts.late, counts.invalid, counts.ahead]
            met["ahead"] += counts.ahead
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
    """Compare rejected tuples with the oracle's by reason, batch and watermark; return their
    number.
    """
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
        f"{columns}, CASE WHEN __invalid THEN 'invalid' WHEN __ahead THEN 'ahead'"
        " ELSE 'late' END AS r, __batch AS b, m.w"
        f' FROM "{name}" LEFT JOIN (VALUES {marks or "(-1, 0)"}) m(batch, w) ON m.batch = __batch'
        " WHERE __late OR __invalid OR __ahead"
    )
    for one, other in (("kept", "aside"), ("aside", "kept")):
        query = f"SELECT count(*) FROM (SELECT * FROM {one} EXCEPT ALL SELECT * FROM {other})"
        assert oracle.one(query) == 0, f"{name}: more in {one}"
    return int(oracle.one("SELECT count(*) FROM kept"))


@pytest.mark.parametrize("seed", mostly_slow([5001, 5004, 5003]))
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
    met = dict.fromkeys(("late", "idle", "kept", "first", "ahead"), 0)
    for seed in range(first, first + 20):
        generated = with_silences(generate(seed, tmp_path / f"s{seed}"), seed)
        script = Script(odd=seed % 2 == 1, seed=seed)
        replay = LocalReplay(generated.path, tmp_path / f"o{seed}", redis, script=script)
        met = {k: v + met[k] for k, v in check(generated, replay).items()}
    assert met.pop("ahead") == 0
    assert all(met.values()), f"the scenarios did not do what they are for: {met}"


@pytest.mark.parametrize("seed", mostly_slow([5301, 5302, 5303, 5304]))
def test_tuples_that_are_ahead_move_nothing(seed: int, redis: str, tmp_path: Path) -> None:
    generated = with_leaps(with_silences(generate(seed, tmp_path / "scenario"), seed), seed)
    deaths = ((1, Death.JOB), (2, Death.COMMIT), (4, Death.COMMITTED), (5, Death.JOB))
    script = Script(odd=seed % 2 == 1, seed=seed, tasks=((1 + seed % 3,),), deaths=deaths)
    check(generated, LocalReplay(generated.path, tmp_path / "out", redis, script=script))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(5400, 5620, 20))
def test_many_streams_with_tuples_ahead(first: int, redis: str, tmp_path: Path) -> None:
    met: Counter[str] = Counter()
    for seed in range(first, first + 20):
        generated = generate(seed, tmp_path / f"s{seed}")
        generated = with_silences(generated, seed) if seed % 3 else generated
        generated = with_leaps(generated, seed)
        deaths = ((1 + seed % 2, Death.COMMIT), (3, Death.JOB), (5, Death.COMMITTED))
        tasks = ((1 + seed % 3,), (2,), (1,))
        script = Script(odd=seed % 2 == 1, seed=seed, tasks=tasks, deaths=deaths)
        replay = LocalReplay(generated.path, tmp_path / f"o{seed}", redis, script=script)
        met.update(check(generated, replay))
    assert met["late"]
    assert met["ahead"], f"the scenarios did not do what they are for: {met}"
