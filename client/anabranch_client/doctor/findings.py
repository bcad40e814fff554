"""Results of the checks of ``anabranch doctor``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rich.console import RenderableType
from rich.markup import escape
from rich.text import Text

from anabranch_client.render.tables import lines_table


class Verdict(StrEnum):
    """Verdict of a check of ``anabranch doctor``: ok, warning or failure."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


_STYLES = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "bold red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check of ``anabranch doctor``.

    Attributes:
        check: name of the check.
        said: the state or the problem, as a sentence.
        remedy: remedy of the problem; empty without a problem.
        facts: the state in machine-readable form.
    """

    check: str
    verdict: Verdict
    said: str
    remedy: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The finding as JSON."""
        fixed = {"check": self.check, "verdict": self.verdict.value, "said": self.said}
        return {**fixed, "remedy": self.remedy, **self.facts}


def healthy(findings: Sequence[Finding]) -> bool:
    """Whether no check of ``anabranch doctor`` has failed."""
    return all(one.verdict is not Verdict.FAIL for one in findings)


def findings_document(findings: Sequence[Finding]) -> dict[str, Any]:
    """All findings of ``anabranch doctor`` as JSON."""
    return {"ok": healthy(findings), "checks": [one.document() for one in findings]}


def findings_table(findings: Sequence[Finding]) -> RenderableType:
    """A table with a line for each finding of ``anabranch doctor``."""
    table = lines_table(3)
    for one in findings:
        said = f"{one.said}: {one.remedy}" if one.remedy else one.said
        table.add_row(Text(one.verdict, style=_STYLES[one.verdict]), one.check, escape(said))
    return table
