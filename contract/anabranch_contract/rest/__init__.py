"""The bodies of the REST API. Requests with unknown fields are refused; answers have all fields."""
