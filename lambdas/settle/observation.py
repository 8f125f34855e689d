"""Tells whether the endpoint serves what the stack was asked for."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from settle.bake import Bake
from settle.fault import Fault, told_by_aws
from settle.smoke import mismatch
from shared.manifest import parse
from shared.objects import read_small
from shared.places import NO_MODEL
from shared.stack import StackFacts, describe, operation

CONFIGURATION_OUTPUT = "EndpointConfigName"

_MOVING = ("Creating", "Updating", "SystemUpdating", "RollingBack")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The stack, its endpoint, and the bucket with the manifests."""

    model_bucket: str
    endpoint_stack: str
    endpoint_name: str


class Observer:
    """Looks at the stack, the endpoint and its answers; changes neither and waits for nothing."""

    def __init__(
        self,
        settings: Settings,
        *,
        s3: Any,
        cloudformation: Any,
        sagemaker: Any,
        runtime: Any,
        bake: Bake,
    ) -> None:
        self._settings = settings
        self._s3 = s3
        self._cloudformation = cloudformation
        self._sagemaker = sagemaker
        self._runtime = runtime
        self._bake = bake

    def look(
        self,
        *,
        token: str,
        target: str,
        manifest_key: str | None,
        former_model: bool,
        fault: Fault | None,
    ) -> dict[str, Any]:
        """Look once.

        Args:
            token: client request token of the update.
            target: the URL that the update asked for.
            manifest_key: manifest whose texts the endpoint must answer; None leaves them out.
            former_model: whether an old fleet is there to go back to during the bake.
            fault: what an earlier look found in the bake.

        Returns:
            `status`: `waiting`, `settled`, `overtaken` by another update, or `failed`; `reason`;
            `undone`: whether CloudFormation has put back what served before; `final`: whether
            the fault is the model's, so that the same bytes need no second try; and `fault`: what
            the bake has shown so far, for the next look.
        """
        answer = self._look(token, target, manifest_key, former_model, fault)
        if answer["status"] == "failed" and fault:
            # SageMaker names its alarm only; the cause is what the bake has shown.
            cause = fault.then(Fault(reason=answer["reason"], of_model=answer["final"]))
            answer |= {"reason": cause.reason, "final": cause.of_model}
        return {"fault": _kept(fault), **answer}

    def _look(
        self,
        token: str,
        target: str,
        manifest_key: str | None,
        former_model: bool,
        fault: Fault | None,
    ) -> dict[str, Any]:
        done = operation(self._cloudformation, self._settings.endpoint_stack, token)
        stack = describe(self._cloudformation, self._settings.endpoint_stack)
        if done.state == "rolled-back":
            reason = done.failure or "cloudformation rolled the update back"
            return _failed(told_by_aws(reason), undone=True)
        if done.state != "complete":
            if stack.busy:
                # A roll-back bakes too, and is not to be asked for this model's labels.
                if manifest_key and former_model and stack.status == "UPDATE_IN_PROGRESS":
                    return self._during(stack, manifest_key, fault)
                return _answer("waiting", f"the stack is in {stack.status}")
            if stack.model_url != target:
                return _failed(told_by_aws("the update was cancelled"), undone=True)
        if stack.model_url != target:
            return _answer("overtaken", f"the stack has {stack.model_url} by now")
        if stack.busy:
            return _answer("waiting", f"the stack is in {stack.status}")
        if target == NO_MODEL:
            return _answer("settled", "nothing serves, as before")
        return self._endpoint(stack, manifest_key)

    def _during(
        self, stack: StackFacts, manifest_key: str, earlier: Fault | None
    ) -> dict[str, Any]:
        """Try the texts while the old fleet is still warm; SageMaker itself acts on the result."""
        if not self._bake.under_way():
            return _answer("waiting", f"the stack is in {stack.status}")
        found = self._smoke(manifest_key)
        self._bake.tell(failed=found is not None)
        shown = found.reason if found else "it answers as packed"
        return {**_answer("waiting", f"in the bake: {shown}"), "fault": _kept(earlier or found)}

    def _endpoint(self, stack: StackFacts, manifest_key: str | None) -> dict[str, Any]:
        wanted = stack.outputs.get(CONFIGURATION_OUTPUT)
        if wanted is None:
            return _failed(told_by_aws(f"stack {stack.name} has no output {CONFIGURATION_OUTPUT}"))
        endpoint = self._sagemaker.describe_endpoint(EndpointName=self._settings.endpoint_name)
        status, serves = endpoint["EndpointStatus"], endpoint.get("EndpointConfigName")
        reason = endpoint.get("FailureReason", "sagemaker gave no reason")
        if status in _MOVING:
            return _answer("waiting", f"the endpoint is {status}")
        if serves != wanted:
            # SageMaker can roll back after CloudFormation has called the update complete.
            return _failed(
                told_by_aws(f"the endpoint serves {serves}, the stack says {wanted}: {reason}")
            )
        if status != "InService":
            return _failed(told_by_aws(f"the endpoint is {status}: {reason}"))
        fault = self._smoke(manifest_key) if manifest_key else None
        now = describe(self._cloudformation, stack.name)
        if now.model_url != stack.model_url:
            return _answer("overtaken", f"the stack has {now.model_url} by now")
        return _failed(fault) if fault else _answer("settled", "")

    def _smoke(self, manifest_key: str) -> Fault | None:
        found = read_small(self._s3, self._settings.model_bucket, manifest_key)
        if found is None:
            return Fault(
                reason=f"{manifest_key} is gone, so its texts could not be tried", of_model=False
            )
        return mismatch(self._runtime, self._settings.endpoint_name, parse(found[0]).smoke)


def _kept(fault: Fault | None) -> dict[str, Any]:
    return asdict(fault or Fault(reason="", of_model=False))


def _answer(status: str, reason: str) -> dict[str, Any]:
    return {"status": status, "reason": reason, "undone": False, "final": False}


def _failed(fault: Fault, *, undone: bool = False) -> dict[str, Any]:
    return {
        "status": "failed",
        "reason": fault.reason,
        "undone": undone,
        "final": fault.of_model,
    }
