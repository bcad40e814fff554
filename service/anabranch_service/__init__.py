"""The control plane: REST over a registry in Redis, and the epoch loop that publishes rulesets."""
