"""What the rehearsal does with the account: CDK commands, stack outputs, verdicts, predictions."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from operations.emulator import Emulator
from operations.processes import run
from operations.rehearsal.progress import Step, StepFailed

ROOT = Path(__file__).resolve().parents[2]
CDK = ROOT / "node_modules" / ".bin" / "cdk"


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What the endpoint answered for one text."""

    text: str
    label: str
    score: float


class Account:
    """The emulated account, as a platform engineer uses it.

    Args:
        environment: name of the settings file.
        prefix: what stack names begin with.
        logs: folder for the output of every command.
    """

    def __init__(self, emulator: Emulator, *, environment: str, prefix: str, logs: Path) -> None:
        self.emulator = emulator
        self.environment = environment
        self.prefix = prefix
        self.logs = logs

    def cdk(self, step: Step, *arguments: str) -> None:
        """Run the real CDK CLI to its end.

        Raises:
            StepFailed: it ended with another status than 0; names the log and its last error.
        """
        log = self.logs / f"cdk-{arguments[0]}.log"
        command: Sequence[str | Path] = [
            CDK,
            *arguments,
            "-c",
            f"environment={self.environment}",
            "--output",
            self.logs / "cdk.out",
            "--no-notices",
            "--no-color",
        ]
        lines: list[str] = []

        def on_line(line: str) -> None:
            if line.strip():
                lines.append(line.strip())
                step.status(line.strip())

        status = run(command, env=self._tools(), cwd=ROOT, log=log, on_line=on_line)
        if status != 0:
            raise StepFailed(
                f"cdk {arguments[0]} ended with status {status}: {_reason(lines)}; see {log}"
            )

    def _tools(self) -> dict[str, str]:
        environment = self.emulator.environment()
        # Holds a node of its own where the machine's is too old for CDK.
        path = [str(ROOT / ".venv" / "bin"), environment.get("PATH", os.defpath)]
        return environment | {"PATH": os.pathsep.join(path)}

    def outputs(self, stack: str) -> dict[str, str]:
        """Outputs of one of the environment's stacks."""
        name = f"{self.prefix}-{stack}"
        found = self.emulator.client("cloudformation").describe_stacks(StackName=name)
        return {
            output["OutputKey"]: output["OutputValue"]
            for output in found["Stacks"][0].get("Outputs", [])
        }

    def served_model(self) -> str:
        """URL of the model that the Endpoint stack names, or `none`."""
        found = self.emulator.client("cloudformation").describe_stacks(
            StackName=f"{self.prefix}-endpoint"
        )
        parameters = found["Stacks"][0]["Parameters"]
        return next(
            str(item["ParameterValue"]) for item in parameters if item["ParameterKey"] == "ModelUrl"
        )

    def wait_for_verdict(
        self, step: Step, *, bucket: str, digest: str, limit_seconds: float = 300.0
    ) -> dict[str, Any]:
        """The verdict that delivery writes when it has finished with a published model.

        Raises:
            StepFailed: none came in time.
        """
        s3 = self.emulator.client("s3")
        start = time.monotonic()
        while time.monotonic() - start < limit_seconds:
            try:
                body = s3.get_object(Bucket=bucket, Key=f"verdicts/{digest}.json")["Body"].read()
            except ClientError as error:
                if error.response["Error"]["Code"] not in ("NoSuchKey", "404"):
                    raise
            else:
                verdict: dict[str, Any] = json.loads(body)
                return verdict
            step.status(f"waiting for the verdict on {digest[:12]}")
            time.sleep(0.5)
        raise StepFailed(
            f"no verdict on {digest[:12]} after {limit_seconds:.0f} s; "
            f"see the state machine's execution and {self.emulator.log}"
        )

    def predict(self, endpoint: str, texts: Sequence[str]) -> list[Prediction]:
        """Ask the endpoint for the sentiment of some texts.

        Raises:
            StepFailed: it does not answer, or not in the contract's form.
        """
        runtime = self.emulator.client("sagemaker-runtime")
        try:
            answer = runtime.invoke_endpoint(
                EndpointName=endpoint,
                ContentType="application/json",
                Body=json.dumps({"inputs": list(texts)}),
            )["Body"].read()
        except (BotoCoreError, ClientError) as error:
            raise StepFailed(f"endpoint {endpoint} did not answer: {error}") from error
        items = json.loads(answer)
        if len(items) != len(texts):
            raise StepFailed(f"endpoint {endpoint} answered {len(items)} of {len(texts)} texts")
        return [
            Prediction(text=text, label=str(item["label"]), score=float(item["score"]))
            for text, item in zip(texts, items, strict=True)
        ]


def _reason(lines: Sequence[str]) -> str:
    """The line that tells most: the first failed resource, else the first error, else the last."""
    for pattern in (r"_FAILED +\| ", r"(?i)\berror\b", r"."):
        found = [line for line in lines if re.search(pattern, line)]
        if found:
            return found[-1] if pattern == "." else found[0]
    return "it printed nothing"
