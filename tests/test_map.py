"""Tests that test modules have the path of the module that they test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import WIDE

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("contract", "planner", "runtime", "service", "client")
#: Number of lines from which on a module needs its own test file, or an entry in ELSEWHERE.
LARGE = 250
#: Module or folder -> the test that covers it, if a test of its own would repeat that.
ELSEWHERE = {
    "contract/connectors/addresses": "service/api/test_refused_registrations.py",
    "contract/plans/ruleset": "planner/plans/test_compile.py",
    "contract/queries/joins": "planner/normal/test_normalise.py",
    "contract/queries/text_values": "runtime/expressions/test_arithmetic.py",
    "contract/rest": "contract/test_rest_documents.py",
    "planner/binding": "planner/statements/test_refusals.py",
    "planner/cost/parts": "planner/replan/test_session.py",
    "planner/plans/compiling": "planner/plans/test_compile.py",
    "planner/search": "planner/differential/test_exactness.py",
    "planner/sources/spark_source": "runtime/sources/ingest/test_evaluate.py",
    "planner/sql": "planner/statements/test_refusals.py",
    "planner/normal/bind": "planner/normal/test_normalise.py",
    "runtime/control": "runtime/sources/pacing/test_rate_limiter.py",
    "runtime/driver/pipeline": "runtime/sources/ingest/test_queries.py",
    "runtime/probe/groups": "runtime/probe/test_reads.py",
    "runtime/driver/reporting/reporting": "runtime/driver/test_driver.py",
    "runtime/expressions/functions": "runtime/expressions/functions/test_kernels.py",
    "runtime/index/kernels": "runtime/index/test_matching.py",
    "runtime/sources/avro/program": "runtime/sources/avro/test_columns.py",
    "runtime/sources/protobuf/kernel": "runtime/sources/protobuf/test_columns.py",
    "runtime/sources/protobuf/program": "runtime/sources/protobuf/test_columns.py",
    "contract/connectors/schemas/proto_text": "contract/connectors/schemas/test_protobuf.py",
    "contract/connectors/schemas/declared": "contract/connectors/schemas/test_protobuf.py",
    "runtime/sources/ingest/feed": "runtime/sources/ingest/test_landing.py",
    "runtime/state/offsets": "runtime/sources/test_feeds.py",
    "runtime/storage/durable": "runtime/storage/test_object_store.py",
    "runtime/task": "runtime/replays/test_random_scenarios.py",
    "service/registry/redis/queries": "service/tables/test_cutover.py",
    "service/tables/child": "service/flight/test_server.py",
    "contract/protocol/keys": "service/routes/queries/test_results.py",
    "service/planning/request": "service/planning/what_if/test_dry_run.py",
    "service/registry/store": "service/registry/test_store_corrupt.py",
    "service/streaming/samples/files": "service/routes/test_source_tests.py",
    "service/streaming/tail": "service/routes/queries/test_results.py",
    "runtime/tables": "runtime/tables/test_table.py",
    "client/cli": "client/cli/test_app.py",
    "client/replay/player": "client/replay/test_replay.py",
    "client/supervise/supervisor": "e2e/test_supervision.py",
}


def _modules() -> dict[str, Path]:
    """Return package/folder/name -> file, of the whole product."""
    found = {}
    for package in PACKAGES:
        top = ROOT / package / f"anabranch_{package}"
        for file in top.rglob("*.py"):
            found[f"{package}/{file.relative_to(top).with_suffix('').as_posix()}"] = file
    return found


MODULES = _modules()


def _own(module: str) -> Path:
    folder, _, name = module.rpartition("/")
    return ROOT / "tests" / folder / f"test_{name}.py"


@pytest.mark.parametrize("package", PACKAGES)
def test_a_large_module_has_tests_under_its_path(package: str) -> None:
    large = [
        module
        for module, file in MODULES.items()
        if module.startswith(f"{package}/") and len(file.read_text().splitlines()) >= LARGE
    ]
    assert large
    listed = tuple(ELSEWHERE)
    without = [
        module
        for module in large
        if not _own(module).is_file()
        and not any(module == at or module.startswith(f"{at}/") for at in listed)
    ]
    assert without == [], "add tests/PACKAGE/FOLDER/test_MODULE.py"


def test_what_is_tested_elsewhere_is() -> None:
    gone = [test for test in ELSEWHERE.values() if not (ROOT / "tests" / test).is_file()]
    assert gone == []
    folders = {module.rpartition("/")[0] for module in MODULES}
    assert [at for at in ELSEWHERE if at not in MODULES and at not in folders] == []
    assert [at for at in ELSEWHERE if at in MODULES and _own(at).is_file()] == []


def test_a_test_in_a_folder_of_the_product_names_a_module_of_it() -> None:
    names: dict[str, set[str]] = {}
    for module in MODULES:
        folder, _, name = module.rpartition("/")
        names.setdefault(folder, set()).add(name)
    stray = []
    for package in PACKAGES:
        for file in sorted((ROOT / "tests" / package).rglob("test_*.py")):
            folder = file.parent.relative_to(ROOT / "tests").as_posix()
            name = file.stem.removeprefix("test_")
            if WIDE & set(file.parts) or folder == package:
                continue
            # test_segment_damage.py is a second file for segment.py.
            starts = {name} | {name[:i] for i, c in enumerate(name) if c == "_"}
            if not starts & names.get(folder, set()):
                stray.append(f"{folder}/{file.name}")
    assert stray == [], "move it to its module's path, or to a folder of tests of several modules"
