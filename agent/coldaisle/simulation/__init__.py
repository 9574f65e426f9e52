"""A simulated DGX at the vendor boundary: one process holds the machine, any process reads it as pynvml would.

The real drivers run on it unchanged; nothing above them knows. See docs/simulation.md.
"""
