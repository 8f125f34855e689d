"""The stand-in for the CloudFormation provider that AWS hosts for ParallelCluster.

In each region AWS keeps a template in a bucket of its own, and templates like ours nest it. The
emulated account has neither, so `seed` puts ours there under the same keys: a template with the
same parameters and outputs, and one Lambda function that checks a cluster's configuration with
ParallelCluster's own schema, validators and update rules instead of making instances.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

VERSION = "3.16.1"
TEMPLATE_KEY = f"parallelcluster/{VERSION}/templates/custom_resource/cluster.yaml"
# AWS keeps the code as a layer under this key; here it is the whole function.
CODE_KEY = f"parallelcluster/{VERSION}/layers/aws-parallelcluster/lambda-layer.zip"

_HERE = Path(__file__).parent


def bucket_name(region: str) -> str:
    """The bucket of a region, as AWS names it."""
    return f"{region}-aws-parallelcluster"


def seed(s3: Any, region: str) -> None:
    """Put the template and the function's code where AWS keeps them.

    Args:
        s3: A boto3 client of the emulated S3.
        region: The region whose bucket is made.
    """
    bucket = bucket_name(region)
    where = {} if region == "us-east-1" else {"LocationConstraint": region}
    s3.create_bucket(Bucket=bucket, **({"CreateBucketConfiguration": where} if where else {}))
    s3.put_object(Bucket=bucket, Key=TEMPLATE_KEY, Body=(_HERE / "cluster.yaml").read_bytes())
    s3.put_object(Bucket=bucket, Key=CODE_KEY, Body=_code())


def _code() -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for source in sorted((_HERE / "provider").glob("*.py")):
            target.write(source, f"provider/{source.name}")
    return archive.getvalue()
