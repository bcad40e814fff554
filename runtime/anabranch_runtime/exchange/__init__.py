"""Messages between the tasks of a batch on several hosts."""
