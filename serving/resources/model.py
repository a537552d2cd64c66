"""Model and ModelVersion: a named model, and one immutable image of its files."""

from typing import Annotated, Literal

from pydantic import Field

from serving.resources.base import Base, Conditions, Name, list_map, rules

Phase = Literal["Pending", "Building", "Ready", "Failed"]

_LABEL = r"[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?"
_PORT = r":[0-9]{1,5}"
_HOST = rf"(localhost({_PORT})?|{_LABEL}(\.{_LABEL})+({_PORT})?|{_LABEL}{_PORT}|\[[0-9a-fA-F:.]+\]({_PORT})?)"
"""With a dot, a port, or `localhost`: without them it would be the first part of a Docker Hub name."""
_PART = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
REPOSITORY_PATTERN = rf"^{_HOST}(/{_PART})+$"
"""host[:port]/path, the host always said: https://github.com/distribution/reference, "name"."""
IMAGE_PATTERN = rf"^{_HOST}(/{_PART})+(:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(@sha256:[0-9a-f]{{64}})?$"
URI_PATTERN = r"^[a-z][a-z0-9+.-]*://[^\s]+$"
_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
"""RFC 1123, as Secrets are named."""
_PEM_PATTERN = r"^-----BEGIN PUBLIC KEY-----\n[A-Za-z0-9+/=\n]+-----END PUBLIC KEY-----\n?$"
_LOCAL = "slipway.local is this machine's model store: no registry has that name"

SecretName = Annotated[str, Field(pattern=_SUBDOMAIN, max_length=253)]


class Registry(Base):
    """Where built images are pushed."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(("!self.repository.startsWith('slipway.local/')", _LOCAL)),
    }
    repository: Annotated[
        str,
        Field(
            pattern=REPOSITORY_PATTERN,
            max_length=255,
            description="host[:port]/path without tag; each version is pushed under its own name as tag.",
        ),
    ]
    secret_name: Annotated[
        SecretName | None,
        Field(
            description="A kubernetes.io/dockerconfigjson Secret of this namespace; "
            "without it, the Docker configuration of the user that runs the controllers."
        ),
    ] = None


class Retention(Base):
    """Which ready versions are kept."""

    keep: Annotated[
        int,
        Field(ge=1, le=1000, description="The newest ready versions that are kept; one in use always is."),
    ]


class Signing(Base):
    """With what pushed images are signed."""

    secret_name: Annotated[
        SecretName,
        Field(
            description="A Secret of this namespace: cosign.key is a PKCS#8 PEM private key (ECDSA P-256), "
            "cosign.password its password where it has one."
        ),
    ]


class Verification(Base):
    """Whose images are accepted."""

    keys: Annotated[
        list[Annotated[str, Field(pattern=_PEM_PATTERN, max_length=4096)]],
        Field(
            min_length=1,
            max_length=16,
            description="PEM public keys: an image source must be signed by one of them.",
            json_schema_extra={"x-kubernetes-list-type": "set"},
        ),
    ]


class ModelSpec(Base):
    """What a user says of a model as a whole; a version is built by what is said when its build begins."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            (
                "!has(self.signing) || has(self.registry)",
                "signing needs a registry: a signature lies beside the image there",
            )
        ),
    }
    description: str = ""
    registry: Registry | None = None
    compression: Annotated[
        Literal["none", "zstd"], Field(description="Of the layers that are built; zstd for slow links.")
    ] = "none"
    retention: Retention | None = None
    signing: Signing | None = None
    verification: Verification | None = None


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
                "[has(self.job), has(self.path), has(self.uri), has(self.image)].filter(x, x).size() == 1",
                "exactly one of job, path, uri and image must be set",
            ),
            ("!has(self.path) || self.path.startsWith('/')", "path must be absolute"),
            (
                "!has(self.uri) || !self.uri.contains('::')",
                "uri must name one file system: chains (`::`) are not followed",
            ),
            (
                "!has(self.uri) || !self.uri.matches('^[^/]*//[^/@]*:[^/@]*@')",
                "uri must have no password: credentials come from the controllers' environment",
            ),
            ("!has(self.image) || !self.image.startsWith('slipway.local/')", _LOCAL),
        ),
    }
    job: JobSource | None = None
    path: (
        Annotated[str, Field(max_length=4096, description="An absolute directory on the node that builds.")]
        | None
    ) = None
    uri: (
        Annotated[
            str,
            Field(
                pattern=URI_PATTERN,
                max_length=2048,
                description="A directory of a storage that fsspec reaches: s3://, gs://, abfs://, file:// and others.",
            ),
        ]
        | None
    ) = None
    image: (
        Annotated[
            str,
            Field(
                pattern=IMAGE_PATTERN,
                max_length=512,
                description="An image in a registry, by tag or digest: host[:port]/path[:tag][@sha256:...].",
            ),
        ]
        | None
    ) = None


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
    uri: str = ""
    image: Annotated[str, Field(description="The reference that was asked for, with the digest it had.")] = ""


class ModelVersionStatus(Base):
    """What was built."""

    phase: Phase = "Pending"
    attempts: Annotated[int, Field(description="Tries that have failed so far.")] = 0
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
