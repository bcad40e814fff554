"""Datasets of Spark's that read queries of anabranch; docs/spark.md explains them."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import sum

from anabranch_client.spark import register

spark = SparkSession.active()
register(spark)


@dp.table
def purchases() -> DataFrame:
    """Results of the query ``bought``, each once."""
    return spark.readStream.format("anabranch").load("bought")


@dp.materialized_view
def revenues() -> DataFrame:
    """The query ``revenue`` as of the newest batch."""
    return spark.read.format("anabranch").load("revenue")


@dp.materialized_view
def visitors() -> DataFrame:
    """Sums over the table ``purchases``."""
    return spark.read.table("purchases").groupBy("visitor").agg(sum("price").alias("spent"))
