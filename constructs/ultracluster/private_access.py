"""What a network without NAT must reach, by the features in use."""

from __future__ import annotations

from ultracluster.settings import Settings

# What ParallelCluster's own daemons, CloudWatch's agent and Session Manager call.
ALWAYS = ("cloudformation", "ec2", "ec2messages", "logs", "monitoring", "ssm", "ssmmessages", "sts")
LOG_IN_NODES = ("autoscaling", "elasticloadbalancing")
ACCOUNTING = ("secretsmanager",)
CONTAINERS = ("ecr.api", "ecr.dkr")
CUSTOMER_KEY = ("kms",)


def interface_services(settings: Settings) -> tuple[str, ...]:
    """Services that need an interface endpoint; S3 and DynamoDB have gateway endpoints.

    Source: ParallelCluster's guide for a subnet without internet access.
    """
    services = set(ALWAYS)
    for needed, more in (
        (settings.cluster.login_nodes, LOG_IN_NODES),
        (settings.cluster.accounting, ACCOUNTING),
        (settings.cluster.containers, CONTAINERS),
        (settings.buckets.customer_key, CUSTOMER_KEY),
    ):
        if needed:
            services.update(more)
    return tuple(sorted(services))
