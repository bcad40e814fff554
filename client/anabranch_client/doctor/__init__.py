"""Checks of the machine, packages and a pipeline's folder, for ``anabranch doctor``."""
