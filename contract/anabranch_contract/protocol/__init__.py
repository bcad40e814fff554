"""What the control plane and the data plane say to each other through Redis."""
