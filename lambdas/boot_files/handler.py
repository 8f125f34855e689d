"""`Custom::BootFiles`: puts what nodes run at boot into the boot bucket."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import boto3

from shared.answer import fail, succeed
from shared.log import logger

log = logger("boot_files")


def handler(event: dict[str, Any], context: object) -> None:
    """Carry out one request.

    Args:
        event: CloudFormation's request. `Source` is the archive's bucket and key, `Bucket` the boot
            bucket, `Release` the folder of this content, `Entry` the script that is also put beside
            the archive and at the top, where its address stays, `Files` further texts by key.
        context: unused.
    """
    properties = event["ResourceProperties"]
    bucket = properties["Bucket"]
    physical_id = f"boot-files/{bucket}"
    try:
        if event["RequestType"] != "Delete":  # the bucket empties itself
            _put(boto3.client("s3"), bucket, properties)
    except Exception as error:
        log.exception("the files could not be put")
        fail(event, physical_id, f"{type(error).__name__}: {error}")
    else:
        succeed(event, physical_id)


def _put(s3: Any, bucket: str, properties: dict[str, Any]) -> None:
    source, release = properties["Source"], properties["Release"]
    archive = s3.get_object(Bucket=source["Bucket"], Key=source["Key"])["Body"].read()
    with zipfile.ZipFile(io.BytesIO(archive)) as members:
        entry = members.read(properties["Entry"])
    files: dict[str, str] = json.loads(properties["Files"])
    contents = {
        f"boot/{release}/scripts.zip": archive,
        f"boot/{release}/{properties['Entry']}": entry,
        f"boot/{properties['Entry']}": entry,
        **{key: text.encode() for key, text in files.items()},
    }
    for key, content in sorted(contents.items()):
        s3.put_object(Bucket=bucket, Key=key, Body=content)
    # Last: a head node that starts now finds a whole release.
    s3.put_object(Bucket=bucket, Key="boot/current", Body=release.encode())
