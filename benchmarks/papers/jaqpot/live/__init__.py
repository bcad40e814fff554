"""Limited CPU time measured live, with Spark and the service, if input outruns the machine."""
