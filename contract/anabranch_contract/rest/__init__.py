"""The bodies of the REST API. Requests refuse what they don't know; answers are explicit."""
