"""Division of limited CPU time among the probes of joins (the JAQPOT paper): simulations and
measurements.

``python -m benchmarks.papers jaqpot simulation`` runs the simulations.

Plans are drawn from the ranges of Table 3, with the same seeds for every figure:

* ``throughput`` (Fig. 7): results by resources and policy, and the influence of the range of
selectivities;
* ``changes`` (Fig. 6, 8): results of Poisson arrivals while selectivities change, and over five
streams;
* ``freshness`` (Fig. 9): stale results by policy, and the resources that freshness takes;
* ``decisions``: costs of greedy covers relative to exact ones, and the time of an allocation.

Nothing is executed: results follow the paper's own model of rates, in which stored tuples cost
nothing. Source: JAQPOT, section 5.
"""
