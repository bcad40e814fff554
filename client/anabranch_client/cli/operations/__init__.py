"""Commands of operators: health, doctor, state, access, support."""
