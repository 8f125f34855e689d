"""What nodes run at boot, in a bucket of their own, and how each node kind runs it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aws_cdk import CustomResource, Duration, RemovalPolicy, Stack
from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from ultracluster.catalog import Catalog
from ultracluster.cluster_configuration import BootActions
from ultracluster.custom_function import CustomFunction
from ultracluster.model_bucket import PrivateBucket
from ultracluster.reasons import accept
from ultracluster.retention import log_retention
from ultracluster.settings import Settings

SCRIPTS = Path(__file__).parent / "boot"
_ENTRY = "boot.sh"
_NOT_ASSETS = ["**/__pycache__", "**/*.pyc", "__init__.py", "**/.*"]


class BootFiles(Construct):
    """The boot bucket and its content.

    `boot/<release>/` holds one release of the scripts; a queue names its release, so a changed
    script changes the configuration. `boot/boot.sh` is the head node's entry: its address and
    arguments may never change, so it takes the release that `boot/current` names.
    `boot/platform.json` holds what a job is told.

    Args:
        code: folder of the functions.
        facts: what a job is told, without the instance; may hold tokens.
        facts_digest: changes when the facts do.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        code: Path,
        settings: Settings,
        catalog: Catalog,
        facts: Mapping[str, Any],
        facts_digest: str,
    ) -> None:
        super().__init__(scope, construct_id)
        # Its content comes from the code, so it is never kept.
        self.bucket = PrivateBucket(self, "Bucket", removal_policy=RemovalPolicy.DESTROY)
        self._facts_digest = facts_digest
        scripts = s3_assets.Asset(self, "Scripts", path=str(SCRIPTS), exclude=_NOT_ASSETS)
        environment = boot_environment(settings, catalog)
        self.release = _digest(scripts.asset_hash, environment)
        platform = {"facts": facts, "instances": instance_facts(settings, catalog)}
        function = CustomFunction(
            self,
            "Function",
            code=code,
            handler="boot_files.handler.handler",
            timeout=Duration.minutes(1),
            log_retention=log_retention(settings),
        )
        archive = scripts.bucket.arn_for_objects(scripts.s3_object_key)
        function.allow(["s3:GetObject"], [archive])
        function.allow(["s3:PutObject"], [self.bucket.arn_for_objects("boot/*")])
        accept(
            self,
            "AwsSolutions-IAM5",
            "keys of boot files hold digests; each is below the prefix",
            "Resource::.../boot/*",
        )
        self.resource = CustomResource(
            self,
            "Files",
            resource_type="Custom::BootFiles",
            service_token=function.function_arn,
            properties={
                "Source": {"Bucket": scripts.s3_bucket_name, "Key": scripts.s3_object_key},
                "Bucket": self.bucket.bucket_name,
                "Release": self.release,
                "Entry": _ENTRY,
                "Files": Stack.of(self).to_json_string(
                    {
                        f"boot/{self.release}/boot.env": environment,
                        # One string, for CloudFormation would make strings of its numbers.
                        "boot/platform.json": Stack.of(self).to_json_string(platform),
                    }
                ),
            },
        )

    @property
    def actions(self) -> BootActions:
        """Custom actions of each node kind."""
        bucket = self.bucket.bucket_name
        stable = f"s3://{bucket}/boot/{_ENTRY}"
        hashed = f"s3://{bucket}/boot/{self.release}/{_ENTRY}"

        def pinned(stage: str, efa: str) -> dict[str, Any]:
            return {"Script": hashed, "Args": [stage, bucket, self.release, efa]}

        def node(efa: str) -> dict[str, Any]:
            return {
                "OnNodeStart": pinned("start", efa),
                "OnNodeConfigured": pinned("configured", efa),
            }

        return BootActions(
            head={
                "OnNodeStart": {"Script": stable, "Args": ["start", bucket]},
                "OnNodeConfigured": {"Script": stable, "Args": ["configured", bucket]},
                "OnNodeUpdated": {
                    "Script": hashed,
                    # The last is for ParallelCluster alone: changed facts are a change to deploy.
                    "Args": ["updated", bucket, self.release, "no-efa", self._facts_digest],
                },
            },
            login=node("no-efa"),
            node=node("no-efa"),
            node_efa=node("efa"),
        )


def boot_environment(settings: Settings, catalog: Catalog) -> str:
    """`boot.env`: what the scripts install, in the shell's syntax."""
    cluster = settings.cluster
    neuron = catalog.neuron_set(cluster.neuron)
    rows = [catalog.instance_type(queue.instance_type) for queue in cluster.queues]
    trains = any(row is not None and row.kind == "trainium" for row in rows)
    values = {
        "CLUSTER": settings.prefix,
        "REGION": settings.aws.region,
        "INSTALL": _yes(cluster.custom_ami is None),
        "CONTAINERS": _yes(cluster.containers),
        "NEURON": _yes(trains and neuron is not None),
    }
    if neuron is not None:
        values |= {
            "NEURON_RELEASE": neuron.name,
            "NEURON_DRIVER": neuron.driver,
            "NEURON_RUNTIME": neuron.runtime,
            "NEURON_COLLECTIVES": neuron.collectives,
            "NEURON_TOOLS": neuron.tools,
            "NEURON_COMPILER": neuron.compiler,
            "NEURON_FRAMEWORK": neuron.framework,
            "PYTHON": catalog.system_python(cluster.os) or neuron.python[0],
        }
    return "".join(f"{name}={value}\n" for name, value in values.items())


def instance_facts(settings: Settings, catalog: Catalog) -> dict[str, Any]:
    """What a node is told of its own type, by type."""
    cluster = settings.cluster
    names = {cluster.head_node.instance_type}
    if cluster.login_nodes:
        names.add(cluster.login_nodes.instance_type)
    for queue in cluster.queues:
        names |= {queue.instance_type, *queue.alternatives}
    rows = {name: catalog.instance_type(name) for name in sorted(names)}
    return {
        name: {
            "type": name,
            "kind": row.kind,
            "accelerators": row.accelerators,
            "efa_interfaces": row.efa_interfaces,
            "price_usd_per_hour": row.price_usd_per_hour,
            "price_date": catalog.prices_date(),
        }
        for name, row in rows.items()
        if row is not None
    }


def facts_digest(facts: Mapping[str, Any]) -> str:
    """A digest of facts that hold no tokens."""
    return _digest(json.dumps(facts, sort_keys=True))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _yes(value: bool) -> str:
    return "yes" if value else "no"
