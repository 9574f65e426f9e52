"""Composition roots: the only modules that know all the others."""
