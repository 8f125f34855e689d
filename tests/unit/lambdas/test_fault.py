import pytest

from settle.fault import told_by_aws, told_by_container
from tests.unit.lambdas.fakes import UNHEALTHY


@pytest.mark.parametrize(
    ("reason", "of_model"),
    [
        (UNHEALTHY, True),
        (f'Resource handler returned message: "{UNHEALTHY}" (RequestToken: 1)', True),
        ("Unable to provision requested ML compute capacity", False),
        ("Could not find endpoint", False),
        ("Resource update cancelled", False),
        ("the update was cancelled", False),
        ("", False),
    ],
)
def test_only_a_failed_health_check_is_the_models(reason: str, of_model: bool) -> None:
    fault = told_by_aws(reason)
    assert (fault.reason, fault.of_model) == (reason, of_model)


@pytest.mark.parametrize(
    ("status", "of_model"),
    [(400, True), (415, True), (500, True), (503, False), (507, False), (0, False), (None, False)],
)
def test_an_error_of_the_models_code_is_the_models(status: int | None, of_model: bool) -> None:
    assert told_by_container("x", status=status).of_model is of_model
