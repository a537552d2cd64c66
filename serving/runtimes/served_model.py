"""The served model: its name, version and readiness, and its metadata in the Open Inference Protocol."""

from dataclasses import dataclass, field
from typing import Any

from serving import errors
from serving.images.documents.output_manifest import Input
from serving.runtimes.model import LoadedModel, ModelOutput
from serving.runtimes.startup import StartupReport

PROTOCOL_VERSION = "2"
"""Version of the Open Inference Protocol."""


@dataclass
class ServedModel:
    """The served model and the state of its server."""

    platform: str
    name: str
    version: str
    startup: StartupReport
    draining: bool = False
    """Set once, when the process begins to stop."""
    in_flight: int = field(default=0)
    """Requests that are being answered."""

    @property
    def server_name(self) -> str:
        """Name of the server in its metadata."""
        return f"slipway-{self.platform}"

    def check(self, name: str, version: str | None) -> None:
        """Check the model that a request names; the version is None where it names none.

        Raises:
            errors.NotFound: it is another model or version.
        """
        if name != self.name:
            raise errors.NotFound(404, "NotFound", f"model: must be {self.name!r}, got {name!r}")
        if version is not None and version != self.version:
            raise errors.NotFound(404, "NotFound", f"version: must be {self.version!r}, got {version!r}")

    def metadata(self, model: LoadedModel) -> dict[str, Any]:
        """Return the protocol's metadata of the model."""
        return {
            "name": self.name,
            "versions": [self.version],
            "platform": self.platform,
            "inputs": [_tensor_metadata(tensor) for tensor in model.inputs],
            "outputs": [_tensor_metadata(output) for output in model.outputs],
        }


def _tensor_metadata(tensor: Input | ModelOutput) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
