"""The driver: batch after batch, attempts, commits, merges, epochs, standby."""
