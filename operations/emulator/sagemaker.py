"""SageMaker hosting in the emulated account: the API's own rules over real model servers.

Requests are checked with botocore's model of the service, an endpoint goes through the real
states, and what it serves is a process that loaded the deployed ``model.tar.gz``. One production
variant with one container is emulated; a request for another kind of endpoint is refused. Data
capture keeps requests and answers. Encryption and network settings are remembered and have no
effect. Traffic always moves to a new fleet at once, when its container answers its first ping;
where the deployment names alarms, the old fleet then stays for the termination wait and takes the
traffic back if one of them rings.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from pathlib import Path

from operations.emulator.sagemaker_capture import Capture, Store
from operations.emulator.sagemaker_endpoint import Release
from operations.emulator.sagemaker_endpoints import Endpoints
from operations.emulator.sagemaker_launcher import Fetch, Launcher
from operations.emulator.sagemaker_records import Records, page
from operations.emulator.sagemaker_requests import ApiError, Json, check_request, validation_error
from operations.emulator.sagemaker_runtime import InvokeResult, invoke
from operations.emulator.sagemaker_tags import Tags

__all__ = ["ApiError", "InvokeResult", "SageMaker"]

_MODEL_MEMBERS = ("Containers", "InferenceExecutionConfig")
_CONTAINER_MEMBERS = ("ModelDataSource", "AdditionalModelDataSources", "ModelPackageName")
_CONFIG_MEMBERS = ("AsyncInferenceConfig", "ExplainerConfig", "ShadowProductionVariants")
_VARIANT_MEMBERS = ("ServerlessConfig", "InstancePools", "ManagedInstanceScaling")


class SageMaker:
    """The hosting part of one account and region.

    Args:
        region: the emulated region.
        account: the emulated account, 12 digits.
        work_directory: holds the containers' folders and their logs, one file a container.
        server_python: the interpreter that has torch and ``sagemaker-pytorch-inference``.
        store: puts bytes at an ``s3://`` URL; captured requests go there.
        scaled: whether a resource, such as ``endpoint/E/variant/V``, is a scalable target.
        fetch: gives the object at an ``s3://`` URL as bytes or as the path of a file that stays;
            raises FileNotFoundError if there is none.
        settle_seconds: how long RollingBack, Deleting, a change of capacity and a minute of a
            termination wait last.
        startup_seconds: a container's time until the first good ping, where the variant has no
            ``ContainerStartupHealthCheckTimeoutInSeconds``.
        ringing: which of these CloudWatch alarms are in ALARM.
    """

    def __init__(
        self,
        *,
        region: str,
        account: str,
        work_directory: Path,
        server_python: Path,
        store: Store,
        scaled: Callable[[str], bool],
        fetch: Fetch,
        settle_seconds: float,
        startup_seconds: float = 60.0,
        ringing: Callable[[list[str]], list[str]] = lambda alarms: [],
    ) -> None:
        self._capture = Capture(store)
        self._scaled = scaled
        self._region = region
        self._account = account
        self._fetch = fetch
        launcher = Launcher(
            server_python=server_python,
            fetch=fetch,
            work_directory=work_directory,
            region=region,
            startup_seconds=startup_seconds,
        )
        self._endpoints = Endpoints(
            launcher=launcher, settle_seconds=settle_seconds, ringing=ringing
        )
        self._lock = threading.RLock()
        prefix = f"arn:aws:sagemaker:{region}:{account}:"
        self._endpoint_prefix = f"{prefix}endpoint/"
        self._models = Records(arn_prefix=f"{prefix}model/", noun="model", member="Model")
        self._configs = Records(
            arn_prefix=f"{prefix}endpoint-config/",
            noun="endpoint configuration",
            member="EndpointConfig",
        )
        self._tags = Tags()
        self._operations: dict[str, Callable[[Json], Json]] = {
            "CreateModel": self._create_model,
            "DescribeModel": lambda request: self._models.describe(request["ModelName"]),
            "DeleteModel": self._delete_model,
            "ListModels": self._models.listed,
            "CreateEndpointConfig": self._create_config,
            "DescribeEndpointConfig": self._describe_config,
            "DeleteEndpointConfig": self._delete_config,
            "ListEndpointConfigs": self._configs.listed,
            "CreateEndpoint": self._create_endpoint,
            "DescribeEndpoint": self._describe_endpoint,
            "UpdateEndpoint": self._update_endpoint,
            "UpdateEndpointWeightsAndCapacities": self._resize_endpoint,
            "DeleteEndpoint": self._delete_endpoint,
            "ListEndpoints": self._list_endpoints,
            "AddTags": self._add_tags,
            "DeleteTags": self._delete_tags,
            "ListTags": self._list_tags,
        }

    def call(self, operation: str, request: Json) -> Json:
        """Answer one request of the JSON protocol; times are seconds since the epoch.

        Raises:
            ApiError: what the service would answer, or an operation that is not emulated.
        """
        if operation not in self._operations:
            allowed = ", ".join(self._operations)
            raise ApiError(
                "UnknownOperationException",
                f"the emulated SageMaker has no operation {operation}; it has {allowed}",
            )
        check_request(operation, request)
        given = {name: value for name, value in request.items() if value is not None}
        if operation == "CreateModel":
            # Outside the lock: to look an object up may take long.
            self._check_model_data(given)
        with self._lock:
            return copy.deepcopy(self._operations[operation](given))

    def invoke(
        self, endpoint_name: str, body: bytes, content_type: str | None, accept: str | None
    ) -> InvokeResult:
        """Answer one InvokeEndpoint of the runtime API; an error is an answer too."""
        result = invoke(
            self._endpoints,
            region=self._region,
            account=self._account,
            name=endpoint_name,
            body=body,
            content_type=content_type,
            accept=accept,
        )
        capture = self._endpoints.capture_of(endpoint_name) if result.status == 200 else None
        if capture:
            self._capture.keep(
                capture,
                endpoint=endpoint_name,
                variant=result.headers["x-Amzn-Invoked-Production-Variant"],
                sent=(body, content_type),
                answered=(result.body, result.headers.get("Content-Type")),
            )
        return result

    def close(self) -> None:
        """End every model server; no endpoint serves after this."""
        self._endpoints.close()

    # Models

    def _check_model_data(self, request: Json) -> None:
        self._models.refuse_existing(request["ModelName"])
        container = request.get("PrimaryContainer", {})
        _refuse_beyond(request, _MODEL_MEMBERS)
        _refuse_beyond(container, _CONTAINER_MEMBERS)
        missing = [name for name in ("Image", "ModelDataUrl") if not container.get(name)]
        if missing or container.get("Mode", "SingleModel") != "SingleModel":
            raise validation_error(
                "The emulated SageMaker serves one PrimaryContainer in SingleModel mode with an "
                f"Image and a ModelDataUrl; missing: {', '.join(missing) or 'nothing'}."
            )
        try:
            self._fetch(container["ModelDataUrl"])
        except FileNotFoundError:
            raise validation_error(
                f"Could not find model data at {container['ModelDataUrl']}."
            ) from None

    def _create_model(self, request: Json) -> Json:
        model = self._models.add(request)
        self._tags.add(model.arn, request.get("Tags", []))
        return {"ModelArn": model.arn}

    def _delete_model(self, request: Json) -> Json:
        self._tags.forget(self._models.remove(request["ModelName"]).arn)
        return {}

    # Endpoint configurations

    def _create_config(self, request: Json) -> Json:
        variants = request["ProductionVariants"]
        self._configs.refuse_existing(request["EndpointConfigName"])
        _refuse_beyond(request, _CONFIG_MEMBERS)
        if len(variants) != 1:
            raise validation_error(
                f"The emulated SageMaker serves one production variant, got {len(variants)}."
            )
        variant = variants[0]
        _refuse_beyond(variant, _VARIANT_MEMBERS)
        for member in ("ModelName", "InstanceType", "InitialInstanceCount"):
            if member not in variant:
                raise validation_error(
                    f"{member} must be specified for production variant {variant['VariantName']}."
                )
        self._models.find(variant["ModelName"])
        config = self._configs.add(request)
        self._tags.add(config.arn, request.get("Tags", []))
        return {"EndpointConfigArn": config.arn}

    def _describe_config(self, request: Json) -> Json:
        return self._configs.describe(request["EndpointConfigName"])

    def _delete_config(self, request: Json) -> Json:
        config = self._configs.find(request["EndpointConfigName"])
        busy = self._endpoints.under_way(config.name)
        if busy:
            raise validation_error(
                f'Cannot delete endpoint configuration "{config.arn}": it is in use by the '
                f'in-progress endpoint "{busy[0]}".'
            )
        self._configs.remove(config.name)
        self._tags.forget(config.arn)
        return {}

    # Endpoints

    def _create_endpoint(self, request: Json) -> Json:
        name, arn = self._endpoint(request)
        release = self._release(request["EndpointConfigName"])
        self._endpoints.create(name, arn, release, request.get("DeploymentConfig"))
        self._tags.forget(arn)
        self._tags.add(arn, request.get("Tags", []))
        return {"EndpointArn": arn}

    def _describe_endpoint(self, request: Json) -> Json:
        return self._endpoints.describe(*self._endpoint(request))

    def _update_endpoint(self, request: Json) -> Json:
        name, arn = self._endpoint(request)
        # The service cannot roll back to a configuration that was deleted, and says so.
        self._configs.find(self._endpoints.release_of(name, arn).config.name)
        release = self._release(request["EndpointConfigName"])
        self._refuse_other_type(name, arn, release)
        retained: set[str] = set()
        if request.get("RetainAllVariantProperties"):
            excluded = request.get("ExcludeRetainedVariantProperties", [])
            retained = {"DesiredInstanceCount", "DesiredWeight"}
            retained -= {item["VariantPropertyType"] for item in excluded}
        self._endpoints.update(
            name,
            arn,
            release,
            retained=retained,
            deployment=request.get("DeploymentConfig"),
        )
        return {"EndpointArn": arn}

    def _refuse_other_type(self, name: str, arn: str, release: Release) -> None:
        """While auto scaling holds a variant, its instance type stays.

        https://docs.aws.amazon.com/sagemaker/latest/dg/endpoint-scaling-update.html
        """
        variant = self._endpoints.release_of(name, arn).variant
        if release.variant["InstanceType"] == variant["InstanceType"]:
            return
        if self._scaled(f"endpoint/{name}/variant/{variant['VariantName']}"):
            raise validation_error(
                f'The variant(s) "{variant["VariantName"]}" must be deregistered as a scalable '
                "target(s) with AWS Auto Scaling before they can be removed or have their instance "
                "type updated."
            )

    def _resize_endpoint(self, request: Json) -> Json:
        name, arn = self._endpoint(request)
        for desired in request["DesiredWeightsAndCapacities"]:
            self._endpoints.resize(name, arn, desired)
        return {"EndpointArn": arn}

    def _delete_endpoint(self, request: Json) -> Json:
        self._endpoints.delete(*self._endpoint(request))
        return {}

    def _list_endpoints(self, request: Json) -> Json:
        rows = self._endpoints.summaries()
        return page(rows, request, result="Endpoints", name="EndpointName")

    def _endpoint(self, request: Json) -> tuple[str, str]:
        name = request["EndpointName"]
        return name, f"{self._endpoint_prefix}{name.lower()}"

    def _release(self, config_name: str) -> Release:
        config = self._configs.find(config_name)
        model = self._models.find(config.settings["ProductionVariants"][0]["ModelName"])
        return Release(config, model)

    # Tags

    def _add_tags(self, request: Json) -> Json:
        return {"Tags": self._tags.add(self._tagged(request), request["Tags"])}

    def _delete_tags(self, request: Json) -> Json:
        self._tags.remove(self._tagged(request), request["TagKeys"])
        return {}

    def _list_tags(self, request: Json) -> Json:
        return {"Tags": self._tags.of(self._tagged(request))}

    def _tagged(self, request: Json) -> str:
        arn: str = request["ResourceArn"]
        if arn not in self._models.arns() | self._configs.arns() | self._endpoints.arns():
            raise validation_error(f'Could not find resource "{arn}".')
        return arn


def _refuse_beyond(given: Json, members: tuple[str, ...]) -> None:
    beyond = [member for member in members if given.get(member)]
    if beyond:
        raise validation_error(f"The emulated SageMaker does not serve {', '.join(beyond)}.")
