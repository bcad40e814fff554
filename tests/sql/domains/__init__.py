"""Common SQL statements of some domains (airline etc.), over their own streams."""
