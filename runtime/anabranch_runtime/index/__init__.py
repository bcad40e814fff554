"""Hash indexes over join keys, and compiled kernels that match probes and gather rows."""
