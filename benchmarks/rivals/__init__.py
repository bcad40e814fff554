"""Other engines on our workloads, each in a separate environment (``.rivals/NAME``)."""
