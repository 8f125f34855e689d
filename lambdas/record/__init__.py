"""Writes what came of a model and tells people."""
