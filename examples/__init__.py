"""Five pipelines with generated data: ``python -m examples NAME``; each folder has a README."""
