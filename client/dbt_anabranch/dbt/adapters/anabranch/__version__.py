"""Version of the adapter."""

version = "0.1.0"
