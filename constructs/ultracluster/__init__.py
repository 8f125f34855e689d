"""Constructs, settings, rules and catalog of an UltraCluster environment."""
