"""What a job is told of the environment it runs in (`platform.json`)."""

from __future__ import annotations

from typing import Any

from ultracluster.catalog import Catalog
from ultracluster.images import serving_image
from ultracluster.settings import Settings

PLATFORM_SCHEMA_VERSION = 1


def platform_facts(
    settings: Settings,
    *,
    catalog: Catalog,
    model_bucket: str,
    node_type: str | None,
) -> dict[str, Any]:
    """Bucket, model name, serving image, gate and prices, as training and publishing read them.

    Args:
        settings: the environment.
        catalog: facts about AWS.
        model_bucket: name of the bucket that models are published to.
        node_type: EC2 type of the node, or None where there is none (a laptop).
    """
    serving = serving_image(settings, catalog)
    row = catalog.instance_type(node_type) if node_type else None
    return {
        "schema_version": PLATFORM_SCHEMA_VERSION,
        "name": settings.name,
        "environment": settings.environment,
        "region": settings.aws.region,
        "model_bucket": model_bucket,
        "model_name": settings.endpoint.model_name,
        "mounts": {"fsx": "/fsx"},
        "serving": {
            "image": serving.image.uri,
            "torch": serving.torch,
            "python": serving.python,
            "architecture": "arm64",
            "instance_type": settings.endpoint.instance_type,
        },
        "gate": {"macro_f1": settings.delivery.minimum_macro_f1},
        "instance": row
        and {
            "type": row.name,
            "price_usd_per_hour": row.price_usd_per_hour,
            "price_date": catalog.prices_date(),
        },
    }
