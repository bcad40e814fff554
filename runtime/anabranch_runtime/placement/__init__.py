"""Partitions' hosts: moves at epochs, and frequent values spread over several."""
