"""TSC (binary to multi-way joins) for statements that cannot run continuously: all of TPC-H, most
of TPC-DS.

The conversion itself is the planner's (``anabranch_planner.logical.tsc``); this room reads
statements with subqueries, set operations and window functions into logical plans.
"""
