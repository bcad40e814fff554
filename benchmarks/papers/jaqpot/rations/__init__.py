"""Rations measured in the runtime: the same ruleset and input under every policy and budget.

The planner, driver, stores, workers and result files are the real ones (:mod:`benchmarks.engine`),
without Spark.
"""
