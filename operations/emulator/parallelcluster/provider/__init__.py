"""The code of the provider's Lambda function; ParallelCluster's package is in its environment."""
