"""Other engines on our workloads, each in an environment of its own (``.rivals/NAME``)."""
