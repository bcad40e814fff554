"""Arrow arrays and types, as everything here reads them."""
