"""Judges an announced model."""
