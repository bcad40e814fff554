"""Tests of the Spark session's settings, and of the named causes of a cluster's failures."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from anabranch_contract.spark_settings import KEPT
from anabranch_runtime.driver import pipeline
from anabranch_runtime.errors import PipelineError
from anabranch_runtime.spark.job import unfit_workers
from anabranch_runtime.spark.session import JAVA_OPTIONS, SPARK_SETTINGS, settings_of

#: Settings that users may replace: time until an executor counts as lost, and Spark's page. Their
#: Java options are added to ours.
REPLACED = {
    JAVA_OPTIONS,
    "spark.executor.heartbeatInterval",
    "spark.executor.heartbeat.maxFailures",
    "spark.network.timeoutInterval",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures",
    "spark.storage.blockManagerHeartbeatTimeoutMs",
    "spark.ui.enabled",
    "spark.ui.showConsoleProgress",
    "spark.sql.streaming.ui.enabled",
}


def test_what_is_refused_is_what_the_session_relies_on() -> None:
    assert set(SPARK_SETTINGS) - REPLACED == KEPT


def test_given_settings_win_and_options_of_java_are_added() -> None:
    given = {"spark.ui.enabled": "true", JAVA_OPTIONS: "-Da=b", "spark.driver.host": "here"}
    master, settings = settings_of("spark://host:7077", given)
    assert master == "spark://host:7077"
    assert settings["spark.ui.enabled"] == "true"
    assert settings["spark.driver.host"] == "here"
    assert "spark.driver.bindAddress" not in settings
    assert "spark.default.parallelism" not in settings
    assert settings[JAVA_OPTIONS].startswith(SPARK_SETTINGS[JAVA_OPTIONS])
    assert settings[JAVA_OPTIONS].endswith(" -Da=b")


def test_a_local_session_listens_on_this_machine_only() -> None:
    master, settings = settings_of("local[2]", {})
    assert (master, settings["spark.default.parallelism"]) == ("local[4]", "2")
    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == "127.0.0.1"


class _Refusal(Py4JJavaError):  # type: ignore[misc]
    """A Java exception with a given text, without a JVM."""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)
        self._text = text

    def __str__(self) -> str:
        return self._text


def test_a_session_that_spark_refuses_says_why_in_one_line() -> None:
    failed: Future[Any] = Future()
    failed.set_exception(
        _Refusal(
            "An error occurred while calling None.JavaSparkContext.\n"
            ": java.net.BindException: Cannot assign requested address\n\tat java.base/x(Y.java:1)"
        )
    )
    with pytest.raises(PipelineError, match="BindException: Cannot assign") as caught:
        pipeline._session(failed)
    assert caught.value.code == "spark-not-started"
    assert "--spark-conf" in str(caught.value)
    assert "Y.java" not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("Error from python worker:\n  python: Error while finding module specification for "
         "'anabranch_runtime.spark.daemon' (ModuleNotFoundError: No module named "
         "'anabranch_runtime')\nPYTHONPATH was: ...", "anabranch_runtime"),
        ("PythonException: line 13\nModuleNotFoundError: No module named 'msgspec'\n", "msgspec"),
    ],
)  # fmt: skip
def test_a_package_that_executors_lack_is_named(said: str, name: str) -> None:
    found = unfit_workers(RuntimeError(said))
    assert found is not None
    assert found.code == "no-package"
    assert f"the Python of an executor has no {name}" in str(found)
    assert "spark.pyspark.python" in str(found)


@pytest.mark.parametrize(
    "said",
    [
        "ModuleNotFoundError: No module named 'anabranch_runtime.exchange'",
        "AttributeError: Can't get attribute 'CoordinatorAddress' on <module "
        "'anabranch_runtime.exchange.meeting' from '/x.py'>",
        "ImportError: cannot import name 'told' from 'anabranch_runtime.spark.apart' (/x.py)",
    ],
)
def test_another_release_on_executors_is_told_of(said: str) -> None:
    found = unfit_workers(RuntimeError(f"PythonException: line 13\n{said}\n"))
    assert found is not None
    assert found.code == "other-package"
    assert "the driver's release" in found.remedy


def test_other_failures_of_a_job_are_not_explained() -> None:
    assert unfit_workers(RuntimeError("Stage failed because barrier task finished")) is None
