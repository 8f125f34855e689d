"""Lets deliveries end before what they need is deleted."""
