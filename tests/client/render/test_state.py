"""Tests of the printed state: stores and maintained tables."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from anabranch_client.render.state import stores_table

FOUND = {
    "state": "state", "spare_bytes": 0, "next_batch": 10, "epoch": 1, "ruleset_epoch": 1,
    "bytes": 0, "disk_bytes": 0, "packs": 0, "write_amplification": None, "stores": [],
    "table_bytes": 2048,
}  # fmt: skip
SPENT = {"query": "spent", "rows": 1234, "changes": 5678, "version": 9, "rounds": 3}


def shown(*tables: dict[str, object]) -> str:
    console = Console(file=StringIO(), width=120)
    console.print(stores_table({**FOUND, "tables": list(tables)}))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_tables_have_a_line_each() -> None:
    line = next(one for one in shown(SPENT).splitlines() if "spent" in one)
    assert line.split() == ["spent", "1,234", "5,678", "9", "3"]


def test_without_tables_nothing_is_shown_of_them() -> None:
    assert "rounds since checkpoint" not in shown()
