"""Explanation of plans as data, text and graphs; differences of plans; value of stored results."""
