"""The planner: from SQL join queries to one jointly optimised, epoch-tagged ruleset.

Pure functions over frozen values: no I/O, no clock, no Spark, no Redis. :mod:`.passes` lists the
passes of planning in order.
"""
