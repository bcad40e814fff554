"""Benchmarks of planning: time to find plans, proven quality of plans, and savings by plans.

``python -m benchmarks.planner [--json] [--seeds 20] [--only targets rivals ...]``

Each part prints one line of JSON when it is finished:

* ``targets``: the planner's targets, on problems of the stated shapes.
* ``incremental``: planning after one query was added to a thousand.
* ``figure9``: section VII-C of the CLASH paper, its Fig. 9 (a) to (f).
* ``rivals``: the integer program as the paper prints it and our tight one, on the same problems.
* ``solvers``: the tight program solved by every solver, on one thread and on two.
* ``tpch``: the demo's five queries under exact statistics of generated data.

*Problems* are drawn by :mod:`benchmarks.papers.clash.environment`. *Time* is the time from parsed
queries to the compiled and validated ruleset, in a process that has loaded the solver and made a
small plan before. Every shape is measured in a separate process, so peak memory is that of one
shape. Every plan is validated again outside the measured time; plans that were proven optimal in
different ways must cost the same. If the planner's code changes during a run, no figures are
reported, since later processes would load other code than earlier ones; to edit code meanwhile,
measure a copy of it.
"""
