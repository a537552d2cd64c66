"""Where everything of one machine lies: every path below the data directory has its name here, and nowhere else.

Names only: nothing here makes, reads or removes a file.
"""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DataDir:
    """Where everything of one machine lies. One `up` at a time owns it."""

    root: Path

    @classmethod
    def default(cls) -> "DataDir":
        """`$SLIPWAY_DATA_DIR`, else `$XDG_DATA_HOME/slipway`, else `~/.local/share/slipway`."""
        if explicit := os.environ.get("SLIPWAY_DATA_DIR"):
            return cls(Path(explicit).absolute())
        base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
        return cls(Path(base) / "slipway")

    @classmethod
    def named(cls, path: Path | None) -> "DataDir":
        """Return the directory of a `--data-dir`, the default one without."""
        return cls.default() if path is None else cls(path.expanduser().absolute())

    @property
    def config(self) -> Path:
        """The configuration file of this directory; it need not exist."""
        return self.root / "config.yaml"

    @property
    def configuration(self) -> Path:
        """The configuration that the running `up` validated, which its components read."""
        return self.root / "configuration.json"

    @property
    def kubeconfig(self) -> Path:
        """Server address, CA and token; mode 0600."""
        return self.root / "kubeconfig"

    @property
    def tls(self) -> Path:
        return self.root / "tls"

    @property
    def token(self) -> Path:
        """The bearer token; mode 0600."""
        return self.root / "token"

    @property
    def database(self) -> Path:
        return self.root / "state.db"

    @property
    def lock(self) -> Path:
        """Held by the `up` that owns this directory."""
        return self.root / "up.lock"

    @property
    def run(self) -> Path:
        """Process identities of components, one JSON file each."""
        return self.root / "run"

    def identity(self, component: str) -> Path:
        """Who runs as this component."""
        return self.run / f"{component}.json"

    @property
    def ports(self) -> Path:
        """The ports that were used last, so that the next `up` uses them again."""
        return self.run / "ports.json"

    def metrics(self, component: str) -> Path:
        """The port of a component's metrics."""
        return self.pages / f"{component}.json"

    @property
    def pages(self) -> Path:
        """Of all components' metrics the ports; `serving.metrics.pages` reads them."""
        return self.run / "metrics"

    @property
    def prometheus_targets(self) -> Path:
        """The same for a Prometheus (`file_sd_configs`), while something runs."""
        return self.root / "prometheus-targets.json"

    @property
    def logs(self) -> Path:
        """One append-only file per component."""
        return self.root / "logs"

    @property
    def pods(self) -> Path:
        """One directory per Pod uid: volumes, logs, exit records."""
        return self.root / "pods"

    @property
    def zygotes(self) -> Path:
        """Sockets, identities and logs of the processes that replicas are forked from."""
        return self.root / "zygotes"

    @property
    def models(self) -> Path:
        """The model store: blobs/sha256/<hex>, trees/<hex>."""
        return self.root / "models"

    @property
    def downloads(self) -> Path:
        """What is fetched from storages, one directory per ModelVersion uid, until it is in the model store."""
        return self.root / "downloads"

    @property
    def imports(self) -> Path:
        """Copies that `slipway model import` has made, one directory per namespace and version, until they
        are built.
        """
        return self.root / "imports"

    @property
    def gateway(self) -> Path:
        """Envoy's files, its admin socket and the private probe socket."""
        return self.root / "gateway"

    @property
    def probe_socket(self) -> Path:
        """Unix socket of the gateway's private listener: /NAMESPACE/BACKEND/... reaches one backend."""
        return self.gateway / "probe.sock"

    @property
    def activator(self) -> Path:
        """The activator's sockets, one per backend that may be at zero."""
        return self.root / "activator"

    @property
    def autoscaler(self) -> Path:
        """What the autoscaler has learned of each target."""
        return self.root / "autoscaler"

    def pod_volume(self, pod_uid: str, volume: str) -> Path:
        """Where an emptyDir of a Pod lies."""
        return self.pods / pod_uid / "volumes" / volume

    def pod_log(self, pod_uid: str, container: str, restart: int) -> Path:
        """Log of the n-th run of a container (0 is the first); `.1` beside it is the rotated older part."""
        return self.pods / pod_uid / "logs" / container / f"{restart}.log"
