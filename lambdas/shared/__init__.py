"""What the delivery functions share; standard library and boto3 only."""
