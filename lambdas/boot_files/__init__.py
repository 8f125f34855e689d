"""Puts boot scripts where nodes find them."""
