"""Messages between the tasks of a batch that runs on several hosts."""
