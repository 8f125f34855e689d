"""Amazon FSx, as far as Lustre file systems and their links to S3 need it.

Lifecycles are as on AWS: CREATING then AVAILABLE, DELETING then gone. Times come from
`settle_seconds`. State is per region and account.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import botocore.session
from ministack.core.responses import get_account_id, get_region
from ministack.services import ec2

from operations.emulator.server.gateway import Answer, ServiceError, json_service

_DELETING = "DELETING"


@dataclass
class _Record:
    """A file system or an association: what is reported, and when it settles."""

    content: dict[str, Any]
    settles_at: float
    home: tuple[str, str] = field(default_factory=lambda: (get_region(), get_account_id()))

    def report(self) -> dict[str, Any]:
        if self.content["Lifecycle"] != _DELETING and time.monotonic() >= self.settles_at:
            self.content["Lifecycle"] = "AVAILABLE"
        return self.content

    @property
    def gone(self) -> bool:
        return self.content["Lifecycle"] == _DELETING and time.monotonic() >= self.settles_at


class FSx:
    """The service: its operations and its state."""

    def __init__(self, *, settle_seconds: float) -> None:
        """Start with no file system; resources settle after `settle_seconds`."""
        self._settle_seconds = settle_seconds
        self._file_systems: dict[str, _Record] = {}
        self._associations: dict[str, _Record] = {}

    def answer(self) -> Answer:
        """What the gateway calls."""
        operations: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "CreateFileSystem": self._create_file_system,
            "DescribeFileSystems": self._describe_file_systems,
            "UpdateFileSystem": self._update_file_system,
            "DeleteFileSystem": self._delete_file_system,
            "DescribeBackups": lambda request: {"Backups": []},
            "CreateDataRepositoryAssociation": self._create_association,
            "DescribeDataRepositoryAssociations": self._describe_associations,
            "UpdateDataRepositoryAssociation": self._update_association,
            "DeleteDataRepositoryAssociation": self._delete_association,
            "TagResource": self._tag,
            "UntagResource": self._untag,
            "ListTagsForResource": self._list_tags,
        }
        return json_service(operations, botocore.session.get_session().get_service_model("fsx"))

    def subnets_in_use(self) -> set[str]:
        """Subnets that hold the network interfaces of a file system."""
        used: set[str] = set()
        for record in self._here(self._file_systems).values():
            used.update(record.content["SubnetIds"])
        return used

    def _settles(self) -> float:
        return time.monotonic() + self._settle_seconds

    def _here(self, records: dict[str, _Record]) -> dict[str, _Record]:
        for identifier in [name for name, record in records.items() if record.gone]:
            records.pop(identifier, None)
        home = (get_region(), get_account_id())
        return {name: record for name, record in records.items() if record.home == home}

    def _find(self, records: dict[str, _Record], identifier: str, code: str) -> _Record:
        try:
            return self._here(records)[identifier]
        except KeyError:
            raise ServiceError(code, f"{identifier} does not exist.") from None

    def _create_file_system(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["FileSystemType"] != "LUSTRE":
            raise ServiceError(
                "BadRequest",
                f"the emulator has Lustre file systems only, got {request['FileSystemType']}",
            )
        unknown = [name for name in request["SubnetIds"] if name not in ec2._subnets]
        if unknown:
            raise ServiceError("InvalidNetworkSettings", f"no such subnet: {', '.join(unknown)}")
        identifier = f"fs-0{secrets.token_hex(8)}"
        region, account = get_region(), get_account_id()
        lustre = {"DeploymentType": "SCRATCH_1", **request.get("LustreConfiguration", {})}
        scratch_1 = lustre["DeploymentType"] == "SCRATCH_1"
        lustre["MountName"] = "fsx" if scratch_1 else secrets.token_hex(4)
        content = {
            **{name: value for name, value in request.items() if name != "ClientRequestToken"},
            "OwnerId": account,
            "CreationTime": time.time(),
            "FileSystemId": identifier,
            "Lifecycle": "CREATING",
            "VpcId": ec2._subnets[request["SubnetIds"][0]]["VpcId"],
            "NetworkInterfaceIds": [f"eni-0{secrets.token_hex(8)}"],
            "DNSName": f"{identifier}.fsx.{region}.amazonaws.com",
            "ResourceARN": f"arn:aws:fsx:{region}:{account}:file-system/{identifier}",
            "LustreConfiguration": lustre,
            "Tags": request.get("Tags", []),
        }
        self._file_systems[identifier] = _Record(content, self._settles())
        return {"FileSystem": content}

    def _describe_file_systems(self, request: dict[str, Any]) -> dict[str, Any]:
        wanted = request.get("FileSystemIds")
        records = self._here(self._file_systems)
        chosen = (
            [self._find(self._file_systems, name, "FileSystemNotFound") for name in wanted]
            if wanted
            else list(records.values())
        )
        return {"FileSystems": [record.report() for record in chosen]}

    def _update_file_system(self, request: dict[str, Any]) -> dict[str, Any]:
        record = self._find(self._file_systems, request["FileSystemId"], "FileSystemNotFound")
        capacity = request.get("StorageCapacity")
        if capacity is not None and capacity < record.content.get("StorageCapacity", 0):
            raise ServiceError(
                "BadRequest",
                "storage capacity can only grow: "
                f"{record.content['StorageCapacity']} to {capacity} GiB",
            )
        for name, value in request.items():
            if name == "LustreConfiguration":
                record.content[name] = {**record.content[name], **value}
            elif name not in ("FileSystemId", "ClientRequestToken"):
                record.content[name] = value
        return {"FileSystem": record.report()}

    def _delete_file_system(self, request: dict[str, Any]) -> dict[str, Any]:
        identifier = request["FileSystemId"]
        record = self._find(self._file_systems, identifier, "FileSystemNotFound")
        for association in self._here(self._associations).values():
            if association.content["FileSystemId"] == identifier:
                self._start_deletion(association)
        self._start_deletion(record)
        return {"FileSystemId": identifier, "Lifecycle": _DELETING}

    def _start_deletion(self, record: _Record) -> None:
        record.content["Lifecycle"] = _DELETING
        record.settles_at = self._settles()

    def _create_association(self, request: dict[str, Any]) -> dict[str, Any]:
        file_system = request["FileSystemId"]
        self._find(self._file_systems, file_system, "FileSystemNotFound")
        if not re.match(r"s3://[a-z0-9.-]{3,63}(/|$)", request["DataRepositoryPath"]):
            raise ServiceError(
                "BadRequest",
                f"DataRepositoryPath must be an s3:// path, got {request['DataRepositoryPath']}",
            )
        path = request.get("FileSystemPath", "/")
        taken = [
            association.content["AssociationId"]
            for association in self._here(self._associations).values()
            if association.content["FileSystemId"] == file_system
            and _overlap(association.content["FileSystemPath"], path)
        ]
        if taken:
            raise ServiceError("BadRequest", f"file system path {path} overlaps that of {taken[0]}")
        identifier = f"dra-0{secrets.token_hex(8)}"
        arn = f"arn:aws:fsx:{get_region()}:{get_account_id()}:association"
        content = {
            **{name: value for name, value in request.items() if name != "ClientRequestToken"},
            "AssociationId": identifier,
            "FileSystemPath": path,
            "ResourceARN": f"{arn}/{file_system}/{identifier}",
            "Lifecycle": "CREATING",
            "CreationTime": time.time(),
            "Tags": request.get("Tags", []),
        }
        self._associations[identifier] = _Record(content, self._settles())
        return {"Association": content}

    def _describe_associations(self, request: dict[str, Any]) -> dict[str, Any]:
        wanted = request.get("AssociationIds")
        code = "DataRepositoryAssociationNotFound"
        chosen = (
            [self._find(self._associations, name, code) for name in wanted]
            if wanted
            else list(self._here(self._associations).values())
        )
        for one in request.get("Filters", []):
            if one["Name"] != "file-system-id":
                raise ServiceError("BadRequest", f"the emulator has no filter {one['Name']}")
            chosen = [
                record for record in chosen if record.content["FileSystemId"] in one["Values"]
            ]
        return {"Associations": [record.report() for record in chosen]}

    def _update_association(self, request: dict[str, Any]) -> dict[str, Any]:
        record = self._find(
            self._associations, request["AssociationId"], "DataRepositoryAssociationNotFound"
        )
        record.content.update(
            {
                name: value
                for name, value in request.items()
                if name in ("S3", "ImportedFileChunkSize")
            }
        )
        return {"Association": record.report()}

    def _delete_association(self, request: dict[str, Any]) -> dict[str, Any]:
        identifier = request["AssociationId"]
        record = self._find(self._associations, identifier, "DataRepositoryAssociationNotFound")
        self._start_deletion(record)
        return {
            "AssociationId": identifier,
            "Lifecycle": _DELETING,
            "DeleteDataInFileSystem": request.get("DeleteDataInFileSystem", False),
        }

    def _by_arn(self, arn: str) -> dict[str, Any]:
        for records in (self._file_systems, self._associations):
            for record in self._here(records).values():
                if record.content["ResourceARN"] == arn:
                    return record.content
        raise ServiceError("ResourceNotFound", f"{arn} does not exist.")

    def _tag(self, request: dict[str, Any]) -> dict[str, Any]:
        content = self._by_arn(request["ResourceARN"])
        new = {tag["Key"] for tag in request["Tags"]}
        content["Tags"] = [tag for tag in content["Tags"] if tag["Key"] not in new]
        content["Tags"] += request["Tags"]
        return {}

    def _untag(self, request: dict[str, Any]) -> dict[str, Any]:
        content = self._by_arn(request["ResourceARN"])
        content["Tags"] = [t for t in content["Tags"] if t["Key"] not in request["TagKeys"]]
        return {}

    def _list_tags(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"Tags": self._by_arn(request["ResourceARN"])["Tags"]}


def _overlap(one: str, other: str) -> bool:
    first, second = f"{one.strip('/')}/", f"{other.strip('/')}/"
    return "/" in (first, second) or first.startswith(second) or second.startswith(first)
