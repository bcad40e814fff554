"""Documents that the control plane and the data plane exchange through Redis."""
