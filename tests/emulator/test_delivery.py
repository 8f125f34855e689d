"""The delivery in an emulated account: events, functions, stack updates and model servers run."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import shlex
import shutil
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("CDK_VALIDATION", "false")
os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "20")

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3

from operations.emulator import Emulator
from operations.model_history import history
from operations.roll_back import choose, start, wait
from stacks.endpoint import EndpointStack
from tests.support.weights import weights
from ultracluster.catalog import load_catalog
from ultracluster.delivery import Delivery
from ultracluster.delivery_functions import Gate
from ultracluster.images import aws_image
from ultracluster.serving_host import serving_host
from ultracluster.settings import load_settings

pytestmark = pytest.mark.emulator

ROOT = Path(__file__).parents[2]
REGION = "us-west-2"
BUCKET = "delivered-models"
ASSETS = f"cdk-hnb659fds-assets-000000000000-{REGION}"
PATIENCE_SECONDS = 120


def archive(answer: str, *, torn: bool = False, more: str = "") -> bytes:
    """A package whose model gives every text one label, or cannot be loaded; `more` is code."""
    load = 'raise RuntimeError("the weights are torn")' if torn else f"return {answer!r}"
    program = (
        "import json\n"
        f"def model_fn(folder):\n    {load}\n"
        "def input_fn(body, kind):\n    return json.loads(body)['inputs']\n"
        "def predict_fn(texts, model):\n    return [{'label': model, 'score': 1} for _ in texts]\n"
        f"def output_fn(answers, accept):\n    return json.dumps(answers)\n{more}"
    )
    files = {
        "code/inference.py": program.encode(),
        "config.json": b"{}",
        "model.safetensors": weights(answer.encode()),
    }
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return gzip.compress(target.getvalue(), mtime=0)


class Account:
    """The two stacks in the emulated account, and a publisher."""

    def __init__(self, emulator: Emulator, folder: Path) -> None:
        self.s3 = emulator.client("s3")
        self.stacks = emulator.client("cloudformation")
        self.states = emulator.client("stepfunctions")
        self.runtime = emulator.client("sagemaker-runtime")
        self.sqs = emulator.client("sqs")
        self.sns = emulator.client("sns")
        self.ssm = emulator.client("ssm")
        self.sagemaker = emulator.client("sagemaker")
        location = {"LocationConstraint": REGION}
        for bucket in (BUCKET, ASSETS):
            self.s3.create_bucket(Bucket=bucket, CreateBucketConfiguration=location)
        self.s3.put_bucket_notification_configuration(
            Bucket=BUCKET, NotificationConfiguration={"EventBridgeConfiguration": {}}
        )
        self._deploy(folder)

    def _deploy(self, folder: Path) -> None:
        settings = load_settings("rehearsal", ROOT / "config")
        # Two seconds here, so that a look falls into each bake.
        endpoint = settings.endpoint.model_copy(update={"bake_minutes": 10})
        settings = settings.model_copy(update={"endpoint": endpoint})
        app = cdk.App(outdir=str(folder), analytics_reporting=False)

        def of_account() -> dict[str, Any]:
            return {
                "env": cdk.Environment(account="000000000000", region=REGION),
                "synthesizer": cdk.DefaultStackSynthesizer(generate_bootstrap_version_rule=False),
            }

        catalog = load_catalog()
        image = aws_image(catalog.graviton_image(), REGION)
        assert image is not None
        models = s3.Bucket.from_bucket_name(cdk.Stack(app, "names"), "Models", BUCKET)
        EndpointStack(
            app,
            "endpoint",
            settings=settings,
            catalog=load_catalog(),
            image=image,
            models=models,
            data=models,
            network=None,
            code=ROOT / "lambdas",
            **of_account(),
        )
        for name, approval_hours in (("delivery", None), ("reviewed", 1)):
            delivery = cdk.Stack(app, name, **of_account())
            made = Delivery(
                delivery,
                "Delivery",
                code=ROOT / "lambdas",
                model_bucket=models,
                model_name="sentiment",
                endpoint_name=settings.prefix,
                endpoint_stack_name="endpoint",
                service_role_arn="arn:aws:iam::000000000000:role/endpoint-service",
                gate=Gate(host=serving_host(settings, catalog), minimum_macro_f1=0.6),
                approval_hours=approval_hours,
                poll_seconds=1,
                removal_policy=cdk.RemovalPolicy.DESTROY,
            )
            cdk.CfnOutput(delivery, "Machine", value=made.state_machine.state_machine_arn)
            cdk.CfnOutput(delivery, "Queue", value=made.dead_letters.queue_url)
            cdk.CfnOutput(delivery, "Topic", value=made.topic.topic_arn)
        assembly = app.synth()
        self.endpoint_name = settings.prefix
        for asset in folder.glob("asset.*"):
            packed = shutil.make_archive(str(folder / f"{asset.name}-zip"), "zip", asset)
            key = f"{asset.name.removeprefix('asset.')}.zip"
            self.s3.put_object(Bucket=ASSETS, Key=key, Body=Path(packed).read_bytes())
        self._templates = {
            stack.stack_name: json.dumps(stack.template) for stack in assembly.stacks
        }
        for name in ("endpoint", "delivery"):
            self.stacks.create_stack(
                StackName=name, TemplateBody=self._templates[name], Capabilities=["CAPABILITY_IAM"]
            )
            self._wait_for("create", name)
        outputs = {
            item["OutputKey"]: item["OutputValue"] for item in self.stack("delivery")["Outputs"]
        }
        self.machine, self.queue = outputs["Machine"], outputs["Queue"]
        self.topic = outputs["Topic"]

    def _wait_for(self, change: str, name: str) -> None:
        self.stacks.get_waiter(f"stack_{change}_complete").wait(
            StackName=name, WaiterConfig={"Delay": 1, "MaxAttempts": PATIENCE_SECONDS}
        )

    def ask_for_approval(self) -> None:
        """Deploy the delivery again, with `approval_hours`."""
        self.stacks.update_stack(
            StackName="delivery",
            TemplateBody=self._templates["reviewed"],
            Capabilities=["CAPABILITY_IAM"],
        )
        self._wait_for("update", "delivery")

    def inbox(self) -> str:
        """A queue that gets what the topic says."""
        url: str = self.sqs.create_queue(QueueName="person")["QueueUrl"]
        attributes = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        arn = attributes["Attributes"]["QueueArn"]
        self.sns.subscribe(TopicArn=self.topic, Protocol="sqs", Endpoint=arn)
        return url

    def told(self, inbox: str) -> str:
        """The next message to a person."""
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            found = self.sqs.receive_message(QueueUrl=inbox, WaitTimeSeconds=5).get("Messages", [])
            for message in found:
                self.sqs.delete_message(QueueUrl=inbox, ReceiptHandle=message["ReceiptHandle"])
                text: str = json.loads(message["Body"])["Message"]
                return text
        raise AssertionError("nobody was told")

    def stack(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.stacks.describe_stacks(StackName=name)["Stacks"][0]
        return found

    def remove(self, *names: str) -> None:
        for name in names:
            self.stacks.delete_stack(StackName=name)
            self._wait_for("delete", name)

    def publish(self, package: bytes, created: str, *, label: str = "positive") -> str:
        """Put archive and manifest as the publisher does; returns the digest."""
        digest = hashlib.sha256(package).hexdigest()
        folder = f"models/sentiment/{digest}"
        self.s3.put_object(
            Bucket=BUCKET,
            Key=f"{folder}/model.tar.gz",
            Body=package,
            ChecksumSHA256=base64.b64encode(bytes.fromhex(digest)).decode(),
        )
        manifest = {
            "schema_version": 1,
            "model_name": "sentiment",
            "created": created,
            "archive": {
                "key": f"{folder}/model.tar.gz",
                "sha256": digest,
                "bytes": len(package),
            },
            "requires": {"torch": "2.6", "python": "3.10"},
            "trained_with": {"torch": "2.13.0", "transformers": "5.24.0", "python": "3.11.7"},
            "labels": sorted({"negative", "neutral", "positive", label}),
            "metrics": {"evaluation_set": "tweets", "accuracy": 0.8, "macro_f1": 0.8},
            "smoke": [{"text": "a fine day", "label": label}],
        }
        self.s3.put_object(
            Bucket=BUCKET, Key=f"{folder}/manifest.json", Body=json.dumps(manifest).encode()
        )
        return digest

    def executions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.states.list_executions(stateMachineArn=self.machine)[
            "executions"
        ]
        return found

    def settled(self, count: int) -> dict[str, Any]:
        """Wait until that many executions have ended; the last one to start."""
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            found = self.executions()
            if len(found) >= count and all(item["status"] != "RUNNING" for item in found):
                last = max(found, key=lambda item: item["startDate"])
                answer: dict[str, Any] = self.states.describe_execution(
                    executionArn=last["executionArn"]
                )
                return answer
            time.sleep(0.3)
        raise AssertionError(f"{count} executions did not end: {self.executions()}")

    def outcome(self, count: int) -> str:
        answer = self.settled(count)
        history = self.states.get_execution_history(executionArn=answer["executionArn"])["events"]
        assert answer["status"] == "SUCCEEDED", history[-6:]
        outcome: str = json.loads(answer["output"])["outcome"]
        return outcome

    def outcomes(self) -> list[str]:
        return sorted(
            json.loads(self.states.describe_execution(executionArn=item["executionArn"])["output"])[
                "outcome"
            ]
            for item in self.executions()
        )

    def verdict(self, digest: str) -> dict[str, Any]:
        body = self.s3.get_object(Bucket=BUCKET, Key=f"verdicts/{digest}.json")["Body"]
        verdict: dict[str, Any] = json.loads(body.read())
        return verdict

    def answers(self) -> list[str]:
        answer = self.runtime.invoke_endpoint(
            EndpointName=self.endpoint_name,
            ContentType="application/json",
            Body=json.dumps({"inputs": ["x", "y"]}).encode(),
        )
        return [item["label"] for item in json.loads(answer["Body"].read())]


@pytest.fixture(scope="module")
def account(emulator: Emulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    made = Account(emulator, tmp_path_factory.mktemp("cdk.out"))
    yield made
    made.remove("delivery", "endpoint")


def test_models_come_serve_and_go_back(account: Account) -> None:
    first = account.publish(archive("positive"), "2026-11-01T00:00:00Z")
    assert account.outcome(1) == "serving"
    assert account.answers() == ["positive", "positive"]
    assert account.verdict(first)["outcome"] == "serving"

    # Announced three times at once: one run rolls it out, the others find nothing to do.
    for _ in range(3):
        second = account.publish(archive("neutral"), "2026-11-02T00:00:00Z", label="neutral")
    account.settled(4)
    assert account.outcomes() == ["nothing-to-do", "nothing-to-do", "serving", "serving"]
    assert account.answers() == ["neutral", "neutral"]
    assert first in account.verdict(second)["previous_model_url"]

    # An older one, late.
    account.publish(archive("positive"), "2026-11-01T00:00:00Z")
    assert account.outcome(5) == "nothing-to-do"
    assert account.verdict(first)["outcome"] == "serving"
    older = account.publish(archive("older"), "2026-11-01T12:00:00Z")
    assert account.outcome(6) == "nothing-to-do"
    assert account.verdict(older)["reason"] == "older-than-served"

    # Cannot be loaded: CloudFormation itself rolls back.
    torn = account.publish(archive("neutral", torn=True), "2026-11-04T00:00:00Z")
    assert account.outcome(7) == "rolled-back"
    assert account.answers() == ["neutral", "neutral"]
    assert account.verdict(torn)["final"]

    refused = account.publish(b"no gzip at all", "2026-11-05T00:00:00Z")
    assert account.outcome(8) == "refused"
    assert account.verdict(refused)["reason"] == "archive-not-gzip"

    known = history(
        s3=account.s3,
        cloudformation=account.stacks,
        bucket=BUCKET,
        model_name="sentiment",
        endpoint_stack="endpoint",
    )
    assert {model.place.digest: model.state for model in known.models} == {
        first: "served",
        second: "serving",
        older: "nothing-to-do",
        torn: "rolled-back",
        refused: "refused",
    }
    execution = start(account.states, account.machine, choose(known, first[:8]))
    assert wait(account.states, execution, poll_seconds=0.3, show=print)
    assert account.outcome(9) == "serving"
    assert account.answers() == ["positive", "positive"]

    # What broke is kept, and started nothing else.
    account.states.start_execution(stateMachineArn=account.machine, input="{}")
    assert account.settled(10)["status"] == "FAILED"
    messages = account.sqs.receive_message(QueueUrl=account.queue, WaitTimeSeconds=10)["Messages"]
    assert [json.loads(item["Body"])["detail"]["status"] for item in messages] == ["FAILED"]
    assert len(account.executions()) == 10


def test_a_paused_delivery_puts_a_model_off_until_it_is_resumed(account: Account) -> None:
    count = len(account.executions())
    switch = f"/{account.endpoint_name}/delivery"
    account.ssm.put_parameter(Name=switch, Value="off", Overwrite=True)
    model = account.publish(archive("later"), "2026-11-06T00:00:00Z", label="later")
    assert account.outcome(count + 1) == "paused"
    assert f"parameter {switch} is off" in account.verdict(model)["reason"]
    assert account.answers() == ["positive", "positive"]
    account.ssm.put_parameter(Name=switch, Value="on", Overwrite=True)
    asked = {"bucket": BUCKET, "key": f"models/sentiment/{model}/manifest.json"}
    account.states.start_execution(stateMachineArn=account.machine, input=json.dumps(asked))
    assert account.outcome(count + 2) == "serving"
    assert account.answers() == ["later", "later"]


def test_a_person_declines_and_approves_by_the_messages_own_commands(account: Account) -> None:
    account.ask_for_approval()
    inbox = account.inbox()
    model = account.publish(archive("reviewed"), "2026-11-07T00:00:00Z", label="reviewed")
    _, decline = commands(account.told(inbox))
    assert decline.pop("") == "send-task-failure"
    account.states.send_task_failure(
        error=decline["--error"], cause="not today", taskToken=decline["--task-token"]
    )
    told = account.told(inbox)
    assert "was not approved, nothing changed" in told
    assert "why: declined: not today" in told
    assert account.answers() == ["later", "later"]

    (again,) = commands(told)
    assert again.pop("") == "start-execution"
    account.states.start_execution(
        stateMachineArn=again["--state-machine-arn"], input=again["--input"]
    )
    approve(account, inbox)
    assert ": serves\n" in account.told(inbox)
    assert account.verdict(model)["outcome"] == "serving"
    assert account.answers() == ["reviewed", "reviewed"]


def approve(account: Account, inbox: str) -> None:
    command, _ = commands(account.told(inbox))
    assert command.pop("") == "send-task-success"
    account.states.send_task_success(
        output=command["--task-output"], taskToken=command["--task-token"]
    )


def commands(message: str) -> list[dict[str, str]]:
    """The options of each AWS command in a message; under an empty key the command itself."""
    found = []
    for line in message.splitlines():
        words = shlex.split(line[line.find("aws stepfunctions") :])
        if words[:1] == ["aws"]:
            command = [word for word in words[2:] if word != "us-west-2" and word != "--region"]
            pairs = zip(command[1::2], command[2::2], strict=True)
            found.append({"": command[0], **dict(pairs)})
    return found


@pytest.mark.case("M17")
def test_destroy_in_the_middle_of_a_roll_back_waits_and_leaves_nothing(account: Account) -> None:
    """The model loads, and does not say what it said when it was packed; another one waits for a
    person who never answers."""
    wrong = account.publish(archive("negative"), "2026-11-08T00:00:00Z", label="positive")
    approve(account, account.inbox())
    while account.answers() != ["negative", "negative"]:
        time.sleep(0.1)
    account.publish(archive("unanswered"), "2026-11-09T00:00:00Z", label="unanswered")
    # In the bake all traffic is on the new fleet, and CloudFormation has not finished.
    assert account.stack("endpoint")["StackStatus"] == "UPDATE_IN_PROGRESS"
    account.remove("delivery")
    assert account.stack("endpoint")["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    verdict = account.verdict(wrong)
    assert (verdict["outcome"], verdict["final"]) == ("rolled-back", True)
    assert "got 'negative', the manifest says 'positive'" in verdict["reason"]
    assert f"in ALARM: {account.endpoint_name}-smoke" in verdict["reason"]
    assert account.answers() == ["reviewed", "reviewed"]

    account.remove("endpoint")
    assert account.sagemaker.list_endpoints(NameContains=account.endpoint_name)["Endpoints"] == []
    for listed, key in (("list_models", "Models"), ("list_endpoint_configs", "EndpointConfigs")):
        found = getattr(account.sagemaker, listed)(NameContains="endpoint-Graviton")
        assert found[key] == []
