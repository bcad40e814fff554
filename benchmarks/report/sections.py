"""Section on one benchmark of a report page."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.command import Benchmark
from benchmarks.report.provenance import provenance


def section(
    docs: Path,
    heading: str,
    benchmark: Benchmark,
    entry: dict[str, Any],
    charts: Mapping[str, str],
    notes: Iterable[str] = (),
    runs: Iterable[dict[str, Any]] = (),
) -> list[str]:
    """Return the section's paragraphs, and write its charts below ``docs``.

    Args:
        docs: folder of the report.
        heading: heading of the section.
        benchmark: the benchmark, whose module's docstring becomes the section's text.
        entry: line with its figures.
        charts: name -> SVG.
        notes: further paragraphs, in the markup of docstrings.
        runs: the lines from which ``entry`` was combined; empty: ``entry`` itself.
    """
    about = inspect.getdoc(inspect.getmodule(benchmark.measure)) or ""
    parts = [f"## {heading}\n", *map(_markdown, (about, *notes))]
    parts += map(provenance, runs or (entry,))
    if "skipped" in entry:
        parts.append(f"Not measured in full: {entry['skipped']}.\n")
    for name, chart in charts.items():
        (docs / "benchmarks" / f"{name}.svg").write_text(chart, encoding="utf-8")
        parts.append(f"![{name}](benchmarks/{name}.svg)\n")
    for grid in benchmark.tables(entry):
        parts += [f"*{grid.title[:1].upper()}{grid.title[1:]}*\n", grid.markdown()]
    return parts


def _markdown(about: str) -> str:
    """Convert a docstring to Markdown."""
    return about.replace("``", "`").replace(":mod:`", "`") + "\n"
