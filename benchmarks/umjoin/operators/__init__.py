"""Join operators of one process over a state backend."""
