"""The REST API, one module per resource: requests are checked, and answered from the registry."""
