"""The private parts of MiniStack that the emulated account is built on.

They have no promise of stability, so the versions are pinned. Whoever raises a pin learns here
which parts have changed, before anything behaves oddly.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.emulator.conftest import ROOT

pytestmark = pytest.mark.emulator

# Function -> its parameters; each is called or replaced by operations/emulator/server.
FUNCTIONS = {
    "ministack.core.lambda_runtime:Worker.invoke": (
        "self event request_id trace_id depth durable invoked_function_arn"
    ),
    "ministack.core.responses:get_account_id": "",
    "ministack.core.responses:get_region": "",
    "ministack.services.cloudformation.engine:_topological_sort": "resources conditions",
    "ministack.services.cloudformation.handlers:_resolve_stack": "stack_name",
    "ministack.services.cloudformation.helpers:_error": "code message status",
    "ministack.services.cloudformation.helpers:_p": "params key default",
    "ministack.services.cloudformation.helpers:_resolve_document": (
        "params body_key url_key label"
    ),
    "ministack.services.cloudformation.provisioners:_cw_metric_alarm_record": "name props",
    "ministack.services.cloudformation.provisioners:_delete_resource": (
        "resource_type physical_id props stack_name logical_id"
    ),
    "ministack.services.cloudformation.provisioners:_ec2_subnet_zone": "props",
    "ministack.services.cloudformation.provisioners:_nested_stack_lookup_name": (
        "physical_id_or_arn"
    ),
    "ministack.services.cloudformation.provisioners:_physical_name": (
        "stack_name logical_id lowercase max_len seeded"
    ),
    "ministack.services.cloudformation.provisioners:_replace_resource": (
        "resource_type physical_id old_props new_props stack_name logical_id"
    ),
    "ministack.services.cloudformation.stacks:_add_event": (
        "stack_id stack_name logical_id resource_type status reason physical_id detailed_status"
    ),
    "ministack.services.cloudformation.stacks:_delete_resource": (
        "resource_type physical_id props stack_name logical_id"
    ),
    "ministack.services.cloudformation.stacks:_resource_policy": (
        "res_def attribute resources params conditions mappings stack_name stack_id"
    ),
    "ministack.services.cloudformation.stacks:_runs_on_worker_thread": "resource_type",
    "ministack.services.cloudwatch:_calc_stats": "points",
    "ministack.services.cloudwatch:_dims_key": "dims",
    "ministack.services.cloudwatch:_dispatch_alarm_actions": ("alarm old_state new_state reason"),
    "ministack.services.cloudwatch:_evaluate_alarm": "alarm",
    "ministack.services.cloudwatch:_evaluate_parent_alarms": "child seen",
    "ministack.services.cloudwatch:_record_history": (
        "alarm_name old_state new_state reason alarm_type reason_data"
    ),
    "ministack.services.cloudwatch:_stat_value": "stats stat_name points",
    "ministack.services.ec2:_az_id_for_zone_name": "zone_name",
    "ministack.services.ec2:_xml": "status root_tag inner",
    "ministack.services.ec2:_zone_name_for_az_id": "az_id",
    "ministack.services.eventbridge:_invoke_target": "target event rule view",
    "ministack.services.eventbridge:_pattern_event_view": "event",
    "ministack.services.lambda_svc:_execute_function_warm": "func event request_id",
    "ministack.services.s3:_put_object": "bucket_name key body headers",
    "ministack.services.stepfunctions:_resolve_state_machine_arn": "arn",
}
# Table -> a key that it must have.
TABLES = {
    "ministack.app:SERVICE_HANDLERS": "s3",
    "ministack.core.router:SERVICE_PATTERNS": "sqs",
    "ministack.services.cloudformation.handlers:_ACTION_HANDLERS": "UpdateStack",
    "ministack.services.cloudformation.provisioners:_CUSTOM_NAME_REPLACEMENT": ("AWS::SQS::Queue"),
    "ministack.services.cloudformation.provisioners:_REPLACING_PROPERTIES": "AWS::SQS::Queue",
    "ministack.services.cloudformation.provisioners:_RESOURCE_HANDLERS": "AWS::EC2::VPC",
    "ministack.services.cloudformation.provisioners:_RETAINING_POLICIES": "Retain",
    "ministack.services.cloudformation.provisioners:_STACK_TAG_PROPERTY": "AWS::EC2::VPC",
    "ministack.services.ec2:_ACTION_MAP": "DescribeAvailabilityZones",
    "ministack.services.s3:_S3_CHECKSUM_HEADERS": "sha256",
}
# Stores of records, which the corrections read.
STORES = (
    "ministack.services.cloudformation:_stacks",
    "ministack.services.cloudwatch:_metrics",
    "ministack.services.ec2:_nat_gateways",
    "ministack.services.ec2:_security_groups",
    "ministack.services.ec2:_subnets",
    "ministack.services.ec2:_vpcs",
    "ministack.services.lambda_svc:_functions",
)

LOOK = """
import importlib, inspect, json, sys
from importlib.metadata import version

def at(place):
    module, _, path = place.partition(":")
    found = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    return found

def parameters(function):
    signature = inspect.signature(function).parameters.values()
    return " ".join(("*" if p.kind is p.VAR_POSITIONAL else "") + p.name for p in signature)

def attempt(look, place):
    try:
        return look(at(place))
    except (AttributeError, ImportError, TypeError) as error:
        return repr(error)

functions, tables, stores = json.load(sys.stdin)
print(json.dumps({
    "versions": {name: version(name) for name in ("ministack", "moto")},
    "functions": {place: attempt(parameters, place) for place in functions},
    "tables": {place: attempt(lambda table: key in table, place) for place, key in tables.items()},
    "stores": {place: attempt(lambda store: hasattr(store, "items"), place) for place in stores},
    "script": at("ministack.core.lambda_runtime:_PYTHON_WORKER_SCRIPT"),
}))
"""


@pytest.fixture(scope="module")
def found() -> Any:
    told = subprocess.run(
        [ROOT / ".venv-emulator" / "bin" / "python", "-c", LOOK],
        input=json.dumps([list(FUNCTIONS), TABLES, STORES]),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return json.loads(told.splitlines()[-1])


def test_the_versions_are_those_that_the_server_was_written_for(found: Any) -> None:
    assert found["versions"] == {"ministack": "1.5.33", "moto": "5.2.5"}


@pytest.mark.parametrize("place", FUNCTIONS)
def test_a_function_takes_what_it_took(found: Any, place: str) -> None:
    assert found["functions"][place] == FUNCTIONS[place]


@pytest.mark.parametrize("place", TABLES)
def test_a_table_has_its_keys(found: Any, place: str) -> None:
    assert found["tables"][place] is True


@pytest.mark.parametrize("place", STORES)
def test_a_store_is_where_it_was(found: Any, place: str) -> None:
    assert found["stores"][place] is True


def test_a_function_s_worker_answers_errors_in_one_line(found: Any) -> None:
    line = '{"status": "error", "error": str(e), "trace": traceback.format_exc()}'
    assert found["script"].count(line) == 1


CREATE_ONLY = """
import json, os
os.environ.update(GATEWAY_PORT="1", MINISTACK_REGION="us-west-2")
from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER as schemas
from operations.emulator.server.provisioners import budget, network, scaling, serving, storage
from operations.emulator.server.provisioners.resource_type import ResourceType

answer = {}
for module in (budget, network, scaling, serving, storage):
    for thing in vars(module).values():
        if isinstance(thing, type) and issubclass(thing, ResourceType) and "name" in vars(thing):
            schema = schemas.get_resource_schema("us-west-2", thing.name).schema
            wanted = [path.removeprefix("/properties/") for path in schema["createOnlyProperties"]]
            answer[thing.name] = [sorted(thing.create_only), sorted(wanted)]
print(json.dumps(answer))
"""


def test_what_replaces_a_resource_is_what_cloudformation_s_own_schemas_say() -> None:
    """The schemas are those that cfn-lint carries."""
    told = subprocess.run(
        [ROOT / ".venv-emulator" / "bin" / "python", "-c", CREATE_ONLY],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    types = json.loads(told.stdout.splitlines()[-1])
    assert len(types) == 13
    for name, (ours, schema) in types.items():
        # A budget's name lies deeper, and the provisioner looks at it itself.
        assert ours == [path for path in schema if "/" not in path], name
