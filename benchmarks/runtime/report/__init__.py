"""Report page with the figures of the runtime."""
