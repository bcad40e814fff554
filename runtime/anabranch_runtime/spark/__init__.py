"""Use of Spark: its session, its workers, and the job of a batch."""
