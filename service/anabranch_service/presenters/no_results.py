"""Reasons for a query without results lately: streams without rows, and steps without matches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from anabranch_contract.protocol.progress import Progress
from anabranch_contract.rest.normalised import NormalisedInfo
from anabranch_contract.rest.planning.query_plan import ProbePathOut

_REJECTED = ("late", "invalid", "ahead")
_ALL = "all tuples"


def no_results_because(
    meaning: NormalisedInfo,
    paths: Sequence[ProbePathOut],
    progress: Progress | None,
    *,
    measured: bool,
) -> list[str]:
    """Return the reasons as sentences: streams without rows or, if all have some, where the rows of
    each alias have ended in the newest periods; empty if neither is known.

    Args:
        paths: the query's probe paths, as measured without any result.
        measured: whether a step has been measured.
    """
    counts = {} if progress is None else progress.streams
    streams = {alias.stream: counts.get(alias.stream, {}) for alias in meaning.aliases}
    found = [text for name, one in streams.items() if (text := _unread(name, one))]
    return found or (list(_ends(meaning, paths)) if measured else [])


def _unread(stream: str, counts: Mapping[str, int]) -> str | None:
    read, rejected = counts.get("input", 0), sum(counts.get(name, 0) for name in _REJECTED)
    if not read:
        return f"no row of {stream} has been read"
    if rejected >= read:
        return f"all {read} rows of {stream} were rejected, as late, invalid or ahead"
    return None


def _ends(meaning: NormalisedInfo, paths: Sequence[ProbePathOut]) -> Iterator[str]:
    """Sentences about the step at which the rows of each alias end."""
    streams = {alias.alias: alias.stream for alias in meaning.aliases}
    for path in paths:
        if path.keeps is not None or path.left or path.alias not in streams:
            continue
        named = f"{streams[path.alias]} ({path.alias})"
        if not path.tuples_per_second:
            if path.detail != _ALL:
                yield f"no row of {named} {path.detail} has been read lately"
            continue
        passed: list[str] = []
        for step in path.steps:
            if not step.tuples_per_second:
                where = "" if step.detail == _ALL else f" {step.detail}"
                before = f" that match {' and '.join(passed)}" if passed else ""
                yield f"rows of {named}{before} match no row of {step.label}{where}"
                break
            passed.append(step.label)
        else:
            # Without such a condition the rates are those assumed of steps not measured yet.
            if meaning.residuals:
                yield f"rows of {named} match, but fail {' AND '.join(meaning.residuals)}"
