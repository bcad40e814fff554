"""Network exchange of tuples and messages between the tasks of a batch on several hosts."""
