"""The planner: from SQL join queries to one jointly optimised, epoch-tagged ruleset.

Pure functions over frozen values: no I/O, no clock, no Spark, no Redis. The passes, in order:
``sql``/``structured`` (parse) -> ``normalise`` -> ``candidates`` -> ``cost`` -> ``formulation`` and
``solve`` (inside ``optimise``) -> ``compile`` (ruleset) and ``explain``.
"""
