"""Turns a trained model into the archive that SageMaker serves, checks it, and publishes it."""
