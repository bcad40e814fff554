"""The support bundle: versions, settings, plans and logs for diagnosis, without secrets."""
