"""Keeps a security group until the last network interface has left it."""
