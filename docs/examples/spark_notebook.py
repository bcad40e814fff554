"""Queries from a notebook, by Python and Spark: docs/spark.md explains the cells.

A pipeline (`anabranch up`) runs at http://127.0.0.1:8080.
"""

# %% Streams and queries
import time

from anabranch_client import Client

client = Client("http://127.0.0.1:8080")
pushed = {"source": {"format": "redis-stream"}, "event_time": "ts", "lateness": "1 minute"}
client.create_stream(
    "clicks", [("page", "bigint"), ("visitor", "string"), ("ts", "timestamp")], **pushed
)
client.create_stream(
    "sales", [("page", "bigint"), ("price", "decimal(9,2)"), ("ts", "timestamp")], **pushed
)
joined = "FROM clicks c JOIN sales s ON s.page = c.page"
client.create_query(f"SELECT c.visitor, s.page, s.price {joined}", name="bought", window="1 hour")
client.create_query(
    f"SELECT s.page, count(*) AS sold, sum(s.price) AS revenue {joined} GROUP BY s.page",
    name="revenue",
    window="1 hour",
)
while client.query("revenue").status == "pending":
    time.sleep(0.2)
client.queries()

# %% Rows
now = "2026-01-31T10:00:00Z"
client.push("clicks", [{"page": n % 2, "visitor": f"v{n}", "ts": now} for n in range(4)])
client.push("sales", [{"page": 0, "price": "2.50", "ts": now}])
client.push("sales", [{"page": 1, "price": "9.00", "ts": now}])
while client.table("revenue").num_rows < 2:
    time.sleep(0.2)
bought = client.query("bought")
bought.df()

# %% An earlier batch
batch = client.table_columns("bought").batch
before = bought.arrow(batch=batch - 1)

# %% SQL over several queries
totals = client.sql("""
    SELECT b.visitor, b.price / r.revenue AS share
    FROM bought b JOIN revenue r USING (page) ORDER BY b.visitor
""").to_pandas()

# %% Tables in Spark
from pyspark.sql import SparkSession

from anabranch_client.spark import query, register, stream

spark = SparkSession.builder.getOrCreate()
register(spark)
anabranch = spark.read.format("anabranch").option("url", client.base_url)
revenue = anabranch.load("revenue")
then = anabranch.option("asOfBatch", batch).load("bought")

# %% Results as a stream
results = spark.readStream.format("anabranch").option("url", client.base_url).load("bought")
copied = (
    results.writeStream.format("parquet")
    .option("path", "copied")
    .option("checkpointLocation", "copied-checkpoint")
    .trigger(availableNow=True)
    .start()
)
copied.awaitTermination()

# %% A stream of Spark's, joined with the others
rate = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
offers = rate.selectExpr("value % 2 AS page", "value AS offer", "timestamp AS ts")
pushing = stream(
    offers,
    name="offers",
    checkpoint="offers-checkpoint",
    client=client,
    event_time="ts",
    lateness="1 minute",
)
matched = query(
    spark,
    "SELECT o.offer, r.visitor FROM offers o JOIN clicks r ON r.page = o.page",
    name="matched",
    client=client,
)
