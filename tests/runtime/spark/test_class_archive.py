"""Tests of the JVM's class-data archive for Spark: found, omitted if it does not match, usable when
created.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch_runtime.spark.class_archive import FOLDER_VARIABLE, archive_options, archive_path

#: With ``-Xshare:on`` a JVM that can't use the archive does not start.
USE = """
from anabranch_runtime.spark.class_archive import archive_options
from anabranch_runtime.spark.session import JAVA_OPTIONS, SPARK_SETTINGS, spark_session
assert "SharedArchiveFile" in archive_options()
SPARK_SETTINGS[JAVA_OPTIONS] += " -Xshare:on"
print(spark_session("local[1]").range(3).count())
"""


def test_no_archive_means_no_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))

    assert archive_options() == ""


def test_an_archive_in_the_folder_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    archive_path().touch()

    assert f"-XX:SharedArchiveFile={archive_path()}" in archive_options().split()


def test_a_path_that_the_jvm_would_split_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my classes").mkdir()
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "my classes"))
    archive_path().touch()

    assert archive_options() == ""


def test_another_java_has_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = archive_path()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert archive_path() != before
    assert archive_path() == archive_path()


@pytest.mark.spark
@pytest.mark.slow
def test_what_is_made_can_be_used(tmp_path: Path) -> None:
    environ = {**os.environ, FOLDER_VARIABLE: str(tmp_path)}
    make = [sys.executable, "-m", "anabranch_runtime.spark.make_class_archive"]
    subprocess.run(make, env=environ, check=True, capture_output=True, timeout=240)
    assert len(list(tmp_path.glob("classes-*.jsa"))) == 1

    used = subprocess.run(
        [sys.executable, "-c", USE], env=environ, check=True, capture_output=True, timeout=120
    )

    assert used.stdout.split()[-1] == b"3"
