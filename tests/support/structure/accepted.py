"""The list of accepted violations, which may only shrink."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final

from tests.support.structure import code, words
from tests.support.structure.code import ROOT

FILE: Final = ROOT / "tests/support/structure/accepted.json"
#: Name of a rule → its measure, which maps each violation to its size.
RULES: Final[Mapping[str, Callable[[], dict[str, int]]]] = {
    "folders of more than 16 modules": code.large_folders,
    "files of more than 700 lines": code.long_files,
    "import cycles": code.import_cycles,
    "class names of several modules": code.repeated_classes,
    "dataclasses of more than 20 fields": code.wide_dataclasses,
    "shipped lines": code.shipped_lines,
    "texts to rewrite": words.habits,
}
#: Rule → difference up to which the accepted figure need not be lowered.
SLACK: Final = {"shipped lines": 500, "texts to rewrite": 10}


def read() -> dict[str, dict[str, int]]:
    """Return rule → violation → accepted size."""
    accepted: dict[str, dict[str, int]] = json.loads(FILE.read_text())
    return accepted


def compare(rule: str, measured: Mapping[str, int], accepted: Mapping[str, int]) -> list[str]:
    """Return the differences of one rule, as sentences; empty if the list is right."""
    slack = SLACK.get(rule, 0)
    lines = []
    for key in sorted({*measured, *accepted}):
        size, limit = measured.get(key, 0), accepted.get(key, 0)
        if size > limit:
            lines.append(f"{rule}: {key} has {size}, accepted are {limit}")
        elif size + slack < limit or (size == 0 < limit):
            lines.append(f"{rule}: {key} has {size} only, lower {limit} with --shrink")
    return lines


def differences() -> list[str]:
    """Return the differences of all rules between the tree and the list."""
    accepted = read()
    return [
        line
        for rule, measure in RULES.items()
        for line in compare(rule, measure(), accepted.get(rule, {}))
    ]


def shrink() -> None:
    """Write the list with each size lowered to the measured one; sizes that grew stay."""
    accepted = read()
    for rule, measure in RULES.items():
        measured = measure()
        accepted[rule] = {
            key: min(limit, measured[key])
            for key, limit in sorted(accepted.get(rule, {}).items())
            if key in measured
        }
    FILE.write_text(json.dumps(accepted, indent=1) + "\n")
