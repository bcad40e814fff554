"""Models, rivals, ablations and examples of the papers that no pipeline runs.

``docs/papers.md`` names the module behind each idea of each paper, and the ideas that are only
simulated. One room per paper; ``python -m benchmarks.papers`` has a subcommand per room.
"""
