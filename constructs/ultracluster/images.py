"""Container images in Amazon ECR, where SageMaker hosting pulls from."""

from __future__ import annotations

import re
from dataclasses import dataclass

from aws_cdk.region_info import Fact, FactName

from ultracluster.catalog import Catalog, ServingImage
from ultracluster.settings import Settings

URI = re.compile(
    r"(?=.{1,255}$)"  # no longer one fits into SageMaker's ContainerDefinition
    r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?"
    r"/(?P<repository>[a-z0-9]+([._/-]+[a-z0-9]+)*)"
    r"(:(?P<tag>\w[\w.-]{0,127})|@sha256:[0-9a-f]{64})",
    re.ASCII,
)


@dataclass(frozen=True, kw_only=True)
class EcrImage:
    """One image of a private ECR repository."""

    uri: str
    account: str
    region: str
    repository: str
    tag: str | None = None
    """None where it is named by its digest."""


@dataclass(frozen=True, kw_only=True)
class Serving:
    """The image that serves, and what a package must fit.

    Attributes:
        torch: PyTorch in it, three numbers.
        python: Python in it, two numbers.
    """

    image: EcrImage
    torch: str
    python: str


def parse_image(uri: str) -> EcrImage | None:
    """The parts of a private ECR URI with a tag or digest, or None where it is not one."""
    match = URI.fullmatch(uri)
    if match is None:
        return None
    return EcrImage(
        uri=uri,
        account=match["account"],
        region=match["region"],
        repository=match["repository"],
        tag=match["tag"],
    )


def aws_image(row: ServingImage, region: str) -> EcrImage | None:
    """One of AWS's own images in a region, or None where the region has none."""
    account = aws_account(row, region)
    if account is None:
        return None
    suffix = Fact.require_fact(region, FactName.DOMAIN_SUFFIX)
    return parse_image(
        f"{account}.dkr.ecr.{region}.{suffix}/{row.repository}:{row.tag}",
    )


def aws_account(row: ServingImage, region: str) -> str | None:
    """The account of AWS's own images in a region, or None where it is not known."""
    return row.accounts.get(region) or Fact.find(region, FactName.DLC_REPOSITORY_ACCOUNT)


def serving_image(settings: Settings, catalog: Catalog) -> Serving:
    """The image of the settings, else AWS's."""
    own = settings.endpoint.image
    row = catalog.graviton_image()
    image = parse_image(own.uri) if own else aws_image(row, settings.aws.region)
    assert image is not None, "the rules let no settings pass without an image"  # noqa: S101
    versions = own or row
    return Serving(image=image, torch=versions.torch, python=versions.python)
