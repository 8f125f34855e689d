"""Rules of the endpoint and its image."""

from __future__ import annotations

from ultracluster.catalog import Catalog
from ultracluster.images import aws_image, parse_image
from ultracluster.rules.problem import Problem, Problems
from ultracluster.settings import Settings


def endpoint_is_graviton(settings: Settings, catalog: Catalog) -> Problems:
    """The serving image is arm64, so the endpoint's family must be a Graviton one."""
    instance = settings.endpoint.instance_type
    if catalog.serving_instance(instance) is None:
        yield Problem(
            "endpoint.instance_type",
            f"got {instance!r}; the image is arm64 and needs ml.FAMILY.SIZE, "
            f"SIZE such as 4xlarge, of the families "
            f"{', '.join(catalog.graviton_families())} ({catalog.source('serving_instances')})",
        )


def serving_image(settings: Settings, catalog: Catalog) -> Problems:
    """The image is a pinned one of a private ECR repository in the endpoint's region."""
    image = settings.endpoint.image
    region = settings.aws.region
    if image is None:
        if aws_image(catalog.graviton_image(), region) is None:
            yield Problem(
                "endpoint.image",
                f"missing; the account of AWS's images in {region} is not known: "
                "name the image's URI",
            )
        return
    parsed = parse_image(image)
    if parsed is None:
        yield Problem(
            "endpoint.image",
            f"got {image!r}; allowed: ACCOUNT.dkr.ecr.REGION.amazonaws.com/REPOSITORY with :TAG or "
            "@sha256:DIGEST",
        )
    elif parsed.region != region:
        yield Problem(
            "endpoint.image",
            f"got an image of {parsed.region}; the endpoint pulls from {region}: copy it there",
        )


def budget_has_a_reader(settings: Settings, catalog: Catalog) -> Problems:
    """A budget without an address tells nobody."""
    monitoring = settings.monitoring
    if monitoring.monthly_budget_usd is not None and monitoring.email is None:
        yield Problem("monitoring.email", "missing; monthly_budget_usd needs someone to tell")
