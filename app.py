"""The CDK application: reads one environment's settings and makes its six stacks."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

try:
    import aws_cdk as cdk
    from aws_cdk import aws_iam as iam

    from stacks.cluster import ClusterStack
    from stacks.delivery import DeliveryStack
    from stacks.endpoint import EndpointStack
    from stacks.monitoring import MonitoringStack
    from stacks.network import NetworkStack
    from stacks.storage import StorageStack
    from ultracluster.alarms import ENVIRONMENT_TAG
    from ultracluster.environment import load_environment
    from ultracluster.images import serving_image
    from ultracluster.rules import Level, Problem
    from ultracluster.serving_host import serving_host
    from ultracluster.settings import DEFAULT_ENVIRONMENT, Settings, SettingsError
except ModuleNotFoundError as error:
    sys.exit(f"app.py: python package {error.name!r} is not installed; run `make setup` first")

ROOT = Path(__file__).resolve().parent
# Where a warning is shown: at the stack that its section of the settings makes.
SECTIONS = {"lustre": "storage", "buckets": "storage", "cluster": "cluster", "endpoint": "endpoint"}


def build_app(
    environment: str | None = None,
    *,
    context: Mapping[str, Any] | None = None,
    outdir: str | None = None,
) -> cdk.App:
    """Make the stacks of one environment.

    Args:
        environment: name of a file in config/, such as `dev` or `examples/two-queues`, or a path;
            None takes the context's `environment`, else dev.
        context: context values; the CDK CLI passes those of cdk.json by itself.
        outdir: folder of the cloud assembly; None is the CLI's choice.

    Raises:
        SettingsError: the settings are missing or wrong; lists every problem.
    """
    app = cdk.App(
        context=context,
        outdir=outdir,
        analytics_reporting=False,
    )
    # They name temporary folders: two synths would differ.
    for traces in ("aws:cdk:disable-creation-stack-traces", "aws:cdk:disable-stack-trace"):
        app.node.set_context(traces, True)
    environment = environment or app.node.try_get_context("environment") or DEFAULT_ENVIRONMENT
    loaded = load_environment(environment, ROOT / "config")
    settings, catalog = loaded.settings, loaded.catalog
    serving = serving_image(settings, catalog)

    common: dict[str, Any] = {
        "settings": settings,
        "env": cdk.Environment(account=settings.aws.account, region=settings.aws.region),
        "termination_protection": settings.termination_protection,
    }

    def stack_id(name: str) -> str:
        return f"{settings.prefix}-{name}"

    network = NetworkStack(app, stack_id("network"), **common).network
    storage = StorageStack(app, stack_id("storage"), network=network, **common)
    ClusterStack(
        app,
        stack_id("cluster"),
        catalog=catalog,
        network=network,
        storage=storage,
        code=ROOT / "lambdas",
        **common,
    )
    endpoint = EndpointStack(
        app,
        stack_id("endpoint"),
        catalog=catalog,
        image=serving.image,
        models=storage.models,
        data=storage.data,
        network=network if settings.endpoint.vpc else None,
        code=ROOT / "lambdas",
        **common,
    )
    delivery = DeliveryStack(
        app,
        stack_id("delivery"),
        storage=storage,
        endpoint=endpoint,
        host=serving_host(settings, catalog),
        code=ROOT / "lambdas",
        **common,
    )
    MonitoringStack(
        app,
        stack_id("monitoring"),
        file_system_id=storage.lustre.file_system.file_system_id,
        delivery=delivery.delivery,
        **common,
    )
    _mark(app, settings)
    for number, problem in enumerate(loaded.findings):
        if problem.level is Level.WARNING:
            _warn(app, problem, stack_id(SECTIONS.get(_section(problem), "network")), number)
    return app


def _mark(app: cdk.App, settings: Settings) -> None:
    """Tags on everything, and a boundary on every role."""
    for key, value in (*settings.tags.items(), (ENVIRONMENT_TAG, settings.prefix)):
        cdk.Tags.of(app).add(key, value)
    boundary = settings.aws.permissions_boundary
    if boundary is not None:
        iam.PermissionsBoundary.of(app).apply(
            iam.ManagedPolicy.from_managed_policy_arn(app, "Boundary", boundary)
        )


def _section(problem: Problem) -> str:
    return problem.path.split(".")[0]


def _warn(app: cdk.App, problem: Problem, stack_id: str, number: int) -> None:
    stack = app.node.find_child(stack_id)
    cdk.Annotations.of(stack).add_warning_v2(f"ultracluster:{number}", str(problem))


def main() -> None:
    """Synthesize for the CDK CLI."""
    try:
        build_app(outdir=os.environ.get("CDK_OUTDIR")).synth()
    except SettingsError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
