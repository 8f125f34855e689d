"""The six stacks of an environment: thin, each wires constructs and hands typed ports on."""
