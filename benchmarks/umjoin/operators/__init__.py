"""Join operators over a state backend, in one process."""
