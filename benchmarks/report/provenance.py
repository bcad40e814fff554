"""Paragraph on the origin of a benchmark's figures."""

from __future__ import annotations

from typing import Any


def provenance(entry: dict[str, Any]) -> str:
    """Return time, commit, machine, load, settings and versions as a paragraph."""
    machine, load = entry["machine"], entry["load"]
    versions = ", ".join(f"{name} {version}" for name, version in entry["versions"].items())
    settings = ", ".join(f"{name} {_plain(value)}" for name, value in entry["settings"].items())
    return (
        f"{entry['at']}, commit {commit_of(entry)}; {machine['cpus']} CPUs, "
        f"{machine['memory_gib']} GiB, {machine['system']}; load (1, 5, 15 min) "
        f"{_plain(load['before'])} before and {_plain(load['after'])} after. "
        f"Settings: {settings}. Versions: {versions}.\n"
    )


def commit_of(entry: dict[str, Any]) -> str:
    """Return the commit, and whether the tree had uncommitted changes."""
    commit = entry["commit"][:10] or "unknown"
    return f"`{commit}`" + (" and changes" if entry["changed"] else "")


def _plain(value: object) -> str:
    if isinstance(value, list):
        return " / ".join(map(str, value))
    return "default" if value is None else str(value)
