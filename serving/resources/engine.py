"""Engine: how an inference server that Slipway does not ship is started, probed and measured, as data."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from serving.resources.base import Base, Manifest
from serving.resources.inference import OWN_FRAMEWORKS, SHIPPED_ENGINES, USERS_PREFIX, Framework

FIELDS = (
    "batching.batchSize",
    "resources.cpu",
    "resources.memory",
    "resources.gpu.memory",
    "resources.gpu.cores",
)
"""Fields of a predictor that an engine may take as arguments (`Engine.fields`)."""

_FLAG = re.compile(r"--?[A-Za-z0-9][-A-Za-z0-9_.]*")
_SERIES = re.compile(r'[a-zA-Z_:][a-zA-Z0-9_:]*(\{[a-zA-Z_]\w*="[^"\\]*"\})?')

Path_ = Annotated[str, Field(pattern=r"^/[^\s?#]*$", max_length=256)]
Series = Annotated[list[str], Field(max_length=8)]


class EngineSeries(Base):
    """Names of series on the metrics page of an engine; a field has several if releases of the engine differ.

    `name{label="value"}` is only the series with this label, a plain name all series of the name. The values
    of a field's series are added up, except for `cache`, of which the highest counts.
    """

    waiting: Series = []
    """Requests that wait in the engine."""
    running: Series = []
    """Requests that the engine works on."""
    waiting_tokens: Series = []
    """Prompt tokens of waiting requests."""
    cache: Series = []
    """Share of the KV cache in use, 0 to 1."""
    prompt_tokens: Series = []
    """Prompt tokens since the engine started."""
    generated_tokens: Series = []
    """Generated tokens since the engine started."""

    @field_validator("*")
    @classmethod
    def _is_series(cls, names: list[str]) -> list[str]:
        for name in names:
            if not _SERIES.fullmatch(name):
                raise ValueError(f"{name!r} is no metric name, alone or with one label in braces")
        return names


class Engine(Manifest):
    """One engine, which `Inference.spec.framework` names."""

    name: Framework
    image: Annotated[str, Field(min_length=1, max_length=512)]
    command: list[str] = []
    args: list[str] = []
    """Arguments. `$(NAME)` is a variable of the container, as in Kubernetes."""
    env: dict[str, str] = {}
    security_context: dict[str, Any] = {}
    """The securityContext of the container: the author of the manifest knows the user and the rights that the
    image needs."""
    fields: dict[str, str] = {}
    """The option of each field in `FIELDS` that becomes an argument, such as `batching.batchSize:
    --max-num-seqs`. The argument is added where a predictor sets the field."""
    port: Annotated[int, Field(ge=1, le=65535)] = 8080
    calls_itself: bool = False
    """Whether the server connects to its own port, for example to warm up. If so, the port has no restriction
    to the gateway (`names.GATEWAY_PORT_ANNOTATION`), which would refuse these connections too."""
    readiness: Path_
    liveness: Path_
    start_seconds: Annotated[int, Field(ge=1, le=86_400)] = 1800
    """Longest time until the server is ready: loading a large model takes minutes."""
    token_usage: Literal["none", "final", "continuous"] = "none"
    """As `Route.spec.tokenUsage`."""
    serves: list[str] = []
    """Frameworks whose ModelVersions it serves, beside those of its own name."""
    metrics: EngineSeries = EngineSeries()
    metrics_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port of the metrics page; None: `port`."""
    tunables: list[str] = []
    """Options that are worth tuning, such as `--block-size`. The condition SpaceValid of an experiment names
    others that it tunes."""

    @field_validator("name")
    @classmethod
    def _is_name_of_engine(cls, name: str) -> str:
        if name in OWN_FRAMEWORKS:
            raise ValueError(f"{name} is a framework of Slipway's own")
        if name not in SHIPPED_ENGINES and not name.startswith(USERS_PREFIX):
            raise ValueError(f"the name of an engine of your own begins with {USERS_PREFIX}")
        return name

    @field_validator("fields")
    @classmethod
    def _are_fields(cls, fields: dict[str, str]) -> dict[str, str]:
        for field, flag in fields.items():
            if field not in FIELDS:
                raise ValueError(
                    f"{field} is no field that may become an argument; those are {', '.join(FIELDS)}"
                )
            if not _FLAG.fullmatch(flag):
                raise ValueError(f"{field}: {flag!r} is no option such as --max-num-seqs")
        return fields

    @field_validator("tunables")
    @classmethod
    def _are_flags(cls, tunables: list[str]) -> list[str]:
        for flag in tunables:
            if not _FLAG.fullmatch(flag):
                raise ValueError(f"{flag!r} is no option such as --max-num-seqs")
        return tunables


def unknown(framework: str, engines: Mapping[str, Engine]) -> str:
    """Return why this framework cannot be served, or an empty text."""
    if framework in OWN_FRAMEWORKS or framework in engines:
        return ""
    known = ", ".join(sorted({*OWN_FRAMEWORKS, *engines}))
    return f"spec.framework: must be one of {known}, got {framework}"
