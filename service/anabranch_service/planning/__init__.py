"""Planning of registered queries: the epoch loop, cost constants, replanning, dry runs."""
