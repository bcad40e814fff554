"""Rationed probes measured in the runtime: one ruleset, the same input, every policy and budget.

Real planner, driver, stores, workers and result files (:mod:`benchmarks.engine`); no Spark.
"""
