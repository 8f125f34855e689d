"""The settings of one environment, read from `config/<environment>.toml`."""

from ultracluster.settings.cluster import Accounting, Cluster, HeadNode, LoginNodes
from ultracluster.settings.load import (
    DEFAULT_ENVIRONMENT,
    SettingsError,
    listed,
    load_settings,
    read_draft,
)
from ultracluster.settings.model import Aws, Settings
from ultracluster.settings.network import ImportedVpc, Network
from ultracluster.settings.queues import Queue, Reservation
from ultracluster.settings.serving import Delivery, Endpoint, Monitoring
from ultracluster.settings.storage import Buckets, Link, Lustre

__all__ = [
    "DEFAULT_ENVIRONMENT",
    "Accounting",
    "Aws",
    "Buckets",
    "Cluster",
    "Delivery",
    "Endpoint",
    "HeadNode",
    "ImportedVpc",
    "Link",
    "LoginNodes",
    "Lustre",
    "Monitoring",
    "Network",
    "Queue",
    "Reservation",
    "Settings",
    "SettingsError",
    "listed",
    "load_settings",
    "read_draft",
]
