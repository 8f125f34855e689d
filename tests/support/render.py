"""Renders a cluster's own CloudFormation templates; runs in .venv-render, beside CDK 1.

Reads `{"name", "configuration", "world"}` from standard input and writes the templates, root first.
"""

# mypy: disable-error-code="no-any-return,misc"

from __future__ import annotations

import json
import sys
from typing import Any

from pcluster.models.s3_bucket import S3Bucket
from pcluster.schemas.cluster_schema import ClusterSchema
from pcluster.templates.cdk_builder import CDKTemplateBuilder

from tests.support.parallelcluster import World, connect


class _Bucket(S3Bucket):
    def upload_cfn_asset(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        return {}


def main() -> None:
    """Render the one cluster of standard input."""
    request = json.load(sys.stdin)
    name = request["name"]
    given = request["world"]
    connect(World(**given | {"policies": set(given["policies"])}))
    cluster = ClusterSchema(cluster_name=name).load(request["configuration"])
    for version in ("config_version", "original_config_version", "instance_types_data_version"):
        setattr(cluster, version, "v1")
    bucket = _Bucket(
        service_name=name,
        stack_name=name,
        artifact_directory="artifacts",
        name="parallelcluster-0-v1-do-not-delete",
    )
    root, assets = CDKTemplateBuilder().build_cluster_template(
        cluster_config=cluster, bucket=bucket, stack_name=name
    )
    json.dump([root, *(asset["content"] for asset in assets)], sys.stdout)


if __name__ == "__main__":
    main()
