"""Work on Spark: its session and workers, the job of a batch."""
