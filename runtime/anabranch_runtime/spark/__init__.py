"""Use of Spark: its session, its executors and workers, and the tasks of a batch on them."""
