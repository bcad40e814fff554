"""What is stored: segments, the manifest, and which generation of a store answers a probe."""
