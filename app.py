"""The CDK application: reads one environment's settings and makes its six stacks."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

try:
    import aws_cdk as cdk

    from stacks.cluster import ClusterStack
    from stacks.delivery import DeliveryStack
    from stacks.endpoint import EndpointStack
    from stacks.monitoring import MonitoringStack
    from stacks.network import NetworkStack
    from stacks.storage import StorageStack
    from ultracluster.images import aws_graviton_image, parse_image
    from ultracluster.rules import check
    from ultracluster.settings import DEFAULT_ENVIRONMENT, SettingsError, load_settings
except ModuleNotFoundError as error:
    sys.exit(f"app.py: python package {error.name!r} is not installed; run `make setup` first")

ROOT = Path(__file__).resolve().parent


def build_app(
    environment: str | None = None,
    *,
    context: Mapping[str, Any] | None = None,
    outdir: str | None = None,
) -> cdk.App:
    """Make the stacks of one environment.

    Args:
        environment: name of a file in config/; None takes the context's `environment`, else dev.
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
    environment = environment or app.node.try_get_context("environment") or DEFAULT_ENVIRONMENT
    settings = load_settings(environment, ROOT / "config")
    check(settings)
    image_uri = settings.endpoint.image
    image = parse_image(image_uri) if image_uri else aws_graviton_image(settings.aws.region)
    assert image is not None, "the rules let no settings pass without an image"  # noqa: S101

    env = cdk.Environment(account=settings.aws.account, region=settings.aws.region)

    def stack_id(name: str) -> str:
        return f"{settings.prefix}-{name}"

    network = NetworkStack(app, stack_id("network"), settings=settings, env=env).network
    storage = StorageStack(app, stack_id("storage"), settings=settings, network=network, env=env)
    ClusterStack(
        app, stack_id("cluster"), settings=settings, network=network, storage=storage, env=env
    )
    endpoint = EndpointStack(
        app,
        stack_id("endpoint"),
        settings=settings,
        image=image,
        models=storage.models,
        env=env,
    )
    delivery = DeliveryStack(
        app,
        stack_id("delivery"),
        settings=settings,
        storage=storage,
        endpoint=endpoint,
        code=ROOT / "lambdas",
        env=env,
    )
    MonitoringStack(
        app,
        stack_id("monitoring"),
        settings=settings,
        file_system_id=storage.lustre.file_system.file_system_id,
        state_machine=delivery.delivery.state_machine,
        dead_letters=delivery.delivery.dead_letters,
        env=env,
    )
    cdk.Tags.of(app).add("ultracluster:environment", settings.prefix)
    return app


def main() -> None:
    """Synthesize for the CDK CLI."""
    try:
        build_app(outdir=os.environ.get("CDK_OUTDIR")).synth()
    except SettingsError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
