"""SageMaker hosting: what the API accepts, refuses, lists and remembers; no process is started."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from operations.emulator.sagemaker import ApiError
from operations.emulator.sagemaker_requests import service_model
from tests.support.hosting import Hosting

pytestmark = pytest.mark.emulator

TYPES = service_model().shape_for("ProductionVariantInstanceType").enum  # type: ignore[attr-defined]
# c7g and r6gd are Graviton's, g5 and p4d are not.
GRAVITON = [name for name in TYPES if re.match(r"ml\.[a-z]+\d+g[a-z]*\.", name)]
ARN = "arn:aws:sagemaker:us-west-2:000000000000"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosting]:
    made = Hosting(tmp_path_factory.mktemp("hosting"))
    made.release("first")
    yield made
    made.service.close()


@pytest.fixture
def hosting(tmp_path: Path) -> Iterator[Hosting]:
    made = Hosting(tmp_path)
    yield made
    made.service.close()


def variant(**changed: Any) -> dict[str, Any]:
    usual = {
        "VariantName": "main",
        "ModelName": "first",
        "InstanceType": "ml.c7g.4xlarge",
        "InitialInstanceCount": 1,
    }
    return {key: value for key, value in {**usual, **changed}.items() if value is not None}


def config(*variants: dict[str, Any], name: str = "other", **rest: Any) -> dict[str, Any]:
    return {"EndpointConfigName": name, "ProductionVariants": list(variants), **rest}


def model(container: dict[str, Any] | None = None, **changed: Any) -> dict[str, Any]:
    whole = {"Image": "image", "ModelDataUrl": "s3://models/model.tar.gz"}
    return {"ModelName": "other", "PrimaryContainer": whole if container is None else container} | (
        changed
    )


def refused(hosting: Hosting, operation: str, request: dict[str, Any]) -> ApiError:
    with pytest.raises(ApiError) as error:
        hosting.service.call(operation, request)
    return error.value


@pytest.mark.case("M01")
def test_every_graviton_type_is_accepted(hosting: Hosting) -> None:
    assert {"ml.c7g.4xlarge", "ml.c8g.large", "ml.m8g.xlarge", "ml.c6gn.large"} <= set(GRAVITON)
    hosting.release("first")
    for name in GRAVITON:
        hosting.service.call(
            "CreateEndpointConfig",
            config(variant(InstanceType=name), name=name.replace(".", "-")),
        )


VALIDATION = "ValidationException"
BAD: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "made-up type": (
        "CreateEndpointConfig",
        config(variant(InstanceType="ml.c7g.5xlarge")),
        VALIDATION,
        "1 validation error detected: Value 'ml.c7g.5xlarge' at "
        "'productionVariants.1.member.instanceType' failed to satisfy constraint: Member must "
        "satisfy enum value set: [",
    ),
    "startup limit too low": (
        "CreateEndpointConfig",
        config(variant(ContainerStartupHealthCheckTimeoutInSeconds=59)),
        VALIDATION,
        "Value '59' at 'productionVariants.1.member.containerStartupHealthCheckTimeoutInSeconds' "
        "failed to satisfy constraint: Member must have value greater than or equal to 60",
    ),
    "startup limit too high": (
        "CreateEndpointConfig",
        config(variant(ContainerStartupHealthCheckTimeoutInSeconds=3601)),
        VALIDATION,
        "less than or equal to 3600",
    ),
    "no variants": (
        "CreateEndpointConfig",
        config(),
        VALIDATION,
        "Value '[]' at 'productionVariants' failed to satisfy constraint: Member must have length "
        "greater than or equal to 1",
    ),
    "no instance type": (
        "CreateEndpointConfig",
        config(variant(InstanceType=None)),
        VALIDATION,
        "InstanceType must be specified for production variant main.",
    ),
    "unknown model": (
        "CreateEndpointConfig",
        config(variant(ModelName="Gone")),
        VALIDATION,
        f'Could not find model "{ARN}:model/gone".',
    ),
    "two variants": (
        "CreateEndpointConfig",
        config(variant(), variant(VariantName="other")),
        VALIDATION,
        "serves one production variant, got 2",
    ),
    "serverless": (
        "CreateEndpointConfig",
        config(variant(ServerlessConfig={"MemorySizeInMB": 2048, "MaxConcurrency": 1})),
        VALIDATION,
        "does not serve ServerlessConfig",
    ),
    "count as text": (
        "CreateEndpointConfig",
        config(variant(InitialInstanceCount="1")),
        "SerializationException",
        "Value of 'productionVariants.1.member.initialInstanceCount' is of type str, it must be "
        "integer",
    ),
    "count as boolean": (
        "CreateEndpointConfig",
        config(variant(InitialInstanceCount=True)),
        "SerializationException",
        "is of type bool, it must be integer",
    ),
    "unknown member": (
        "CreateEndpointConfig",
        config(variant(InstanceTyp="ml.c7g.large")),
        VALIDATION,
        "Unknown parameter \"InstanceTyp\" at 'productionVariants.1.member', must be one of: ",
    ),
    "configuration exists": (
        "CreateEndpointConfig",
        config(variant(), name="First"),
        VALIDATION,
        f'Cannot create already existing endpoint configuration "{ARN}:endpoint-config/first".',
    ),
    "model exists": (
        "CreateModel",
        model(ModelName="first"),
        VALIDATION,
        f'Cannot create already existing model "{ARN}:model/first".',
    ),
    "name too long": (
        "CreateModel",
        model(ModelName="m" * 64),
        VALIDATION,
        "Member must have length less than or equal to 63",
    ),
    "name with underscore": (
        "CreateModel",
        model(ModelName="my_model"),
        VALIDATION,
        "Member must satisfy regular expression pattern: ",
    ),
    "no name": (
        "CreateModel",
        model(ModelName=None),
        VALIDATION,
        "1 validation error detected: Value null at 'modelName' failed to satisfy constraint: "
        "Member must not be null",
    ),
    "no model data": (
        "CreateModel",
        model({"Image": "image", "ModelDataUrl": "s3://models/gone.tar.gz"}),
        VALIDATION,
        "Could not find model data at s3://models/gone.tar.gz.",
    ),
    "no image": (
        "CreateModel",
        model({"ModelDataUrl": "s3://models/model.tar.gz"}),
        VALIDATION,
        "missing: Image",
    ),
    "variable too long": (
        "CreateModel",
        model({"Image": "i", "ModelDataUrl": "s3://m/m", "Environment": {"A": "x" * 1025}}),
        VALIDATION,
        "at 'primaryContainer.environment.A.member'",
    ),
    "a pipeline": (
        "CreateModel",
        model(Containers=[{"Image": "image"}]),
        VALIDATION,
        "does not serve Containers",
    ),
    "unknown configuration": (
        "CreateEndpoint",
        {"EndpointName": "e", "EndpointConfigName": "Gone"},
        VALIDATION,
        f'Could not find endpoint configuration "{ARN}:endpoint-config/gone".',
    ),
    "unknown endpoint": (
        "UpdateEndpoint",
        {"EndpointName": "Gone", "EndpointConfigName": "first"},
        VALIDATION,
        f'Could not find endpoint "{ARN}:endpoint/gone".',
    ),
    "unknown model to delete": (
        "DeleteModel",
        {"ModelName": "gone"},
        VALIDATION,
        "Could not find model",
    ),
    "bad token": (
        "ListModels",
        {"NextToken": "!"},
        VALIDATION,
        "The provided pagination token is not valid.",
    ),
    "bad time": (
        "ListModels",
        {"CreationTimeAfter": "yesterday"},
        VALIDATION,
        "'yesterday' is not a time",
    ),
    "tags of nothing": (
        "ListTags",
        {"ResourceArn": f"{ARN}:model/gone"},
        VALIDATION,
        f'Could not find resource "{ARN}:model/gone".',
    ),
    "no such operation": (
        "CreateTrainingJob",
        {},
        "UnknownOperationException",
        "the emulated SageMaker has no operation CreateTrainingJob; it has CreateModel",
    ),
}


@pytest.mark.parametrize("title", BAD)
def test_a_bad_request_is_refused_in_the_words_of_the_service(shared: Hosting, title: str) -> None:
    operation, request, code, text = BAD[title]
    error = refused(shared, operation, request)
    assert (error.code, error.status) == (code, 400)
    assert text in error.message


def test_all_problems_of_a_request_are_named_at_once(shared: Hosting) -> None:
    request = config(variant(InstanceType="x", InitialInstanceCount=0, Extra=1), name="-")
    message = refused(shared, "CreateEndpointConfig", request).message
    assert message.startswith("4 validation errors detected: ")
    for place in ("endpointConfigName", "instanceType", "initialInstanceCount", '"Extra"'):
        assert place in message


def test_lists_filter_sort_and_page(hosting: Hosting) -> None:
    names = [f"model-{number:02}" for number in range(12)]
    for name in names:
        hosting.service.call("CreateModel", model(ModelName=name))
    hosting.service.call("CreateModel", model(ModelName="unlike"))
    first = hosting.call("ListModels", NameContains="MODEL", SortBy="Name", SortOrder="Ascending")
    assert [row["ModelName"] for row in first["Models"]] == names[:10]
    second = hosting.call(
        "ListModels",
        NameContains="MODEL",
        SortBy="Name",
        SortOrder="Ascending",
        NextToken=first["NextToken"],
    )
    assert [row["ModelName"] for row in second["Models"]] == names[10:]
    assert "NextToken" not in second
    newest = hosting.call("ListModels", MaxResults=1)["Models"][0]
    assert newest["ModelName"] == "unlike"
    later = hosting.call("ListModels", CreationTimeAfter=newest["CreationTime"])
    assert later["Models"] == []
    assert hosting.call("ListEndpoints", StatusEquals="InService") == {"Endpoints": []}
    assert hosting.call("ListEndpointConfigs") == {"EndpointConfigs": []}


def test_descriptions_give_back_what_was_asked_for(hosting: Hosting) -> None:
    request = model(EnableNetworkIsolation=True, Tags=[{"Key": "team", "Value": "a"}])
    hosting.service.call("CreateModel", request)
    described = hosting.call("DescribeModel", ModelName="other")
    assert described["PrimaryContainer"] == request["PrimaryContainer"]
    assert described["EnableNetworkIsolation"] is True
    assert described["ModelArn"] == f"{ARN}:model/other"
    assert "Tags" not in described
    described["PrimaryContainer"]["Image"] = "changed by the caller"
    again = hosting.call("DescribeModel", ModelName="other")
    assert again["PrimaryContainer"]["Image"] == "image"


def test_tags_come_and_go_with_their_resource(hosting: Hosting) -> None:
    arn = f"{ARN}:model/other"
    hosting.service.call("CreateModel", model(Tags=[{"Key": "team", "Value": "a"}]))
    hosting.call("AddTags", ResourceArn=arn, Tags=[{"Key": "näme", "Value": "b"}])
    hosting.call("DeleteTags", ResourceArn=arn, TagKeys=["team", "absent"])
    assert hosting.call("ListTags", ResourceArn=arn)["Tags"] == [{"Key": "näme", "Value": "b"}]
    many = [{"Key": f"key-{number}", "Value": ""} for number in range(50)]
    assert refused(hosting, "AddTags", {"ResourceArn": arn, "Tags": many}).code == (
        "ResourceLimitExceeded"
    )
    hosting.call("DeleteModel", ModelName="other")
    hosting.service.call("CreateModel", model())
    assert hosting.call("ListTags", ResourceArn=arn)["Tags"] == []
