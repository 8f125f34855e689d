"""How an endpoint moves to a new model, and when it goes back."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sagemaker as sagemaker

from ultracluster.settings import Endpoint

# For the instances to start, beside every pause: without a limit SageMaker waits for hours.
START_SECONDS = 45 * 60
_TYPES = {"all-at-once": "ALL_AT_ONCE", "canary": "CANARY", "linear": "LINEAR"}
_Config = sagemaker.CfnEndpoint


def deployment_config(
    settings: Endpoint, alarms: Sequence[cloudwatch.IAlarm]
) -> sagemaker.CfnEndpoint.DeploymentConfigProperty:
    """A second fleet beside the first, traffic as the settings say, and the alarms that end it."""
    size = _Config.CapacitySizeProperty(type="INSTANCE_COUNT", value=settings.step_instances)
    return _Config.DeploymentConfigProperty(
        blue_green_update_policy=_Config.BlueGreenUpdatePolicyProperty(
            maximum_execution_timeout_in_seconds=settings.pause_minutes * 60 + START_SECONDS,
            termination_wait_in_seconds=settings.bake_minutes * 60,
            traffic_routing_configuration=_Config.TrafficRoutingConfigProperty(
                type=_TYPES[settings.traffic],
                canary_size=size if settings.traffic == "canary" else None,
                linear_step_size=size if settings.traffic == "linear" else None,
                wait_interval_in_seconds=(
                    0 if settings.traffic == "all-at-once" else settings.step_minutes * 60
                ),
            ),
        ),
        auto_rollback_configuration=_Config.AutoRollbackConfigProperty(
            alarms=[_Config.AlarmProperty(alarm_name=alarm.alarm_name) for alarm in alarms]
        ),
    )
