"""Test of tables with ``anabranch up``: registered first, read by queries that are registered
later.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_client.rest.api import Client
from anabranch_client.supervise.home import holder_of
from tests.support.worlds.processes import wait_until
from tests.support.worlds.up import upped

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LOOK_UP = "SELECT f.id AS f, a.name AS a FROM flights f JOIN airlines a ON a.code = f.carrier"


#: Reads the same stream, with one row per flight.
NAMED = (
    "SELECT f.id AS f, a.name AS a FROM flights f LEFT JOIN airlines a ON a.code = f.carrier"
    " AND a.name <> 'new'"
)
UNKNOWN = "SELECT f.id AS f FROM flights f LEFT ANTI JOIN airlines a ON a.code = f.carrier"
EVERY = "SELECT f.id AS f, a.name AS a FROM flights f LEFT JOIN airlines a ON a.code = f.carrier"
COUNTED = (
    "SELECT a.name AS a, count(*) AS n FROM flights f LEFT JOIN airlines a ON a.code = f.carrier"
    " GROUP BY a.name"
)


def airlines(folder: Path, name: str, rows: dict[str, str]) -> None:
    """Write a file of the table, which appears at once."""
    folder.mkdir(exist_ok=True)
    table = pa.table({"code": list(rows), "name": list(rows.values())})
    pq.write_table(table, folder / f".{name}")
    (folder / f".{name}").rename(folder / name)


def results(client: Client, home: Path, query: str) -> list[tuple[Any, ...]]:
    files = sorted(map(str, (home / "results" / query).glob("*.parquet")))
    return sorted(duckdb.read_parquet(files).fetchall()) if files else []


def _is_active(client: Client, query: str) -> bool:
    return client.query(query).status == "active"


def _gives(client: Client, query: str, rows: int) -> bool:
    return client.query(query).results == rows


def _has(client: Client, stream: str, rows: int) -> bool:
    return client.stream(stream).input_tuples == rows


def test_a_query_looks_up_what_was_read_before_it(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    folder = tmp_path / "home" / "airlines"
    airlines(folder, "a.parquet", {"LH": "Lufthansa", "AF": "Air France", "XX": "old"})
    airlines(folder, "b.parquet", {"XX": "new"})
    with upped(tmp_path) as up, up.client() as client:
        source = {"format": "files", "path": str(folder)}
        columns = [("code", "string"), ("name", "string")]
        given = client.create_stream("airlines", columns, source=source, kind="table", key=["code"])
        assert (given.kind, given.key, given.retain) == ("table", ["code"], "all")
        client.create_stream("plain", columns, source=source)
        for name in ("airlines", "plain"):
            wait_until(f"{name} to be read", partial(_has, client, name, 4), 300)
        client.create_stream(
            "flights",
            [("id", "bigint"), ("carrier", "string")],
            source={"format": "redis-stream"},
        )
        query = client.create_query(LOOK_UP, name="q")
        assert query.missed == []
        late = client.create_query(LOOK_UP.replace("airlines", "plain"), name="late")
        assert [(m.stream, m.rows) for m in late.missed] == [("plain", 4)]
        for name, sql in (("named", NAMED), ("unknown", UNKNOWN), ("counted", COUNTED)):
            outer = client.create_query(sql, name=name).normalised.outer
            assert outer is not None
            assert [one.partner for one in outer.look_ups] == ["a"]
        for name in ("q", "late", "named", "unknown", "counted"):
            wait_until(f"{name} to be active", partial(_is_active, client, name), 120)
        assert client.query("named").complete == "always"
        assert client.query("q").complete == "always"
        assert client.query("late").complete == "never"
        assert [m.rows for m in client.query("late").missed] == [4]
        holder = holder_of(up.home)
        assert holder is not None
        health = httpx.get(f"{holder.url}/v1/health", timeout=60).json()["components"]
        found = {c["name"]: c["state"] for c in health if c["kind"] == "completeness"}
        assert found == {"late": "warning"}
        client.push("flights", [{"id": n, "carrier": c} for n, c in enumerate(("LH", "XX", "ZZ"))])
        wait_until("the first results", lambda: client.query("q").results == 2, 120)
        airlines(folder, "c.parquet", {"LH": "Lufthansa AG", "ZZ": "Zed"})
        wait_until("the change", partial(_has, client, "airlines", 6), 120)
        client.push("flights", [{"id": n, "carrier": c} for n, c in enumerate(("LH", "ZZ"), 3)])
        wait_until("the last results", lambda: client.query("q").results == 4, 120)
        assert results(client, up.home, "q") == [
            (0, "Lufthansa"), (1, "new"), (3, "Lufthansa AG"), (4, "Zed"),
        ]  # fmt: skip
        for name, rows in (("named", 5), ("unknown", 1), ("counted", 5)):
            wait_until(f"the rows of {name}", partial(_gives, client, name, rows), 120)
        assert results(client, up.home, "named") == [
            (0, "Lufthansa"), (1, None), (2, None), (3, "Lufthansa AG"), (4, "Zed"),
        ]  # fmt: skip
        assert results(client, up.home, "unknown") == [(2,)]
        shown = client.rows("counted").rows
        assert {r["a"]: str(r["n"]) for r in shown} == dict.fromkeys(
            ("Lufthansa", "new", None, "Lufthansa AG", "Zed"), "1"
        )


def test_a_table_is_read_again_while_its_query_runs(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    folder = tmp_path / "home" / "airlines"
    airlines(folder, "a.parquet", {"LH": "Lufthansa", "AF": "Air France"})
    with upped(tmp_path) as up, up.client() as client:
        columns = [("code", "string"), ("name", "string")]
        source = {"format": "files", "path": str(folder)}
        client.create_stream("airlines", columns, source=source, kind="table", key=["code"])
        client.create_stream(
            "flights",
            [("id", "bigint"), ("carrier", "string")],
            source={"format": "redis-stream"},
        )
        client.create_query(LOOK_UP, name="q")
        client.create_query(EVERY, name="every")
        client.create_query(UNKNOWN, name="unknown")

        def looks_up(version: int, rows: int) -> bool:
            table = client.stream("airlines").table
            return table is not None and (table.looked_up, table.rows) == (version, rows)

        wait_until("the first version", partial(looks_up, 1, 2), 300)
        wait_until("q to be active", partial(_is_active, client, "q"), 120)
        client.push("flights", [{"id": n, "carrier": c} for n, c in enumerate(("LH", "AF"))])
        wait_until("the first results", lambda: client.query("q").results == 2, 120)
        (folder / "a.parquet").unlink()
        airlines(folder, "b.parquet", {"LH": "Lufthansa AG", "ZZ": "Zed", "YY": "Yes"})
        run = client.query("q").run
        asked = client.reread_stream("airlines").table
        assert asked is not None
        assert (asked.version, asked.looked_up) == (2, 1)
        wait_until("the second version", partial(looks_up, 2, 3), 120)
        client.push(
            "flights", [{"id": n, "carrier": c} for n, c in enumerate(("LH", "AF", "ZZ"), 2)]
        )
        wait_until("the last results", lambda: client.query("q").results == 4, 120)
        assert client.query("q").run == run
        assert client.query("q").status == "active"
        assert results(client, up.home, "q") == [
            (0, "Lufthansa"), (1, "Air France"), (2, "Lufthansa AG"), (4, "Zed"),
        ]  # fmt: skip
        wait_until("the rows of every", partial(_gives, client, "every", 5), 120)
        assert results(client, up.home, "every") == [
            (0, "Lufthansa"), (1, "Air France"), (2, "Lufthansa AG"), (3, None), (4, "Zed"),
        ]  # fmt: skip
        wait_until("the rows of unknown", partial(_gives, client, "unknown", 1), 120)
        assert results(client, up.home, "unknown") == [(3,)]
