"""What people have a say in before a model is rolled out: a switch, and an approval."""

from __future__ import annotations

from aws_cdk import Duration, Stack
from aws_cdk import aws_sns as sns
from aws_cdk import aws_ssm as ssm
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from ultracluster.jsonata import ERROR, equals, get, when

ON = "on"
"""Value of the switch with which models are rolled out; any other pauses the delivery."""

_SERVES = "($run.previous_model_url = 'none' ? 'no model' : $run.previous_model_url)"


class Consent(Construct):
    """States that hold an accepted model back while the delivery is paused or nobody approved it.

    Neither holds up a roll-back that a person has started.

    Args:
        name: of the parameter that pauses the delivery.
        approval_hours: how long a person has to approve a model; None asks nobody.
        topic: where that person is asked.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        approval_hours: int | None,
        topic: sns.ITopic,
        model_name: str,
    ) -> None:
        super().__init__(scope, construct_id)
        self._name = name
        self._approval_hours = approval_hours
        self._topic = topic
        self._model_name = model_name
        self.switch = ssm.StringParameter(
            self,
            "Switch",
            parameter_name=name,
            string_value=ON,
            description=f"{ON} rolls models out; anything else pauses the delivery",
        )

    @property
    def needed(self) -> bool:
        """Whether a person must approve a model."""
        return self._approval_hours is not None

    @property
    def longest(self) -> Duration:
        """How long a model may wait for a person."""
        return Duration.hours(self._approval_hours or 0)

    def before(
        self, roll_out: sfn.IChainable, *, judge_again: sfn.IChainable, record: sfn.IChainable
    ) -> sfn.IChainable:
        """The states between an accepted model and its roll-out.

        Args:
            roll_out: comes next where nothing is in the way.
            judge_again: comes after an approval: what serves may have changed since.
            record: takes the end of a model that is held back.
        """
        look = tasks.CallAwsService.jsonata(
            self,
            "ReadSwitch",
            service="ssm",
            action="getParameter",
            iam_action="ssm:GetParameter",
            iam_resources=[self.switch.parameter_arn],
            parameters={"Name": self.switch.parameter_name},
            outputs={"switch": get("$states.result.Parameter.Value")},
        )
        look.add_retry(
            errors=["States.TaskFailed"],
            max_attempts=2,
            interval=Duration.seconds(2),
            backoff_rate=2,
        )
        look.add_catch(record, assign={"outcome": "failed", "reason": get(ERROR)})
        choice = sfn.Choice.jsonata(self, "Consented")
        choice.when(
            when(f"$not({equals('switch', ON)}) and $not($byHand)"),
            record,
            assign={
                "outcome": "paused",
                "reason": get(
                    f"'the delivery is paused: parameter {self._name} is ' & $states.input.switch"
                ),
            },
        )
        if self.needed:
            choice.when(when("$not($approved)"), self._approve(judge_again, record))
        look.next(choice.otherwise(roll_out))
        return look

    def _approve(self, judge_again: sfn.IChainable, record: sfn.IChainable) -> sfn.IChainable:
        title = f"model {self._model_name} ' & $substring($run.digest, 0, 12) & '"
        command = f"aws stepfunctions --region {Stack.of(self).region}"
        lines = (
            f"'{title}: waits for an approval'",
            "'why: it passed every check'",
            f"'serves now: ' & {_SERVES}",
            f"'next: within {self._approval_hours} hours, approve it:'",
            f"'{command} send-task-success --task-output {{}} --task-token ' & $token",
            "'or decline it:'",
            f"'{command} send-task-failure --error Declined --cause REASON --task-token ' & $token",
            "'execution: ' & $states.context.Execution.Id & '\n'",
        )
        ask = tasks.SnsPublish.jsonata(
            self,
            "Approve",
            topic=self._topic,
            integration_pattern=sfn.IntegrationPattern.WAIT_FOR_TASK_TOKEN,
            subject=get(f"'{title}: waits for an approval'"),
            message=sfn.TaskInput.from_text(
                get(
                    "($token := $states.context.Task.Token; $join(["
                    + ", ".join(lines)
                    + "], '\n'))"
                )
            ),
            task_timeout=sfn.Timeout.duration(self.longest),
            assign={"approved": True},
        )
        declined = {"outcome": "declined", "final": False}
        ask.add_catch(
            record,
            errors=["Declined"],
            assign={**declined, "reason": get("'declined: ' & $states.errorOutput.Cause")},
        )
        ask.add_catch(
            record,
            errors=["States.Timeout"],
            assign={
                **declined,
                "reason": f"nobody approved it within {self._approval_hours} hours",
            },
        )
        ask.add_catch(record, assign={"outcome": "failed", "reason": get(ERROR)})
        return ask.next(judge_again)
