"""The batch protocol and the process around it."""
