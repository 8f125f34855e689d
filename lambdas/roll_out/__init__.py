"""Asks CloudFormation for another model."""
