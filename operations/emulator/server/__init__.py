"""The emulated AWS account, served by one process on one loopback port.

MiniStack answers most services and runs the CloudFormation engine; moto answers Application Auto
Scaling; FSx and SageMaker are our own. What MiniStack lacks or does otherwise than AWS is added
here through tables of its modules, each with a contract test, because they are private to it.
Runs in `.venv-emulator` only.
"""
