"""Coldaisle: the node agent of a DGX."""

__version__ = "0.1.0"
