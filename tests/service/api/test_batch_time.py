"""Test of a batch's time in its results, also of a batch that is repeated after a kill."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_runtime.driver import driver as drivers
from anabranch_runtime.faults import Point
from tests.support.worlds.driven import Killed
from tests.support.worlds.service import Service
from tests.support.worlds.small_pipeline import run_batches, small_pipeline

_JOINED = "FROM orders o JOIN customers c ON o.customer_id = c.customer_id"
_AGE = "timestampdiff(MICROSECOND, TIMESTAMP '2026-01-01 00:00:00', now()) AS age"


def _results(folder: Path, query: str, batch: int) -> pa.Table:
    files = sorted((folder / "results" / query).glob(f"{batch:010d}-*.parquet"))
    return pa.concat_tables(pq.read_table(path) for path in files)


def test_results_of_a_batch_have_its_time_whatever_is_killed(
    shop: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = f"o.order_id, current_timestamp, current_date AS day, {_AGE}"
    shop.post("/v1/queries", {"id": "dated", "sql": f"SELECT {shown} {_JOINED}"})
    union = f"SELECT o.order_id, now() AS n {_JOINED} UNION ALL SELECT order_id, ts FROM items"
    shop.post("/v1/queries", {"id": "both", "sql": union})
    began = datetime.now(UTC)
    pipeline = small_pipeline(shop, tmp_path)
    run_batches(pipeline, 3)
    first = _results(tmp_path, "dated", 2)
    assert first.num_rows > 0
    moments = first["current_timestamp()"].unique().to_pylist()
    assert len(moments) == 1
    assert began <= moments[0] <= datetime.now(UTC)
    assert first["day"].unique().to_pylist() == [moments[0].date()]
    since = datetime(2026, 1, 1, tzinfo=UTC)
    assert first["age"].unique().to_pylist() == [int((moments[0] - since).total_seconds() * 1e6)]
    assert isinstance(first["day"][0].as_py(), date)

    # Batch 3 has written its results when its driver is killed; a second driver repeats it later.
    def killed(point: Point) -> None:
        if point is Point.PUBLISHED:
            raise Killed

    monkeypatch.setattr(drivers, "reach", killed)
    with pytest.raises(Killed):
        run_batches(pipeline, 1)
    monkeypatch.undo()
    written = _results(tmp_path, "dated", 3)
    time.sleep(0.01)
    again = small_pipeline(shop, tmp_path)
    assert again.state.next_batch == 3
    run_batches(again, 2)
    assert _results(tmp_path, "dated", 3).equals(written)
    later = _results(tmp_path, "dated", 4)["current_timestamp()"].unique().to_pylist()
    assert len(later) == 1
    assert moments < written["current_timestamp()"].unique().to_pylist() < later
    union = _results(tmp_path, "both", 3)
    assert set(written["current_timestamp()"].to_pylist()) < set(union["n"].to_pylist())
