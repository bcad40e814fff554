"""Explanation of plans: data, text and graphs; differences; plans without a result."""
