"""Limited CPU divided among probes (JAQPOT).

Simulated by ``python -m benchmarks.papers jaqpot simulation``.

Plans are drawn from the ranges of Table 3, every figure over the same seeds:

* ``throughput`` (Fig. 7): results by resources, per policy, and how far selectivities matter;
* ``changes`` (Fig. 6, 8): Poisson arrivals, while selectivities change, and over five streams;
* ``freshness`` (Fig. 9): stale results per policy, and what freshness takes;
* ``decisions``: greedy covers over exact ones, and how long an allocation takes.

Nothing is executed: results follow the paper's own model of rates, in which stored tuples cost
nothing. Source: JAQPOT, section 5.
"""
