"""Fixtures of all tests: hypothesis profiles, a Spark session, a browser."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.support import distribution
from tests.support.durations import Durations
from tests.support.order import shuffled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from scripts.kafka import Broker
    from scripts.postgres import Server

# `dev` gives the same examples in every run, so failures are reproducible. `deep` searches for new
# examples (make test-full, or pytest --hypothesis-profile deep).
settings.register_profile(
    "dev",
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "deep",
    max_examples=1000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("dev")

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


#: Folders of tests that span modules and processes; all others mirror the product's folders.
WIDE = {
    "differential",
    "statements",
    "replays",
    "api",
    "pages",
    "e2e",
    "cluster",
    "benchmarks",
    "support",
}
#: Folders and modules of ``make test-e2e``; ``make test`` runs their tests without the mark.
PIPELINES = {"e2e", "cluster", "pages", "replays", "combined", "sql", "test_up.py"}
#: Folders whose modules start processes.
PROCESSES = {"client", "command", "solvers", "spark"}
#: Fixtures that start servers or programs.
STARTING = {"spark", "redis", "chromium", "kafka", "postgres"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of a random order."""
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run tests in a random order")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Print the seeds of a random order, and of string hashing."""
    seed = config.getoption("shuffle")
    sets = f"order of sets: PYTHONHASHSEED={os.environ.get('PYTHONHASHSEED', 'random')}"
    return [sets] if seed is None else [sets, f"random order: --shuffle {seed}"]


def pytest_configure(config: pytest.Config) -> None:
    """Distribute tests by file, and sum their time by folder in the process that has
    all reports.
    """
    if config.pluginmanager.has_plugin("xdist"):
        config.pluginmanager.register(distribution)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations())


@pytest.fixture(scope="module", autouse=True)
def _frozen() -> None:
    """Exclude existing objects from garbage collections, which tests run to find what they left
    open.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without garbage collections: all objects made meanwhile stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark fast tests, and shuffle all tests if an option says so."""
    for item in items:
        used = set(getattr(item, "fixturenames", ()))
        folders = set(item.path.relative_to(config.rootpath).parts)
        starts = used & STARTING or folders & (WIDE | PROCESSES)
        if not starts and not item.get_closest_marker("slow"):
            item.add_marker("fast")
        if item.get_closest_marker("e2e") and not folders & PIPELINES:
            raise pytest.UsageError(f"make test-e2e runs {sorted(PIPELINES)} only: {item.nodeid}")
    seed = config.getoption("shuffle")
    if seed is not None:
        items[:] = shuffled(items, seed)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small local Spark session, shared by the tests marked ``spark``: two cores, UTC, no UI."""
    # Imported here, so that a run without Spark tests is fast.
    from pyspark.sql import SparkSession

    root = tmp_path_factory.mktemp("spark")
    log4j = root / "log4j2.properties"
    log4j.write_text(_QUIET_LOG4J)
    # The machine's daylight saving must not influence a test.
    timezone = "-Duser.timezone=UTC"
    # Otherwise Spark starts the `python3` of the path, which lacks this environment's packages.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .appName("anabranch-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config(
            "spark.driver.extraJavaOptions",
            f"{timezone} -Dlog4j2.configurationFile={log4j.as_uri()}",
        )
        .config("spark.local.dir", str(root / "local"))
        .config("spark.sql.warehouse.dir", str(root / "warehouse"))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.default.parallelism", "2")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A Kafka broker of one node; skip if its libraries are not available."""
    from tests.support.surroundings.kafka import broker

    yield from broker(tmp_path_factory.mktemp("kafka"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server with logical replication; skip if its programs are missing."""
    from tests.support.surroundings.postgres import server

    yield from server()


@pytest.fixture(scope="session")
def chromium() -> Path:
    """Path of an installed Chromium or Chrome, for tests of pages; skip if there is none."""
    override = os.environ.get("ANABRANCH_CHROMIUM")
    found = override or next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(
            f"no browser: none of {', '.join(BROWSERS)} is on the path; install one "
            "or set ANABRANCH_CHROMIUM to its executable"
        )
    return Path(found)


_QUIET_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""
