"""Webhooks: results posted to an address, in signed requests."""
