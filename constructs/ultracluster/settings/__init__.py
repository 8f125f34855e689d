"""The settings of one environment, read from `config/<environment>.toml`."""

from ultracluster.settings.cluster import Accounting, Cluster, HeadNode, LoginNodes
from ultracluster.settings.endpoint import Alarms, Capture, Endpoint, Image, Scaling
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
from ultracluster.settings.serving import Delivery, Monitoring
from ultracluster.settings.storage import Buckets, Link, Lustre

__all__ = [
    "DEFAULT_ENVIRONMENT",
    "Accounting",
    "Alarms",
    "Aws",
    "Buckets",
    "Capture",
    "Cluster",
    "Delivery",
    "Endpoint",
    "HeadNode",
    "Image",
    "ImportedVpc",
    "Link",
    "LoginNodes",
    "Lustre",
    "Monitoring",
    "Network",
    "Queue",
    "Reservation",
    "Scaling",
    "Settings",
    "SettingsError",
    "listed",
    "load_settings",
    "read_draft",
]
