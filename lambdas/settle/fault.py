"""Tells a fault of the model from one of everything around it."""

from __future__ import annotations

from dataclasses import dataclass

# SageMaker's FailureReason, which CloudFormation repeats in the event of the endpoint: "The primary
# container for production variant main did not pass the ping health check. Please check ..."; seen
# from CloudFormation in https://github.com/aws/amazon-sagemaker-examples/issues/379
_NOT_HEALTHY = "did not pass the ping health check"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Why a roll-out failed; `of_model`: the same bytes would fail again."""

    reason: str
    of_model: bool

    def then(self, effect: Fault) -> Fault:
        """This fault, and what followed from it."""
        return Fault(
            reason=f"{self.reason}; then: {effect.reason}",
            of_model=self.of_model or effect.of_model,
        )


def told_by_aws(reason: str) -> Fault:
    """The fault that CloudFormation or SageMaker names.

    Only a container that starts with the model and is not healthy is the model's: an endpoint that
    was deleted or busy, missing capacity or a missing right would stop a good model as well.
    """
    return Fault(reason=reason, of_model=_NOT_HEALTHY in reason)


def told_by_container(reason: str, *, status: int | None) -> Fault:
    """The fault behind an HTTP error that the container gave to the manifest's texts.

    The serving toolkit answers 4xx or 500 where the model's code raises. 503 is a container with no
    worker free, 0 one that gave no answer in time: another try can end otherwise.
    """
    return Fault(reason=reason, of_model=status is not None and 400 <= status <= 500)
