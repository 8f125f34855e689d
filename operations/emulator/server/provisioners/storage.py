"""FSx types."""

from __future__ import annotations

import time
from typing import Any

from botocore.exceptions import ClientError

from operations.emulator.server.calls import already_gone_is_fine, client, typed
from operations.emulator.server.provisioners.resource_type import (
    Created,
    Properties,
    ResourceType,
    replace,
)

_POLL_SECONDS = 0.2


def _retag(arn: str, old: Properties, new: Properties) -> None:
    before = {tag["Key"] for tag in old.get("Tags") or []}
    after = {tag["Key"] for tag in new.get("Tags") or []}
    if before - after:
        client("fsx").untag_resource(ResourceARN=arn, TagKeys=sorted(before - after))
    if new.get("Tags"):
        client("fsx").tag_resource(ResourceARN=arn, Tags=new["Tags"])


def _changed(old: Properties, new: Properties, *names: str) -> dict[str, Any]:
    return {name: new[name] for name in names if name in new and new[name] != old.get(name)}


class FileSystem(ResourceType):
    """AWS::FSx::FileSystem."""

    name = "AWS::FSx::FileSystem"
    create_only = ("KmsKeyId", "SecurityGroupIds", "FileSystemType", "SubnetIds", "BackupId")

    # Of LustreConfiguration, what the API can change; anything else replaces the file system.
    _CHANGEABLE = frozenset(
        {
            "WeeklyMaintenanceStartTime",
            "DailyAutomaticBackupStartTime",
            "AutomaticBackupRetentionDays",
            "AutoImportPolicy",
            "DataCompressionType",
            "RootSquashConfiguration",
            "PerUnitStorageThroughput",
            "MetadataConfiguration",
            "ThroughputCapacity",
            "DataReadCacheConfiguration",
        }
    )

    def create(self, logical_id: str, properties: Properties, stack: str) -> Created:
        """Make the file system and wait until it is available."""
        request = typed("fsx", "CreateFileSystem", properties)
        identifier = client("fsx").create_file_system(**request)["FileSystem"]["FileSystemId"]
        return identifier, self._attributes(_settled_file_system(identifier))

    def update(self, physical_id: str, old: Properties, new: Properties, stack: str) -> Created:
        """Change what FSx can change; a change of the Lustre kind is a replacement."""
        before, after = old.get("LustreConfiguration", {}), new.get("LustreConfiguration", {})
        different = {key for key in {*before, *after} if before.get(key) != after.get(key)}
        if different - self._CHANGEABLE:
            return replace(self, physical_id, old, new, stack)
        request = _changed(old, new, "StorageCapacity", "StorageType", "FileSystemTypeVersion")
        lustre = _changed(before, after, *sorted(self._CHANGEABLE))
        if lustre:
            request["LustreConfiguration"] = lustre
        if request:
            request = typed("fsx", "UpdateFileSystem", {"FileSystemId": physical_id, **request})
            client("fsx").update_file_system(**request)
        file_system = _settled_file_system(physical_id)
        _retag(file_system["ResourceARN"], old, new)
        return physical_id, self._attributes(file_system)

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Delete the file system and wait until it is gone."""
        with already_gone_is_fine():
            client("fsx").delete_file_system(FileSystemId=physical_id)
            while client("fsx").describe_file_systems(FileSystemIds=[physical_id])["FileSystems"]:
                time.sleep(_POLL_SECONDS)

    @staticmethod
    def _attributes(file_system: dict[str, Any]) -> dict[str, Any]:
        return {
            "Id": file_system["FileSystemId"],
            "DNSName": file_system["DNSName"],
            "LustreMountName": file_system["LustreConfiguration"]["MountName"],
            "ResourceARN": file_system["ResourceARN"],
        }


def _settled_file_system(identifier: str) -> dict[str, Any]:
    while True:
        answer = client("fsx").describe_file_systems(FileSystemIds=[identifier])
        file_system: dict[str, Any] = answer["FileSystems"][0]
        if file_system["Lifecycle"] == "AVAILABLE":
            return file_system
        if file_system["Lifecycle"] != "CREATING":
            raise ValueError(f"{identifier} is {file_system['Lifecycle']}")
        time.sleep(_POLL_SECONDS)


class DataRepositoryAssociation(ResourceType):
    """AWS::FSx::DataRepositoryAssociation."""

    name = "AWS::FSx::DataRepositoryAssociation"
    create_only = (
        "FileSystemId",
        "FileSystemPath",
        "DataRepositoryPath",
        "BatchImportMetaDataOnCreate",
    )

    def create(self, logical_id: str, properties: Properties, stack: str) -> Created:
        """Make the association and wait until it is available."""
        request = typed("fsx", "CreateDataRepositoryAssociation", properties)
        made = client("fsx").create_data_repository_association(**request)["Association"]
        association = self._settled(made["AssociationId"])
        return association["AssociationId"], self._attributes(association)

    def update(self, physical_id: str, old: Properties, new: Properties, stack: str) -> Created:
        """Change the policies, the chunk size and the tags."""
        request = _changed(old, new, "S3", "ImportedFileChunkSize")
        if request:
            client("fsx").update_data_repository_association(
                **typed(
                    "fsx",
                    "UpdateDataRepositoryAssociation",
                    {"AssociationId": physical_id, **request},
                )
            )
        association = self._settled(physical_id)
        _retag(association["ResourceARN"], old, new)
        return physical_id, self._attributes(association)

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Delete the association, never the data, and wait until it is gone."""
        with already_gone_is_fine():
            client("fsx").delete_data_repository_association(AssociationId=physical_id)
            while self._describe(physical_id):
                time.sleep(_POLL_SECONDS)

    @classmethod
    def _settled(cls, identifier: str) -> dict[str, Any]:
        while True:
            association = cls._describe(identifier)
            if association is None:
                raise ValueError(f"{identifier} is gone")
            if association["Lifecycle"] == "AVAILABLE":
                return association
            time.sleep(_POLL_SECONDS)

    @staticmethod
    def _describe(identifier: str) -> dict[str, Any] | None:
        try:
            answer = client("fsx").describe_data_repository_associations(
                AssociationIds=[identifier]
            )
        except ClientError as error:
            if error.response["Error"]["Code"] == "DataRepositoryAssociationNotFound":
                return None
            raise
        association: dict[str, Any] = answer["Associations"][0]
        return association

    @staticmethod
    def _attributes(association: dict[str, Any]) -> dict[str, Any]:
        return {key: association[key] for key in ("AssociationId", "ResourceARN")}
