"""The support bundle: what a person who helps needs to see, without secrets."""
