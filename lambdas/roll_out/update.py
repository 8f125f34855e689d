"""Updates the Endpoint stack, whose refusal of a second update at a time is the mutex."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from shared.stack import PARAMETER, StackFacts, describe, operation, tokens

_TOKEN_LENGTH = 128


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The stack to update, the role that CloudFormation updates it with, and the endpoint in it."""

    endpoint_stack: str
    service_role_arn: str
    endpoint_name: str

    @property
    def smoke_alarm(self) -> str:
        """Name of the alarm by which SageMaker rolls back a model that fails its texts."""
        return f"{self.endpoint_name}-smoke"


class Updater:
    """Starts updates of the Endpoint stack; waits for none.

    Every answer has a `status`: `started`; `busy`, try again later; `unchanged`, nothing to do;
    `overtaken`, another model has been asked for since. `started` comes with the update's `token`,
    its `target`.
    """

    def __init__(self, settings: Settings, *, cloudformation: Any, cloudwatch: Any) -> None:
        self._settings = settings
        self._cloudformation = cloudformation
        self._cloudwatch = cloudwatch

    def roll_out(
        self, *, model_url: str, previous_model_url: str, token: str, announcement: str
    ) -> dict[str, Any]:
        """Ask for a model, if what serves is still what it was validated against.

        Args:
            model_url: URL of the model to serve.
            previous_model_url: what served when the model was validated.
            token: names this attempt; the same again does not update twice.
            announcement: names the event that the run answers, empty where a person started it; of
                the runs of one event only one updates.
        """
        token = _client_request_token(f"{announcement}-{token}" if announcement else token)
        stack = describe(self._cloudformation, self._settings.endpoint_stack)
        if self._began(stack, model_url, token):
            return _started(token, target=model_url, leaves=previous_model_url)
        if announcement and self._tried_by_another(stack, announcement, token):
            # Its verdict may not be written yet, where the model was rolled back a moment ago.
            return {"status": "unchanged", "reason": "another run has tried this announcement"}
        if stack.busy:
            return {"status": "busy", "reason": f"the stack is in {stack.status}"}
        if stack.model_url == model_url:
            return {"status": "unchanged", "reason": "the stack serves this model already"}
        if stack.model_url != previous_model_url:
            return {"status": "busy", "reason": f"{stack.model_url} serves since"}
        return self._update(stack, target=model_url, leaves=previous_model_url, token=token)

    def roll_back(self, *, model_url: str, previous_model_url: str, token: str) -> dict[str, Any]:
        """Ask for what served before, if the stack still has this run's model.

        Args:
            model_url: the model to take away.
            previous_model_url: what to serve instead, `none` for nothing.
            token: names this attempt; the same again does not update twice.
        """
        token = _client_request_token(token)
        stack = describe(self._cloudformation, self._settings.endpoint_stack)
        if self._began(stack, previous_model_url, token):
            return _started(token, target=previous_model_url, leaves=model_url)
        if stack.model_url != model_url:
            return {"status": "overtaken", "reason": f"the stack has {stack.model_url} by now"}
        if stack.busy:
            return {"status": "busy", "reason": f"the stack is in {stack.status}"}
        return self._update(stack, target=previous_model_url, leaves=model_url, token=token)

    def _began(self, stack: StackFacts, target: str, token: str) -> bool:
        """Whether an invocation that died after its call to CloudFormation was this one."""
        if stack.model_url != target:
            return False
        return operation(self._cloudformation, stack.name, token).state != "unknown"

    def _tried_by_another(self, stack: StackFacts, announcement: str, token: str) -> bool:
        """Whether another run of the same event got as far as an update."""
        event = _client_request_token(f"{announcement}-")
        run, _, _ = token.rpartition("-")
        return any(
            found.startswith(event) and not found.startswith(run)
            for found in tokens(self._cloudformation, stack.name)
        )

    def _update(self, stack: StackFacts, *, target: str, leaves: str, token: str) -> dict[str, Any]:
        if self._alarm_still_rings():
            reason = f"alarm {self._settings.smoke_alarm} would undo an update at once"
            return {"status": "busy", "reason": reason}
        kept = [{"ParameterKey": name, "UsePreviousValue": True} for name in stack.other_parameters]
        try:
            self._cloudformation.update_stack(
                StackName=stack.name,
                UsePreviousTemplate=True,
                Parameters=[{"ParameterKey": PARAMETER, "ParameterValue": target}, *kept],
                Capabilities=["CAPABILITY_IAM"],
                RoleARN=self._settings.service_role_arn,
                ClientRequestToken=token,
            )
        except ClientError as error:
            message = error.response["Error"].get("Message", "")
            if "No updates are to be performed" in message:
                return {"status": "unchanged", "reason": message}
            if "IN_PROGRESS" in message:
                return {"status": "busy", "reason": message}
            raise
        return _started(token, target=target, leaves=leaves)

    def _alarm_still_rings(self) -> bool:
        """Whether a bake that failed a moment ago would be held against the next model.

        A stack that was never deployed with the alarm has none.
        """
        answer = self._cloudwatch.describe_alarms(AlarmNames=[self._settings.smoke_alarm])
        return any(alarm["StateValue"] == "ALARM" for alarm in answer["MetricAlarms"])


def _started(token: str, *, target: str, leaves: str) -> dict[str, Any]:
    return {
        "status": "started",
        "reason": f"cloudformation updates the stack from {leaves}",
        "token": token,
        "target": target,
    }


def _client_request_token(name: str) -> str:
    """A token of CloudFormation's alphabet; the end of a long name, which tells attempts apart."""
    return "d-" + re.sub(r"[^A-Za-z0-9]", "-", name)[-(_TOKEN_LENGTH - 2) :]
