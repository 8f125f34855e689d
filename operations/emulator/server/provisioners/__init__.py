"""CloudFormation resource types that MiniStack does not know."""
