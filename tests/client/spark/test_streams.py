"""Streaming DataFrames as streams, as far as no pipeline is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from anabranch_client.errors import UsageError
from anabranch_client.rest.api import Client
from anabranch_client.spark import stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Nothing listens there: a request fails by another error.
NOBODY = "http://127.0.0.1:9"


@pytest.mark.spark
def test_a_dataframe_without_a_stream_registers_nothing(spark: SparkSession) -> None:
    with Client(NOBODY) as client, pytest.raises(UsageError, match="has no stream of rows"):
        stream(spark.range(3), name="numbers", checkpoint="unused", client=client)
