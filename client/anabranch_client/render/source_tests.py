"""The result of a source test as tables; layout only."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from anabranch_client.render.tables import facts_table, shortened, table_of

if TYPE_CHECKING:
    from anabranch_contract.rest.source_tests import SourceTestOut

#: Fields of a registration for which ``stream add`` has no option of the same name.
_APART = frozenset({"name", "columns", "source", "changes", "retention"})
#: Unit of a source in the plural -> in the singular.
_ONE = {"files": "file", "entries": "entry", "messages": "message"}
#: Field -> the option that makes it false, where that is not ``--no-FIELD``.
_NEGATED = {"keep_late": "--drop-late"}


def source_test(found: SourceTestOut) -> RenderableType:
    """The outcome of a source test, the rows read, and the values that do not fit the columns."""
    facts: dict[str, object] = {"source": found.outcome}
    if found.error is not None:
        error = found.error
        facts |= {"why": f"{error.field}: {error.message}", "remedy": error.remedy}
    facts |= {"not read": "; ".join(found.limits)} if found.limits else {}
    if found.found is not None:
        unit = found.unit or ""
        facts["found"] = f"{found.found:,} {_ONE.get(unit, unit) if found.found == 1 else unit}"
    if found.rows:
        read = found.sampled or len(found.rows)
        facts["rows read"] = f"{read:,}, of which {found.invalid:,} do not fit"
        facts["from"] = shortened(", ".join(found.places))
    if found.first_event_time is not None:
        facts["event times"] = f"{found.first_event_time} … {found.last_event_time}"
    if found.disorder is not None:
        lateness = f"a lateness of {found.proposed_lateness} covers that"
        facts["out of order"] = f"by up to {found.disorder}; {lateness}"
    if found.event_times:
        times = [f"{one.column} (goes back by up to {one.disorder})" for one in found.event_times]
        facts["event time may be"] = "; ".join(times)
    if found.keys:
        facts["key may be"] = "; ".join(", ".join(key) for key in found.keys)
    facts |= {"notes": "\n".join(found.notes)} if found.notes else {}
    parts: list[RenderableType] = [facts_table(facts)]
    if found.rows:
        rows = table_of(*found.rows[0])
        for row in found.rows:
            rows.add_row(*(Text(_shown(v)) for v in row.values()))
        parts.append(rows)
    if found.misfits:
        misfits = table_of("row", "column", "value", "expected", "place", right=("row",))
        for one in found.misfits:
            value = shortened("null" if one.value is None else one.value)
            place = escape(one.place or "")
            misfits.add_row(
                str(one.row), escape(one.column or "all of it"), value, one.expected, place
            )
        parts.append(misfits)
    if found.registration is not None:
        parts.append(Text(f"\n{add_command(found.registration)}"))
    return Group(*parts)


def add_command(registration: Mapping[str, Any]) -> str:
    """The command that registers a stream with the body ``registration``.

    >>> source = {"format": "files", "path": "/data/a b", "options": {"type": "json"}}
    >>> columns = [{"name": "id", "type": "bigint"}]
    >>> print(add_command({"name": "a_b", "columns": columns, "source": source, "key": ["id"]}))
    anabranch stream add a_b \\
      --column id:bigint \\
      --format files --path '/data/a b' --option type=json \\
      --key id
    """
    source = registration["source"]
    lines = [["anabranch", "stream", "add", registration["name"]]]
    lines += [["--column", f"{one['name']}:{one['type']}"] for one in registration["columns"]]
    origin = [] if source["format"] == "recorded" else ["--format", source["format"]]
    origin += ["--path", source["path"]] if source.get("path") else []
    if "rows_per_batch" in source:
        origin += ["--rows-per-batch", str(source["rows_per_batch"])]
    for name, value in source.get("options", {}).items():
        origin += ["--option", f"{name}={value}"]
    for name, value in source.get("then", {}).get("options", {}).items():
        origin += ["--then", f"{name}={value}"]
    more = {**registration, **registration.get("changes", {}), **registration.get("retention", {})}
    rest = list[str]()
    for name, value in more.items():
        if name not in _APART:
            option = f"--{name.replace('_', '-')}"
            if isinstance(value, bool):
                rest.append(option if value else _NEGATED.get(name, f"--no-{option[2:]}"))
            else:
                each = value if isinstance(value, list) else [value]
                rest += [part for one in each for part in (option, str(one))]
    lines += [origin, rest] if rest else [origin]
    return " \\\n  ".join(shlex.join(line) for line in lines)


def _shown(value: object) -> str:
    """A value in a sample row, nested values as JSON."""
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return "null" if value is None else str(value)
