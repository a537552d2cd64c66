"""Model and ModelVersion: a named model, and one immutable image of its files."""

from typing import Annotated, Literal

from pydantic import Field

from serving.resources.base import Base, Conditions, Name, list_map, rules

Phase = Literal["Pending", "Building", "Ready", "Failed"]


class ModelSpec(Base):
    """What a user says of a model as a whole."""

    description: str = ""


class LatestVersion(Base):
    """The newest version that is ready."""

    name: str
    image: str


class ModelStatus(Base):
    """`latestVersion` is the newest ready one: never one that is building or has failed."""

    latest_version: LatestVersion | None = None
    versions: int = 0
    observed_generation: int = 0
    conditions: Conditions = []


class JobSource(Base):
    """A finished `batch/v1` Job of the same namespace."""

    name: Annotated[str, Field(min_length=1)]
    uid: Annotated[
        str, Field(description="The Job's uid; a later Job of the same name is another source.")
    ] = ""


class Source(Base):
    """Where the files come from: exactly one."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            (
                "[has(self.job), has(self.path)].filter(x, x).size() == 1",
                "exactly one of job and path must be set",
            ),
            ("!has(self.path) || self.path.startsWith('/')", "path must be absolute"),
        ),
    }
    job: JobSource | None = None
    path: Annotated[str, Field(description="An absolute directory on the node that builds.")] | None = None


class ModelVersionSpec(Base):
    """One immutable version: its spec cannot change after creation."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            ("self == oldSelf", "a ModelVersion is immutable: create another version")
        ),
    }
    model_name: Name
    framework: Annotated[
        str, Field(description="Runtime family; the output's slipway.json decides where absent.")
    ] = ""
    source: Source
    created_by: Annotated[str, Field(description="Who made it, for people.")] = ""


class FileStatus(Base):
    """One file of the image."""

    path: str
    digest: str
    size: int


class Lineage(Base):
    """Where the files came from, from the source that was captured."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    source_revision: str = ""
    path: str = ""


class ModelVersionStatus(Base):
    """What was built."""

    phase: Phase = "Pending"
    image: Annotated[str, Field(description="Repository and digest: `repository@sha256:...`.")] = ""
    digest: str = ""
    size: Annotated[int, Field(description="Bytes of all files.")] = 0
    framework: str = ""
    metrics: Annotated[
        dict[str, float], Field(json_schema_extra={"additionalProperties": {"type": "number"}})
    ] = {}
    files: Annotated[list[FileStatus], Field(json_schema_extra=list_map("path"))] = []
    lineage: Lineage | None = None
    finish_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    observed_generation: int = 0
    conditions: Conditions = []
