"""Planning: how long plans take to find, how good they are proven to be, and what they save.

``python -m benchmarks.planner [--json] [--seeds 20] [--only targets rivals ...]``

Each part prints one line of JSON as soon as it is done:

* ``targets``: the planner's targets, on the shapes that they state.
* ``incremental``: one query added to a thousand.
* ``figure9``: section VII-C of the CLASH paper, its Fig. 9 (a) to (f).
* ``rivals``: the formulation as printed and the tight one, on the same problems.
* ``solvers``: the tight program by every solver, on one thread and on two.
* ``tpch``: the demo's five queries under exact statistics of generated data.

*Problems* are drawn by :mod:`benchmarks.papers.clash.environment`, which says how. *Time* is all
from parsed queries to the compiled and validated ruleset, in a process that has loaded the solver
and made a small plan before. Every shape has a process of its own, whose peak memory is its own.
Every plan is validated outside the time; plans that were proven optimal in different ways must cost
the same. Where the planner's code changes during a run there are no figures, since later processes
would load other code than earlier ones: measure a copy of code that is being edited.
"""
