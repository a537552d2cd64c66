"""Model and ModelVersion: a named model, and one immutable image of its files."""

from typing import Annotated, Literal

from pydantic import Field

from serving.resources.base import ATOMIC, Base, Conditions, Name, rules

Phase = Literal["Pending", "Building", "Ready", "Blocked", "Failed"]

_LABEL = r"[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?"
_PORT = r":[0-9]{1,5}"
_HOST = rf"(localhost({_PORT})?|{_LABEL}(\.{_LABEL})+({_PORT})?|{_LABEL}{_PORT}|\[[0-9a-fA-F:.]+\]({_PORT})?)"
"""A host has a dot, a port or brackets (IPv6), or is `localhost`: any other would be the first part of a
Docker Hub name."""
_PART = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
REPOSITORY_PATTERN = rf"^{_HOST}(/{_PART})+$"
"""host[:port]/path, with the host required: https://github.com/distribution/reference, "name"."""
IMAGE_PATTERN = rf"^{_HOST}(/{_PART})+(:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(@sha256:[0-9a-f]{{64}})?$"
URI_PATTERN = r"^[a-z][a-z0-9+.-]*://[^\s]+$"
_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
"""RFC 1123 subdomain: the name of a Secret."""
API_VERSION_PATTERN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/v[0-9]+((alpha|beta)[0-9]+)?$"
KIND_PATTERN = r"^[A-Z][A-Za-z0-9]*$"
_PEM_PATTERN = r"^-----BEGIN PUBLIC KEY-----\n[A-Za-z0-9+/=\n]+-----END PUBLIC KEY-----\n?$"
_LOCAL = "slipway.local is this machine's model store: no registry has that name"

SecretName = Annotated[str, Field(pattern=_SUBDOMAIN, max_length=253)]


class PushRegistry(Base):
    """The registry to which built images are pushed."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(("!self.repository.startsWith('slipway.local/')", _LOCAL)),
    }
    repository: Annotated[
        str,
        Field(
            pattern=REPOSITORY_PATTERN,
            max_length=255,
            description="host[:port]/path without a tag. The tag of a version is its name; a name longer than"
            " 118 characters is cut, and a hash is added.",
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
    """The ready versions that are kept."""

    keep: Annotated[
        int,
        Field(
            ge=1,
            le=1000,
            description="Number of the newest ready versions that are kept; versions in use are kept in any"
            " case.",
        ),
    ]


class Signing(Base):
    """The key that signs pushed images."""

    secret_name: Annotated[
        SecretName,
        Field(
            description="A Secret of this namespace: cosign.key is a PKCS#8 PEM private key (ECDSA P-256), "
            "cosign.password its password, if it has one."
        ),
    ]


class Verification(Base):
    """The signatures that pulled images need."""

    keys: Annotated[
        list[Annotated[str, Field(pattern=_PEM_PATTERN, max_length=4096)]],
        Field(
            min_length=1,
            max_length=16,
            description="PEM public keys, one of which must have signed an image source.",
            json_schema_extra={"x-kubernetes-list-type": "set"},
        ),
    ]


class ModelSpec(Base):
    """Policies for all versions of a model; those in effect when a build begins apply to it."""

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
    registry: PushRegistry | None = None
    compression: Annotated[
        Literal["none", "zstd"], Field(description="Compression of built layers; zstd suits slow links.")
    ] = "none"
    retention: Retention | None = None
    signing: Signing | None = None
    verification: Verification | None = None


class LatestVersion(Base):
    """The newest ready version."""

    name: str
    image: str


class ModelStatus(Base):
    """The versions of the model; `latestVersion` is ready, never building or failed."""

    latest_version: LatestVersion | None = None
    versions: int = 0
    observed_generation: int = 0
    conditions: Conditions = []


class JobSource(Base):
    """A training job of the same namespace that has succeeded."""

    api_version: Annotated[
        str,
        Field(
            pattern=API_VERSION_PATTERN,
            max_length=317,
            description="Its API group and version. Only the group counts: a job is the same in each"
            " version.",
        ),
    ] = "batch/v1"
    kind: Annotated[
        str,
        Field(
            pattern=KIND_PATTERN,
            max_length=63,
            description="Of a kind that the controllers know, such as PyTorchJob, RayJob or Workflow.",
        ),
    ] = "Job"
    name: Annotated[str, Field(min_length=1)]
    uid: Annotated[
        str, Field(description="uid of the job; a later job with the same name is another source.")
    ] = ""


class VersionSource(Base):
    """The origin of the files: exactly one."""

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
            (
                "!has(self.uri) || !self.uri.matches('^(local|asynclocal)://')",
                "uri must name files of this machine by file://",
            ),
            ("!has(self.image) || !self.image.startsWith('slipway.local/')", _LOCAL),
        ),
    }
    job: JobSource | None = None
    path: (
        Annotated[
            str,
            Field(max_length=4096, description="An absolute directory on the node that builds the image."),
        ]
        | None
    ) = None
    uri: (
        Annotated[
            str,
            Field(
                pattern=URI_PATTERN,
                max_length=2048,
                description="A directory in a storage that fsspec supports: s3://, gs://, abfs://, file://"
                " and others.",
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
        str, Field(description="Runtime family; by default that in the output's slipway.json.")
    ] = ""
    source: VersionSource
    created_by: Annotated[str, Field(description="Who created it, for people.")] = ""


class FileStatus(Base):
    """One file of the image."""

    path: str
    digest: str
    size: int


class Lineage(Base):
    """The source that was captured."""

    api_version: Annotated[
        str,
        Field(
            description="API version of the job; empty for other sources, and for jobs (batch/v1) that"
            " earlier releases captured."
        ),
    ] = ""
    kind: Annotated[str, Field(description="The kind of the job, or Path, URI or Image.")] = ""
    name: str = ""
    uid: str = ""
    source_revision: str = ""
    path: str = ""
    uri: str = ""
    image: Annotated[
        str, Field(description="The requested reference, with the digest that it resolved to.")
    ] = ""


class FileWithCode(Base):
    """One file that runs code in the program that loads it."""

    path: str
    format: Annotated[
        str,
        Field(
            description="Pickle, PyTorch, Python and others. A file that is Unrecognized, or an Archive, has"
            " no known format, so that it may have code."
        ),
    ]


class ImageContents(Base):
    """The formats of the image's files, by their names and bytes."""

    contains_code: Annotated[
        bool,
        Field(
            description="False if every file is of a format that holds data alone: safetensors, ONNX, skops,"
            " NumPy, SentencePiece, text."
        ),
    ]
    files: Annotated[
        list[FileWithCode], Field(json_schema_extra=ATOMIC, description="The files with code.")
    ] = []


class ModelVersionStatus(Base):
    """The phase of the version, and the image that was built."""

    phase: Phase = "Pending"
    attempts: Annotated[int, Field(description="Failed attempts so far.")] = 0
    image: Annotated[str, Field(description="Repository and digest: `repository@sha256:...`.")] = ""
    digest: str = ""
    size: Annotated[int, Field(description="Total bytes of the files.")] = 0
    framework: str = ""
    metrics: Annotated[
        dict[str, float], Field(json_schema_extra={"additionalProperties": {"type": "number"}})
    ] = {}
    files: Annotated[
        list[FileStatus],
        Field(
            json_schema_extra=ATOMIC,
            description="All files; a version with more than an object of the API can list has Failed.",
        ),
    ] = []
    files_digest: Annotated[
        str,
        Field(
            description="Digest of the list of all files, `files.json`: a runtime loads only files that the"
            " list names, with the digests that it names."
        ),
    ] = ""
    contents: ImageContents | None = None
    signed_by: Annotated[
        list[str],
        Field(
            json_schema_extra={"x-kubernetes-list-type": "set"},
            description="Fingerprints of the known public keys that have signed the image: sha256 of the key"
            " in DER. Known are the Model's and those of policies.",
        ),
    ] = []
    lineage: Lineage | None = None
    finish_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    observed_generation: int = 0
    conditions: Conditions = []
