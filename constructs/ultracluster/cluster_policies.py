"""What nodes and ParallelCluster's provider may do beyond what ParallelCluster gives them.

ParallelCluster's provider may attach a policy to a node's role only where its name or path begins
with `parallelcluster` (its own admin policy, "policies.yaml").
"""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Aws
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from ultracluster.reasons import accept
from ultracluster.settings import Settings

_PATH = "/parallelcluster/"
_SESSION_MANAGER = f"arn:{Aws.PARTITION}:iam::aws:policy/AmazonSSMManagedInstanceCore"
# Account of AWS's Deep Learning Containers.
_IMAGES_OF_AWS = "763104351884"


class ClusterPolicies(Construct):
    """Managed policies of the node kinds and of the provider.

    Attributes:
        head_node: ARNs for the head node.
        login_nodes: ARNs for log-in nodes.
        compute_nodes: ARNs for compute nodes.
        provider: ARNs for the provider's function.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        boot: s3.IBucket,
        models: s3.IBucket,
    ) -> None:
        super().__init__(scope, construct_id)
        read_boot = _statement(["s3:GetObject"], [boot.arn_for_objects("boot/*")])
        images = _images(settings) if settings.cluster.containers else []
        everywhere = [_SESSION_MANAGER, *self._policy("Images", images)]
        self.head_node = everywhere
        self.login_nodes = (
            [*everywhere, *self._policy("Login", [read_boot])] if _has_login(settings) else []
        )
        self.compute_nodes = [*everywhere, *self._policy("Publish", _key_of(models))]
        accept(
            self,
            "AwsSolutions-IAM5",
            "keys of boot files hold digests; each is below the prefix",
            "Resource::.../boot/*",
        )
        if images:
            accept(
                self,
                "AwsSolutions-IAM5",
                "people choose their images, and ECR's token is for the whole registry",
                "Resource::...:repository/*",
                "Resource::*",
            )
        self.provider = self._policy("Provider", [read_boot, *_secrets(settings)], path=None)

    def _policy(
        self, name: str, statements: Sequence[iam.PolicyStatement], *, path: str | None = _PATH
    ) -> list[str]:
        if not statements:
            return []
        policy = iam.ManagedPolicy(self, name, path=path, statements=statements)
        return [policy.managed_policy_arn]


def _key_of(models: s3.IBucket) -> list[iam.PolicyStatement]:
    """Publishing to a bucket with a customer key needs the key."""
    if models.encryption_key is None:
        return []
    return [_statement(["kms:Decrypt", "kms:GenerateDataKey"], [models.encryption_key.key_arn])]


def _secrets(settings: Settings) -> list[iam.PolicyStatement]:
    """The provider checks that the password of the accounting database is there."""
    if settings.cluster.accounting is None:
        return []
    arn = settings.cluster.accounting.password_secret_arn
    return [_statement(["secretsmanager:DescribeSecret"], [arn])]


def _images(settings: Settings) -> list[iam.PolicyStatement]:
    repositories = [
        f"arn:{Aws.PARTITION}:ecr:{settings.aws.region}:{account}:repository/*"
        for account in (Aws.ACCOUNT_ID, _IMAGES_OF_AWS)
    ]
    return [
        _statement(["ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"], repositories),
        # A token is for the whole registry.
        _statement(["ecr:GetAuthorizationToken"], ["*"]),
    ]


def _has_login(settings: Settings) -> bool:
    return settings.cluster.login_nodes is not None


def _statement(actions: list[str], resources: list[str]) -> iam.PolicyStatement:
    return iam.PolicyStatement(actions=actions, resources=resources)
