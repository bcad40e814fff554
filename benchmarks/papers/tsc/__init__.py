"""TSC over statements that cannot run: a reader of any query of TPC-H, and most of TPC-DS.

The conversion itself is the planner's (``anabranch_planner.logical.tsc``); here are the plans of
statements with subqueries, set operations and window functions.
"""
