"""Webhooks: sinks whose results are posted to an address."""
