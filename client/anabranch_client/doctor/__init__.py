"""Checks of a machine and of a pipeline's folder: what ``anabranch doctor`` says."""
