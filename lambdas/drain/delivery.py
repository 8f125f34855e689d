"""What a delivery still does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from shared.stack import NEVER_DEPLOYED


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """One environment's delivery.

    Args:
        rule: name of the rule that starts it.
        machine: ARN of its state machine.
        endpoint_stack: name of the stack that it updates.
        events: boto3 client.
        states: boto3 client.
        cloudformation: boto3 client.
    """

    rule: str
    machine: str
    endpoint_stack: str
    events: Any
    states: Any
    cloudformation: Any

    def open(self) -> None:
        """Let manifests start deliveries."""
        self.events.enable_rule(Name=self.rule)

    def close(self) -> None:
        """Let no manifest start a delivery from now on."""
        try:
            self.events.disable_rule(Name=self.rule)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ResourceNotFoundException":
                raise

    def under_way(self) -> str | None:
        """What is not finished, in words, and what to do about it.

        An execution that waits for a person may do so for days and has changed nothing: it is
        stopped.
        """
        running = self.states.list_executions(
            stateMachineArn=self.machine, statusFilter="RUNNING", maxResults=10
        )["executions"]
        for item in running:
            if self._waits_for_a_person(item["executionArn"]):
                self.states.stop_execution(
                    executionArn=item["executionArn"],
                    error="DeliveryDeleted",
                    cause="the delivery was deleted before anybody approved the model",
                )
        if running:
            names = ", ".join(item["executionArn"] for item in running)
            return (
                f"still running: {names}; let them end, or stop them with "
                "aws stepfunctions stop-execution, then delete again"
            )
        status = self._status()
        if status.endswith("_IN_PROGRESS") and status != NEVER_DEPLOYED:
            return f"stack {self.endpoint_stack} is in {status}; let it end, then delete again"
        return None

    def _waits_for_a_person(self, execution: str) -> bool:
        (last,) = self.states.get_execution_history(
            executionArn=execution, reverseOrder=True, maxResults=1, includeExecutionData=False
        )["events"]
        asked = last.get("taskSubmittedEventDetails") or last.get("taskScheduledEventDetails", {})
        return bool(asked.get("resource", "").endswith(".waitForTaskToken"))

    def _status(self) -> str:
        try:
            answer = self.cloudformation.describe_stacks(StackName=self.endpoint_stack)
        except ClientError as error:
            if "does not exist" in error.response["Error"].get("Message", ""):
                return "DELETE_COMPLETE"
            raise
        return str(answer["Stacks"][0]["StackStatus"])
