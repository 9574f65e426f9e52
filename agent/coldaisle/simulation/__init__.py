"""A simulated DGX at the vendor boundary: the real drivers run on it unchanged."""
