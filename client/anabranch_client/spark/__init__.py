"""Queries as Spark DataFrames, and Spark's streams and tables as input of queries; needs
PySpark."""

from __future__ import annotations

from anabranch_client.spark.source import AnabranchSource, query, register
from anabranch_client.spark.streams import stream
from anabranch_client.spark.tables import table

__all__ = ["AnabranchSource", "query", "register", "stream", "table"]
