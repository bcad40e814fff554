"""The CLASH paper as printed: its integer program, and the random problems of its simulation.

The program that pipelines run (``optimizer: clash``) is :mod:`anabranch_planner.search`.
"""
