"""Parsers of the operator's Spark settings (``--spark-conf``), and of the forms of a master URL."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

OPTION = "--spark-conf"
#: Environment variable with one setting per line, as values may contain commas and spaces.
VARIABLE = "ANABRANCH_SPARK_CONF"

#: Spark settings fixed by the runtime, since correctness or start-up time depends on them.
KEPT = frozenset(
    {
        "spark.python.unix.domain.socket.enabled",
        "spark.python.daemon.module",
        "spark.sql.streaming.checkpointFileManagerClass",
        "spark.sql.streaming.checkpoint.fileChecksum.enabled",
        "spark.hadoop.fs.file.impl",
        "spark.sql.session.timeZone",
        "spark.stage.maxConsecutiveAttempts",
        "spark.sql.adaptive.enabled",
        "spark.sql.streaming.minBatchesToRetain",
        "spark.sql.streaming.numRecentProgressUpdates",
        "spark.sql.streaming.noDataMicroBatches.enabled",
        "spark.sql.streaming.queryEvolution.enableSourceEvolution",
        "spark.sql.execution.arrow.maxRecordsPerBatch",
    }
)
#: Refused Spark setting -> the option of anabranch that replaces it; empty: there is none.
_ELSEWHERE = {"spark.master": "--master (ANABRANCH_MASTER)", "spark.submit.deployMode": ""}
_SETTING = re.compile(r"(spark\.[^\s=]+)\s*=\s*(.*)")


def spark_setting(text: str) -> tuple[str, str]:
    """Parse one Spark setting ``KEY=VALUE``.

    Raises:
        ValueError: the text is not a setting, or operators can't set the key; with the remedy.

    >>> spark_setting("spark.executor.memory=4g")
    ('spark.executor.memory', '4g')
    >>> spark_setting("spark.executor.extraJavaOptions=-Da=b -Dc=d")
    ('spark.executor.extraJavaOptions', '-Da=b -Dc=d')
    """
    found = _SETTING.fullmatch(text.strip())
    if found is None:
        raise ValueError(
            f"{text!r} is not a setting of Spark: give KEY=VALUE, such as spark.executor.memory=4g"
        )
    key, value = found[1], found[2]
    if key in _ELSEWHERE:
        instead = _ELSEWHERE[key]
        raise ValueError(
            f"{key} can't be set here: "
            + (f"use {instead}" if instead else "the runtime's own process is the driver")
        )
    if key in KEPT:
        raise ValueError(f"{key} can't be changed, the pipeline relies on its value: leave it out")
    return key, value


def given_settings(
    texts: Iterable[str] | None, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Parse the Spark settings in the options ``texts``, or, if None, in :data:`VARIABLE`.

    Raises:
        ValueError: as :func:`spark_setting`, with the name of the option or variable.

    >>> given_settings(None, {"ANABRANCH_SPARK_CONF": "spark.a=1\\nspark.b=2\\n"})
    {'spark.a': '1', 'spark.b': '2'}
    >>> given_settings(["spark.a=3"], {"ANABRANCH_SPARK_CONF": "spark.a=1"})
    {'spark.a': '3'}
    """
    source = OPTION
    if texts is None:
        source = VARIABLE
        texts = [line for line in environ.get(VARIABLE, "").splitlines() if line.strip()]
    try:
        return dict(map(spark_setting, texts))
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error


def is_local(master: str) -> bool:
    """Whether Spark's driver and executors run in one process under ``master``.

    >>> is_local("local[*]"), is_local("local-cluster[3,1,1024]"), is_local("spark://host:7077")
    (True, False, False)
    """
    return re.fullmatch(r"local(\[.*\])?", master) is not None
