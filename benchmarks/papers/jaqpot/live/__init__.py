"""Limited CPU measured live, with Spark and the service, where input outruns the machine."""
