"""Hash indexes over key vectors, and the compiled kernels that match and gather."""
