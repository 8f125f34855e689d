"""The tiny encoder and tweets of the training tests."""

from tests.training.conftest import encoder, tweets  # noqa: F401 - fixtures
