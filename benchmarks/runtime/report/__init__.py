"""The page of the runtime's figures."""
