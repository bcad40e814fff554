"""What the tasks of a batch send each other where they are on several hosts."""
