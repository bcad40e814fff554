"""Many live queries: what one more of them costs, and what all of them cost per epoch and batch."""
