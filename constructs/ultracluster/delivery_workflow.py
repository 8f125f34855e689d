"""The states that take an announced model to the endpoint, or leave everything as it was."""

from __future__ import annotations

import math
from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

PATIENCE_SECONDS = 2 * 60 * 60
"""How long one wait may last in all: SageMaker gives up on an endpoint well before."""

_MOST_LOOKS = 1000
"""Ten events each, and a Standard execution holds 25,000 over its four waits of which two are long."""

_TRANSIENT = [
    "ConnectionClosedError",
    "ConnectTimeoutError",
    "EndpointConnectionError",
    "IncompleteReadError",
    "ReadTimeoutError",
    "ResponseStreamingError",
]


def _get(expression: str) -> str:
    return f"{{% {expression} %}}"


class DeliveryWorkflow:
    """Validate, roll out, settle, and on trouble roll back; every road ends in a record.

    Nothing runs while it waits, and every wait is counted: `_waits` names the count that bounds it.

    Args:
        poll_seconds: pause between two looks.
    """

    def __init__(
        self,
        scope: Construct,
        *,
        validate: lambda_.IFunction,
        roll_out: lambda_.IFunction,
        settle: lambda_.IFunction,
        record: lambda_.IFunction,
        poll_seconds: int,
    ) -> None:
        self._scope = scope
        self._poll_seconds = poll_seconds
        self._looks = min(math.ceil(PATIENCE_SECONDS / poll_seconds), _MOST_LOOKS)
        self._record = self._recording(record)
        self._nothing_to_do = sfn.Succeed.jsonata(
            scope,
            "NothingToDo",
            comment="Seen before, older than what serves, or overtaken: nothing changed",
            outputs={"outcome": "nothing-to-do", "reason": _get("$reason")},
        )
        roll_back = self._rolling_back(roll_out, settle)
        self.start = sfn.Pass.jsonata(
            scope,
            "Begin",
            assign={
                "run": {},
                "operation": {},
                "reason": "",
                "outcome": "failed",
                "checkedArchive": "",
                "turns": 0,
                "looks": 0,
                "rollBackTurns": 0,
                "rollBackLooks": 0,
            },
        )
        self.start.next(self._rolling_out(validate, roll_out, settle, roll_back))

    def _rolling_out(
        self,
        validate: lambda_.IFunction,
        roll_out: lambda_.IFunction,
        settle: lambda_.IFunction,
        roll_back: sfn.IChainable,
    ) -> sfn.IChainable:
        judge = self._task(
            "Validate",
            validate,
            payload=_get(
                "$merge([$states.context.Execution.Input, {'checked_archive': $checkedArchive}])"
            ),
            assign={
                "run": _get("$states.result.Payload"),
                "reason": _get("$states.result.Payload.reason"),
                "checkedArchive": _get("$states.result.Payload.archive_etag"),
            },
            on_error=self._record,
        )
        judge.add_retry(
            errors=_TRANSIENT, max_attempts=2, interval=Duration.seconds(5), backoff_rate=2
        )
        ask = self._task(
            "RollOut",
            roll_out,
            payload={
                "action": "roll-out",
                "run": _get("$run"),
                "token": _get("$states.context.Execution.Name & '-out-' & $string($turns)"),
            },
            assign={
                "operation": _get("$states.result.Payload"),
                "reason": _get("$states.result.Payload.reason"),
            },
            on_error=self._record,
        )
        look = self._task(
            "Settle",
            settle,
            payload={
                "action": "roll-out",
                "run": _get("$run"),
                "operation": _get("$operation"),
            },
            assign={
                "reason": _get("$states.result.Payload.reason"),
                "outcome": "rolled-back",
            },
            # A model that could not be looked at must not stay.
            on_error=roll_back,
        )
        turn = self._wait("WaitForTurn", "turns").next(judge)
        watch = self._wait("WaitForStack", "looks").next(look)

        judge.next(
            self._choice("Judged", otherwise=self._nothing_to_do)
            .when(_is("decision", "roll-out"), ask)
            .when(_is("decision", "refuse"), self._record, assign={"outcome": "refused"})
            .when(self._may_wait(_is_text("decision", "wait"), "turns"), turn)
            .when(_is("decision", "wait"), self._record, assign=_GAVE_UP)
        )
        ask.next(
            self._choice("RollOutAnswered", otherwise=self._nothing_to_do)
            .when(_is("status", "started"), watch)
            .when(self._may_wait(_is_text("status", "busy"), "turns"), turn)
            .when(_is("status", "busy"), self._record, assign=_GAVE_UP)
        )
        look.next(
            self._choice("Settled", otherwise=roll_back)
            .when(_is("status", "settled"), self._record, assign={"outcome": "serving"})
            .when(_is("status", "overtaken"), self._nothing_to_do)
            .when(self._may_wait(_is_text("status", "waiting"), "looks"), watch)
            .when(_is("status", "waiting"), roll_back, assign={"outcome": "failed"})
            .when(sfn.Condition.jsonata(_get("$states.input.undone")), self._record)
        )
        return judge

    def _rolling_back(
        self, roll_out: lambda_.IFunction, settle: lambda_.IFunction
    ) -> sfn.IChainable:
        ask = self._task(
            "RollBack",
            roll_out,
            payload={
                "action": "roll-back",
                "run": _get("$run"),
                "token": _get("$states.context.Execution.Name & '-back-' & $string($rollBackTurns)"),
            },
            assign={"operation": _get("$states.result.Payload")},
            on_error=self._record,
        )
        look = self._task(
            "SettleRollBack",
            settle,
            payload={
                "action": "roll-back",
                "run": _get("$run"),
                "operation": _get("$operation"),
            },
            on_error=self._record,
        )
        turn = self._wait("WaitToRollBack", "rollBackTurns").next(ask)
        watch = self._wait("WaitForRollBack", "rollBackLooks").next(look)
        not_rolled_back = {
            "outcome": "failed",
            "reason": _get("$reason & '; and it was not rolled back: ' & $states.input.reason"),
        }
        ask.next(
            self._choice("RollBackAnswered", otherwise=self._record)
            .when(_is("status", "started"), watch)
            .when(self._may_wait(_is_text("status", "busy"), "rollBackTurns"), turn)
            .when(_is("status", "busy"), self._record, assign=not_rolled_back)
        )
        look.next(
            self._choice("RollBackSettled", otherwise=self._record, assign=not_rolled_back)
            .when(self._may_wait(_is_text("status", "waiting"), "rollBackLooks"), watch)
            .when(_is("status", "settled"), self._record)
            .when(_is("status", "overtaken"), self._record)
        )
        return ask

    def _recording(self, record: lambda_.IFunction) -> sfn.IChainable:
        failed = sfn.Fail.jsonata(
            self._scope, "Failed", error="DeliveryFailed", cause=_get("$reason")
        )
        write = self._task(
            "Record",
            record,
            payload={
                "outcome": _get("$outcome"),
                "reason": _get("$reason"),
                "run": _get("$run"),
                "input": _get("$states.context.Execution.Input"),
                "execution": _get("$states.context.Execution.Id"),
            },
            on_error=failed,
        )
        done = sfn.Succeed.jsonata(self._scope, "Done")
        write.next(
            self._choice("Recorded", otherwise=done).when(_is("outcome", "failed"), failed)
        )
        return write
