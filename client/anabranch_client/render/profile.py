"""A profile of CPU time as tables with bars."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from anabranch_client.render.tables import facts_table, percent, table_of
from anabranch_contract.protocol.profile import CpuGroup
from anabranch_contract.rest.names import readable

if TYPE_CHECKING:
    from anabranch_contract.rest.profile import CpuProfile

#: Cells of a row, and its CPU seconds.
_Row = tuple[tuple[str, ...], float]
#: Maximum number of rows of a table; the remaining ones are added up in one row.
MOST = 40
#: Width of the longest bar in characters.
WIDTH = 24
_EIGHTHS = " ▏▎▍▌▋▊▉"
#: Patterns in ids: the digest of a store or intermediate result; a store's key and partitions.
_DIGEST = re.compile(r"(?<=\w)[@~][0-9a-f]{6,}")
_STORE = re.compile(r"\[(?:[^\[\]:]+(?:\[\w+\])?\.)?(\w+):[\w(),]+\]/\d+$")
#: Group of work -> name of the CPU time that belongs to no single step, store or stream.
_COMMON = {
    CpuGroup.SOURCE: "checks of arrivals",
    CpuGroup.INSERT: "writing packs",
    CpuGroup.PROBE: "passing tuples on",
}


def use_name(name: str, names: Mapping[str, str]) -> str:
    """Readable name of an edge or store; ``names``: relation -> its readable name.

    >>> use_name("R[1a]>S*T@51841d98", {"R[1a]": "R where x > 1"})
    '(R where x > 1) → S ⋈ T'
    >>> use_name("S[k:bigint]/2", {})
    'S by k'
    """
    short = _STORE.sub(r"[\1]", _DIGEST.sub("", name)).replace(">", " → ").replace("*", "⋈")
    return readable(short, names)


def bar(share: float, width: int = WIDTH) -> str:
    """A bar of ``share`` (0..1) of ``width`` characters, in eighths of a character.

    >>> bar(0.5, 4), bar(0.28, 4), bar(-0.1, 4)
    ('██', '█▏', '')
    """
    eighths = max(round(share * width * 8), 0)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def profile_detail(found: CpuProfile, names: Mapping[str, str]) -> RenderableType:
    """Tables of CPU seconds: by group (kind of work), by query, and by use (step, store, sink or
    source). ``names``: relation -> its readable name."""
    total = found.cpu or 1.0
    cores = f" ({found.cpu / found.seconds:.2f} cores)" if found.seconds else ""
    rest = found.groups.get(CpuGroup.UNATTRIBUTED, 0.0)
    facts = {
        "period": f"{found.seconds:.1f} s" if found.seconds else "since the processes' start",
        "CPU": f"{found.cpu:.2f} s{cores}",
        "not attributed": f"{percent(rest / total)} of it",
    }
    groups = [((group.value,), seconds) for group, seconds in found.groups.items()]
    queries = [((name or "(no query)",), seconds) for name, seconds in found.queries.items()]
    uses = []
    for use in found.uses:
        common = _COMMON.get(use.group, "earlier plans")
        name = use_name(use.name, names) if use.name else common
        uses.append(((use.group.value, name, str(len(use.queries) or "–")), use.seconds))
    return Group(
        facts_table(facts),
        _table(("group",), groups, total),
        _table(("query",), queries, total),
        _table(("group", "use", "queries"), uses, total),
    )


def _table(columns: tuple[str, ...], rows: Sequence[_Row], total: float) -> Table:
    """Table of the rows with the most seconds; all others are added up in one row."""
    figures = ("CPU s", "share")
    table = table_of(*columns, *figures, f"of {total:.2f} s", right=figures)
    ranked = sorted(rows, key=lambda row: (-row[1], row[0]))
    others = ranked[MOST:]
    if len(others) > 1:
        cells = f"{len(others)} others", *[""] * (len(columns) - 1)
        ranked = [*ranked[:MOST], (cells, sum(seconds for _, seconds in others))]
    for cells, seconds in ranked:
        share = seconds / total
        table.add_row(*map(escape, cells), f"{seconds:.3f}", percent(share), bar(share))
    return table
