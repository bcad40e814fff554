"""``python -m anabranch_runtime.inspection``: list and verify a state directory, compact its
segments, and merge result files; prints a JSON document to standard output.

All commands but ``compact`` leave the state unchanged and may be used while the pipeline runs: they
read the newest manifest. ``compact`` needs the directory's lock, so the pipeline must be stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import structlog

from anabranch_contract.codec import to_json
from anabranch_contract.errors import StructuredError
from anabranch_contract.protocol.state_report import StateReport, StoreReport
from anabranch_runtime.driver.compactor import Compactor
from anabranch_runtime.errors import SinkError, StateError
from anabranch_runtime.measure.state_report import (
    Packs,
    Weights,
    current_stores,
    pack_bytes,
    readers,
    state_report,
    store_report,
)
from anabranch_runtime.recovery.rulesets import kept_ruleset
from anabranch_runtime.sinks.merged import merge_results
from anabranch_runtime.state.manifest import KEPT, Manifests, State, packs_of, read_manifest
from anabranch_runtime.storage.durable import attach, durable
from anabranch_runtime.storage.pipeline_lock import exclusive
from anabranch_runtime.storage.segment import Segment


def describe(root: Path) -> dict[str, Any]:
    """Describe the state in ``root``: a :class:`StateReport`, and ``spare_bytes``, the size of pack
    files that the newest manifest does not name (older ones do, or a killed process left them).

    Raises:
        StateError: the directory has no state, or an unreadable manifest.
    """
    state = newest(root)
    ruleset = kept_ruleset(root, state.ruleset)
    named = packs_of(state)
    spare = (p for p in (root / "segments").glob("*") if f"segments/{p.name}" not in named)
    report = state_report(root, state, ruleset)
    return {
        "state": str(root),
        "spare_bytes": sum(pack_bytes(p) for p in spare),
        **_document(report),
        "stores": [{**_document(store), "kind": store.kind} for store in report.stores],
    }


def describe_store(root: Path, name: str) -> dict[str, Any]:
    """Describe a store of the state in ``root``, and its segments in the order of probes.

    Raises:
        StateError: ``unknown-store``.
    """
    state = newest(root)
    store = state.stores.get(name)
    if store is None:
        raise StateError(
            "unknown-store",
            f"there is no store {name!r}",
            field="store",
            remedy=f"one of: {', '.join(sorted(state.stores)) or 'none, the state is empty'}",
        )
    ruleset = kept_ruleset(root, state.ruleset)
    users, weights = readers(state, ruleset), Weights()
    packs = Packs.of(root, state, weights)
    found = store_report(name, store, state, current_stores(ruleset), users, packs, weights)
    return {**_document(found), "kind": found.kind, "parts": [_segment(s) for s in store.segments]}


def verify(root: Path) -> dict[str, Any]:
    """Compare every pack file named by the newest manifest with its checksums; packs that the
    directory lacks are read from the object store, if there is one.

    Returns:
        Number of packs and of bytes read, and per damaged or missing pack its error and remedy.
    """
    segments: dict[str, list[Segment]] = defaultdict(list)
    state = newest(root)
    stored = (segment for store in state.stores.values() for segment in store.kept)
    for segment in (*stored, *state.tables.segments):
        segments[segment.path].append(segment)
    problems = []
    for path, parts in sorted(segments.items()):
        try:
            durable(root).read(path, parts)
        except StateError as error:
            # A running pipeline may have merged and deleted the pack meanwhile, which is no fault.
            if path in packs_of(newest(root)):
                problems.append({"pack": path, **_told(error)})
    read = sum(s.bytes for parts in segments.values() for s in parts)
    return {"packs": len(segments), "bytes": read, "problems": problems}


def compact(root: Path) -> dict[str, Any]:
    """Merge the segments of every partition of the last ruleset's stores into as few as possible.

    Segments named by older manifests stay until later batches have replaced these manifests.

    Raises:
        StateError: the directory is in use, its ruleset is missing, or a segment is damaged.
    """
    newest(root)
    kept = durable(root)
    with exclusive(root), kept.held():
        kept.adopt()
        manifests = Manifests(root)
        manifests.kept()  # Reads them all: `dropped` needs the packs that they name.
        state = newest(root)
        before = _segments(state)
        ruleset = kept_ruleset(root, state.ruleset)
        if ruleset is None and before:
            raise StateError(
                "no-ruleset",
                f"ruleset {state.ruleset}, which names the indexes, is not kept",
                remedy="start the pipeline once, so that it keeps its ruleset, and stop it",
            )
        if ruleset is not None:
            compactor = Compactor(root)
            compactor.rewrite(state, ruleset)
            state = compactor.settle(state)
            manifests.commit(state)
            compactor.settled(state)
            kept.discard(manifests.dropped())
        return {"segments_before": before, "segments": _segments(state), "bytes": state.bytes}


def merge(root: Path, results: Path) -> dict[str, Any]:
    """Merge the result files of the pipeline whose state is in ``root``; it may be running.

    Raises:
        StateError: ``root`` has no state.
        SinkError: ``results`` is not a directory, or another process is merging in it.
    """
    newest(root)
    if not results.is_dir():
        raise SinkError(
            "no-results",
            f"{results} is not a directory",
            field="results",
            remedy="name a pipeline's results (anabranch up --dir D has them in D/results)",
        )
    # Recovery may return to the oldest kept manifest: only earlier batches' results are final.
    settled = int(_manifests(root)[-KEPT - 1 :][0].stem)
    return asdict(merge_results(results, settled))


def newest(root: Path) -> State:
    """Return the state in the directory ``root`` as of its newest manifest.

    Raises:
        StateError: ``no-state``, or the manifest can't be read.
    """
    # A running pipeline may delete a manifest between listing and reading: retry.
    for left in (2, 1, 0):
        names = _manifests(root)
        if not names:
            break
        try:
            return read_manifest(names[-1])
        except StateError:
            if not left or names == _manifests(root):
                raise
    raise StateError(
        "no-state",
        f"{root} holds no state",
        field="state",
        remedy="name a pipeline's state directory (anabranch up --dir D has it in D/state)",
    )


def _manifests(root: Path) -> list[Path]:
    return sorted((root / "manifest").glob("*.json")) if root.is_dir() else []


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; return the exit code: 1 after an error, or if ``verify`` finds a fault."""
    parser = argparse.ArgumentParser(prog="anabranch_runtime.inspection", description=__doc__)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--object-store", default=os.environ.get("ANABRANCH_OBJECT_STORE") or None)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("ls", "verify", "compact"):
        commands.add_parser(name)
    commands.add_parser("show").add_argument("store")
    commands.add_parser("merge-results").add_argument("results", type=Path)
    options = parser.parse_args(arguments)
    root: Path = options.state
    try:
        attach(root, options.object_store)
        if options.command == "show":
            found = describe_store(root, options.store)
        elif options.command == "merge-results":
            found = merge(root, options.results)
        else:
            found = {"ls": describe, "verify": verify, "compact": compact}[options.command](root)
    except StructuredError as error:
        sys.stdout.write(json.dumps({"error": _told(error)}) + "\n")
        return 1
    sys.stdout.write(json.dumps(found) + "\n")
    return 1 if found.get("problems") else 0


def _told(error: StructuredError) -> dict[str, str]:
    return {
        "code": error.code,
        "message": error.message,
        "field": error.field,
        "remedy": error.remedy,
    }


def _document(report: StateReport | StoreReport) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(report, default=to_json))
    return found


def _segment(segment: Segment) -> dict[str, Any]:
    return {
        "pack": segment.path,
        "partition": segment.partition,
        "level": segment.level,
        "rows": segment.rows,
        "bytes": segment.bytes,
        "batches": [segment.first_batch, segment.last_batch],
        "event_time": [list(t) for t in zip(segment.tau_min, segment.tau_max, strict=True)],
        "indexes": [{"key": name, "unique": unique} for name, unique, _ in segment.indexes],
    }


def _segments(state: State) -> int:
    return sum(len(s.segments) for s in state.stores.values())


if __name__ == "__main__":
    # Log to standard error: standard output is for the JSON document.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    sys.exit(main())
