"""Use of Spark: its session, its executors and workers, and the job of a batch's tasks on them."""
