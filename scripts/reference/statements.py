"""Generates the table of statements in ``docs/sql.md`` from the rows of ``tests/sql/*.slt``."""

from __future__ import annotations

from typing import Final

from tests.sql.files import FOLDER, examples

BEGIN: Final = "<!-- statements: begin -->\n"
END: Final = "<!-- statements: end -->\n"
#: Files in the order of their rows.
FILES: Final = (
    "select", "groups", "frames", "joins", "values", "outer_joins", "subqueries", "set_operations",
    "layers", "conditions", "expressions", "rolling", "intervals", "nested", "variants",
    "expansions", "functions",
)  # fmt: skip


def page(text: str) -> str:
    """Return the page ``text`` with a table of all rows, each with its file of examples.

    Raises:
        ValueError: a file is not in :data:`FILES`.
    """
    found = {path.stem for path in FOLDER.glob("*.slt")}
    if found != set(FILES):
        raise ValueError(f"FILES and {FOLDER} differ in {sorted(found ^ set(FILES))}")
    lines = ["| supported | refused | examples |", "|---|---|---|"]
    for name in FILES:
        for row, _ in examples(FOLDER / f"{name}.slt"):
            refused = " ".join(row.answer)
            lines.append(f"| {row.sql} | {refused} | `{name}.slt` |")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + "\n".join(lines) + "\n" + END + after
