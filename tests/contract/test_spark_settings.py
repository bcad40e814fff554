"""Tests of Spark settings from options and an environment variable, and of refusals
with remedies.
"""

from __future__ import annotations

import pytest

from anabranch_contract.spark_settings import KEPT, given_settings, spark_setting


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("spark.executor.memory=4g", ("spark.executor.memory", "4g")),
        ("  spark.a = b ", ("spark.a", "b")),
        ("spark.a=", ("spark.a", "")),
        ("spark.jars.packages=a:b:1,c:d:2", ("spark.jars.packages", "a:b:1,c:d:2")),
        ("spark.x.label.app.kubernetes.io/name=y", ("spark.x.label.app.kubernetes.io/name", "y")),
        ("spark.hadoop.fs.s3a.path=a=b", ("spark.hadoop.fs.s3a.path", "a=b")),
    ],
)
def test_a_setting_is_a_key_and_all_that_follows(text: str, wanted: tuple[str, str]) -> None:
    assert spark_setting(text) == wanted


@pytest.mark.parametrize(
    "text", ["", "spark", "spark.a", "a.b=c", "spark. a=b", "spark.a=b\nspark.c"]
)
def test_what_is_no_setting_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="give KEY=VALUE, such as"):
        spark_setting(text)


def test_what_has_an_option_of_its_own_names_it() -> None:
    with pytest.raises(ValueError, match=r"use --master \(ANABRANCH_MASTER\)"):
        spark_setting("spark.master=yarn")
    with pytest.raises(ValueError, match="the runtime's own process is the driver"):
        spark_setting("spark.submit.deployMode=cluster")


@pytest.mark.parametrize("key", sorted(KEPT))
def test_what_the_pipeline_relies_on_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="leave it out"):
        spark_setting(f"{key}=x")


def test_options_win_over_the_variable_and_errors_say_which_it_was() -> None:
    environ = {"ANABRANCH_SPARK_CONF": "\nspark.a=1\n\n  spark.b=x y\n"}
    assert given_settings(None, environ) == {"spark.a": "1", "spark.b": "x y"}
    assert given_settings(["spark.c=2"], environ) == {"spark.c": "2"}
    assert given_settings(None, {}) == {}
    with pytest.raises(ValueError, match=r"^--spark-conf: 'a=1' is not a setting"):
        given_settings(["a=1"], {})
    with pytest.raises(ValueError, match=r"^ANABRANCH_SPARK_CONF: 'a=1' is not a setting"):
        given_settings(None, {"ANABRANCH_SPARK_CONF": "a=1"})
