"""The states that take an announced model to the endpoint, or leave everything as it was."""

from __future__ import annotations

import math
from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from ultracluster.delivery_consent import Consent
from ultracluster.jsonata import ERROR, equals, get, when

PATIENCE_SECONDS = 2 * 60 * 60
"""How long one wait may last in all: SageMaker gives up on an endpoint well before."""

_MOST_LOOKS = 400
"""The loops of the four waits make 50 events a round; a Standard execution holds 25,000."""


def _token(action: str, count: str) -> str:
    """Names one attempt of one execution, so that a repeated call updates once."""
    return get(f"$states.context.Execution.Name & '-{action}-' & $string(${count})")


_INTENT = "$states.context.Execution.Input.intent"
_GAVE_UP = {"outcome": "failed", "reason": get("'gave up waiting: ' & $reason")}
_OVERTAKEN = {
    "outcome": "nothing-to-do",
    "reason": "overtaken",
    "run": get("$merge([$run, {'problems': ['overtaken: ' & $reason]}])"),
}
_NOT_ROLLED_BACK = "$reason & '; and it was not rolled back: ' & "


class DeliveryWorkflow(Construct):
    """Validate, ask for consent, roll out, settle, and on trouble roll back; all ends in a record.

    No function runs while it waits, and every wait counts up to a bound.

    Args:
        consent: the switch, and the person to be asked.
        poll_seconds: pause between two looks.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        validate: lambda_.IFunction,
        roll_out: lambda_.IFunction,
        settle: lambda_.IFunction,
        record: lambda_.IFunction,
        consent: Consent,
        poll_seconds: int,
    ) -> None:
        super().__init__(scope, construct_id)
        self._poll_seconds = poll_seconds
        self._looks = min(math.ceil(PATIENCE_SECONDS / poll_seconds), _MOST_LOOKS)
        self._consent = consent
        self._record = self._recording(record)
        self._nothing_to_do = sfn.Pass.jsonata(
            self,
            "NothingToDo",
            comment="Serves already, has its verdict, or was announced again: another run tells",
            outputs={"outcome": "nothing-to-do", "reason": get("$reason")},
        )
        roll_back = self._rolling_back(roll_out, settle)
        self.start = sfn.Pass.jsonata(
            self,
            "Begin",
            assign={
                "run": {},
                "operation": {},
                "fault": {"reason": "", "of_model": False},
                "byHand": get(f"{_INTENT} = 'roll-back'"),
                "approved": get(f"{_INTENT} = 'roll-back'") if consent.needed else True,
                "reason": "",
                "outcome": "failed",
                "final": False,
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
            payload=get(
                "$merge([$states.context.Execution.Input, {'checked_archive': $checkedArchive}])"
            ),
            assign={
                "run": get("$states.result.Payload"),
                "reason": get("$states.result.Payload.reason"),
                "final": get("$states.result.Payload.final"),
                "checkedArchive": get("$states.result.Payload.archive_etag"),
            },
            on_error=self._record,
        )
        ask = self._task(
            "RollOut",
            roll_out,
            payload={
                "action": "roll-out",
                "run": get("$run"),
                "token": _token("out", "turns"),
            },
            assign={
                "operation": get("$states.result.Payload"),
                "reason": get("$states.result.Payload.reason"),
            },
            on_error=self._record,
        )
        look = self._task(
            "Settle",
            settle,
            payload={
                "action": "roll-out",
                "run": get("$run"),
                "operation": get("$operation"),
                "fault": get("$fault"),
            },
            assign={
                "reason": get("$states.result.Payload.reason"),
                "final": get("$states.result.Payload.final"),
                "fault": get("$states.result.Payload.fault"),
                "outcome": "rolled-back",
            },
            # A model that could not be looked at must not stay.
            on_error=roll_back,
        )
        turn = self._wait("WaitForTurn", "turns").next(judge)
        watch = self._wait("WaitForStack", "looks").next(look)

        judge.next(
            self._choice("Judged", otherwise=self._nothing_to_do)
            .when(
                when(equals("decision", "roll-out")),
                self._consent.before(ask, judge_again=judge, record=self._record),
            )
            .when(when(equals("decision", "refuse")), self._record, assign={"outcome": "refused"})
            .when(self._may_wait(equals("decision", "wait"), "turns"), turn)
            .when(when(equals("decision", "wait")), self._record, assign=_GAVE_UP)
            .when(when("$states.input.tell"), self._record, assign={"outcome": "nothing-to-do"})
        )
        ask.next(
            self._choice("RollOutAnswered", otherwise=self._nothing_to_do)
            .when(when(equals("status", "started")), watch)
            .when(self._may_wait(equals("status", "busy"), "turns"), turn)
            .when(when(equals("status", "busy")), self._record, assign=_GAVE_UP)
        )
        look.next(
            self._choice("Settled", otherwise=roll_back)
            .when(when(equals("status", "settled")), self._record, assign={"outcome": "serving"})
            .when(when(equals("status", "overtaken")), self._record, assign=_OVERTAKEN)
            .when(self._may_wait(equals("status", "waiting"), "looks"), watch)
            .when(when(equals("status", "waiting")), roll_back, assign=_GAVE_UP)
            .when(when("$states.input.undone"), self._record)
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
                "run": get("$run"),
                "token": get("$states.context.Execution.Name & '-back-' & $string($rollBackTurns)"),
            },
            assign={"operation": get("$states.result.Payload")},
            on_error=self._record,
            error_reason=_NOT_ROLLED_BACK + ERROR,
        )
        look = self._task(
            "SettleRollBack",
            settle,
            payload={
                "action": "roll-back",
                "run": get("$run"),
                "operation": get("$operation"),
                "fault": {"reason": "", "of_model": False},
            },
            on_error=self._record,
            error_reason=_NOT_ROLLED_BACK + ERROR,
        )
        turn = self._wait("WaitToRollBack", "rollBackTurns").next(ask)
        watch = self._wait("WaitForRollBack", "rollBackLooks").next(look)
        not_rolled_back = {
            "outcome": "failed",
            "reason": get(_NOT_ROLLED_BACK + "$states.input.reason"),
        }
        ask.next(
            self._choice("RollBackAnswered", otherwise=self._record)
            .when(when(equals("status", "started")), watch)
            .when(self._may_wait(equals("status", "busy"), "rollBackTurns"), turn)
            .when(when(equals("status", "busy")), self._record, assign=not_rolled_back)
        )
        look.next(
            self._choice("RollBackSettled", otherwise=self._record, assign=not_rolled_back)
            .when(self._may_wait(equals("status", "waiting"), "rollBackLooks"), watch)
            .when(when(equals("status", "settled")), self._record)
            .when(when(equals("status", "overtaken")), self._record)
        )
        return ask

    def _recording(self, record: lambda_.IFunction) -> sfn.IChainable:
        failed = sfn.Fail.jsonata(self, "Failed", error="DeliveryFailed", cause=get("$reason"))
        write = self._task(
            "Record",
            record,
            payload={
                "outcome": get("$outcome"),
                "reason": get("$reason"),
                "final": get("$final"),
                "run": get("$run"),
                "input": get("$states.context.Execution.Input"),
                "execution": get("$states.context.Execution.Id"),
            },
            on_error=failed,
        )
        done = sfn.Succeed.jsonata(self, "Done")
        write.next(
            self._choice("Recorded", otherwise=done).when(when(equals("outcome", "failed")), failed)
        )
        return write

    def _task(
        self,
        name: str,
        function: lambda_.IFunction,
        *,
        payload: Any,
        on_error: sfn.IChainable,
        assign: dict[str, Any] | None = None,
        error_reason: str = ERROR,
    ) -> tasks.LambdaInvoke:
        task = tasks.LambdaInvoke.jsonata(
            self,
            name,
            lambda_function=function,
            payload=(
                sfn.TaskInput.from_text(payload)
                if isinstance(payload, str)
                else sfn.TaskInput.from_object(payload)
            ),
            outputs=get("$states.result.Payload"),
            assign=assign,
        )
        # Every function can be asked twice; a lost connection must not undo a good roll-out.
        task.add_retry(
            errors=["States.TaskFailed"],
            max_attempts=2,
            interval=Duration.seconds(2),
            backoff_rate=2,
        )
        task.add_catch(on_error, assign={"outcome": "failed", "reason": get(error_reason)})
        return task

    def _wait(self, name: str, count: str) -> sfn.Wait:
        return sfn.Wait.jsonata(
            self,
            name,
            time=sfn.WaitTime.duration(Duration.seconds(self._poll_seconds)),
            assign={count: get(f"${count} + 1")},
        )

    def _may_wait(self, expression: str, count: str) -> sfn.Condition:
        return when(f"{expression} and ${count} < {self._looks}")

    def _choice(
        self, name: str, *, otherwise: sfn.IChainable, assign: dict[str, Any] | None = None
    ) -> sfn.Choice:
        return sfn.Choice.jsonata(self, name, assign=assign).otherwise(otherwise)
