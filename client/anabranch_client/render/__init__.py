"""Answers of the service as tables and text for the terminal."""
