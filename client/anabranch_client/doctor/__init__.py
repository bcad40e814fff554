"""Checks of the machine and of a pipeline's folder, for ``anabranch doctor``."""
