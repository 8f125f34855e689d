"""The verdict on a model, and the message that a person can act on."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from botocore.exceptions import BotoCoreError, ClientError

from shared import verdict
from shared.places import NO_MODEL, from_model_url, verdict_key
from shared.stack import StackProblem, describe

Outcome = Literal[
    "serving", "refused", "rolled-back", "nothing-to-do", "paused", "declined", "failed"
]

_SUBJECT_LENGTH = 99
_COMMAND_LENGTH = 1500

# They say nothing about the model, so they never stand over what another execution found out.
_MODEST = ("nothing-to-do", "paused", "declined")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where verdicts go, whom to tell, and the stack that says what serves.

    `switch` names the parameter that pauses the delivery.
    """

    model_bucket: str
    model_name: str
    endpoint_stack: str
    endpoint_name: str
    topic_arn: str
    switch: str


class Reporter:
    """Writes verdicts and messages."""

    def __init__(self, settings: Settings, *, s3: Any, sns: Any, cloudformation: Any) -> None:
        self._settings = settings
        self._s3 = s3
        self._sns = sns
        self._cloudformation = cloudformation

    def record(
        self,
        *,
        outcome: Outcome,
        reason: str,
        final: bool,
        run: dict[str, Any],
        announced: dict[str, Any],
        execution: str,
        now: datetime,
    ) -> dict[str, Any]:
        """Write the verdict, if the run got as far as a digest, and publish one message.

        A `failed` run says nothing about its model, and so leaves an earlier verdict alone, unless
        that one puts the model off. `nothing-to-do` is written and told where the digest has no
        verdict yet or is put off, `paused` and `declined` where this announcement has none.

        Args:
            outcome: how the run ended.
            reason: a word or a sentence; the problems of `run`, where there are any, say more.
            final: whether the same bytes would fail again.
            run: as Validate answered it.
            announced: input of the execution.
            execution: its ARN.
            now: the time that is written down.
        """
        digest = run.get("digest", "")
        reason = _readable(reason)
        problems = run.get("problems") or [reason]
        final = final and outcome in ("refused", "rolled-back")
        serves = self._serves()
        answer = {"outcome": outcome, "digest": digest, "reason": reason, "serves": serves}
        earlier = verdict.read(self._s3, self._settings.model_bucket, digest) if digest else None
        judged = earlier is not None and earlier["outcome"] not in ("failed", "paused")
        if digest and not (outcome == "failed" and judged):
            content = {
                "schema_version": 1,
                "digest": digest,
                "model_name": run["model_name"],
                "outcome": outcome,
                "final": final,
                "reason": run["reason"] if outcome == "refused" else reason,
                "problems": problems if outcome != "serving" else [],
                "model_url": run["model_url"],
                "previous_model_url": run["previous_model_url"],
                "announcement": run["announcement"],
                "execution": execution,
                "recorded": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
            if not self._write(digest, content, earlier):
                return answer
        name = f"model {self._settings.model_name} {digest[:12] or '(no digest)'}"
        why = "it passed every check" if outcome == "serving" else "\n  ".join(problems)
        lines = [
            f"{name}: {_WHAT[outcome]}",
            f"why: {why}",
            f"serves now: {serves}",
            f"next: {self._advice(outcome, final, run, announced, execution)}",
            f"execution: {execution}",
        ]
        self._sns.publish(
            TopicArn=self._settings.topic_arn,
            Subject=f"{name}: {_WHAT[outcome]}"[:_SUBJECT_LENGTH],
            Message="\n".join(lines) + "\n",
        )
        return answer

    def _write(self, digest: str, content: dict[str, Any], earlier: dict[str, Any] | None) -> bool:
        """Write the verdict; False where another execution has told the end of this model.

        Of duplicates that waited, for a switch or a person, one may have rolled the model out.
        """
        outcome = content["outcome"]
        if outcome in _MODEST:
            if earlier is None:
                return self._write_first(digest, content)
            again = earlier["announcement"] == content["announcement"] != ""
            kept = outcome == "nothing-to-do" and earlier["outcome"] != "paused"
            if (again or kept) and earlier["execution"] != content["execution"]:
                return False
        verdict.write(self._s3, self._settings.model_bucket, digest, content)
        return True

    def _write_first(self, digest: str, content: dict[str, Any]) -> bool:
        """Write the first verdict on a digest; False where another execution has written one.

        S3 itself decides, since duplicates of one event end at the same time.
        """
        bucket = self._settings.model_bucket
        try:
            self._s3.put_object(
                Bucket=bucket,
                Key=verdict_key(digest),
                Body=json.dumps(content, indent=2).encode(),
                ContentType="application/json",
                IfNoneMatch="*",
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != "PreconditionFailed":
                raise
            # A retry of this execution finds its own verdict; its message may not have gone out.
            earlier = verdict.read(self._s3, bucket, digest)
            return earlier is not None and earlier["execution"] == content["execution"]
        return True

    def _serves(self) -> str:
        """What the stack says; the message must go out even where that cannot be read."""
        try:
            stack = describe(self._cloudformation, self._settings.endpoint_stack)
        except (StackProblem, ClientError, BotoCoreError) as error:
            return f"unknown: {error}"
        url = "no model" if stack.model_url == NO_MODEL else stack.model_url
        return f"{url}, and the stack is in {stack.status}" if stack.busy else url

    def _advice(
        self,
        outcome: Outcome,
        final: bool,
        run: dict[str, Any],
        announced: dict[str, Any],
        execution: str,
    ) -> str:
        if outcome == "failed":
            return (
                "read the execution; once its cause is mended, start it again: "
                f"{_start(execution, announced)}"
            )
        again = {"bucket": run["bucket"], "key": run["manifest_key"]}
        if outcome == "serving":
            former = from_model_url(run["previous_model_url"])
            if former is None:
                return "nothing"
            given = {"bucket": former.bucket, "key": former.manifest_key, "intent": "roll-back"}
            return f"nothing. to go back to the former model: {_start(execution, given)}"
        if outcome == "nothing-to-do":
            return (
                "nothing. if this model is wanted after all, publish it again; one that is older "
                f"than what serves needs {_start(execution, {**again, 'intent': 'roll-back'})}"
            )
        if "intent" in announced:
            again["intent"] = announced["intent"]
        if outcome == "paused":
            return (
                "resume the delivery: aws ssm put-parameter --overwrite --value on --name "
                f"{self._settings.switch}; then announce the model again: "
                f"{_start(execution, again)}"
            )
        if outcome == "declined":
            return f"nothing, or ask for approval again: {_start(execution, again)}"
        look = (
            f"read the endpoint's log /aws/sagemaker/Endpoints/{self._settings.endpoint_name}; "
            if outcome == "rolled-back"
            else ""
        )
        if final:
            return (
                f"{look}mend the model and publish it; these same bytes are tried again only "
                f"after s3://{run['bucket']}/{verdict_key(run['digest'])} was deleted"
            )
        if outcome == "rolled-back":
            return (
                f"{look}the model itself was not found at fault: mend what is named above, then "
                f"announce it again: {_start(execution, again)}"
            )
        return "mend what is named above and publish again"


_WHAT: dict[Outcome, str] = {
    "serving": "serves",
    "refused": "was refused, nothing changed",
    "rolled-back": "was rolled back",
    "nothing-to-do": "was left out",
    "paused": "was put off, the delivery is paused",
    "declined": "was not approved, nothing changed",
    "failed": "could not be delivered",
}


def _start(execution: str, given: dict[str, Any]) -> str:
    """The command that runs the delivery with this input."""
    machine = execution.rpartition(":")[0].replace(":execution:", ":stateMachine:")
    text = shlex.quote(json.dumps(given))
    if len(text) > _COMMAND_LENGTH:
        text = "file://INPUT, which the dead-letter queue holds"
    return f"aws stepfunctions start-execution --state-machine-arn {machine} --input {text}"


def _readable(reason: str) -> str:
    """The reason, with the JSON of a Lambda error in it cut down to its message."""
    before, brace, after = reason.partition("{")
    try:
        value = json.loads(brace + after)
        return f"{before}{value['errorMessage']}"
    except (ValueError, KeyError):
        return reason
