"""The layout of the data directory: its folders and main files. This module writes no file."""

import os
from dataclasses import dataclass
from pathlib import Path

POD_RECORD = "pod.json"


@dataclass(frozen=True)
class DataDir:
    """The directory with all data of one machine. One `up` at a time owns it."""

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
        """Return the directory of `--data-dir`, or the default."""
        return cls.default() if path is None else cls(path.expanduser().absolute())

    @property
    def config(self) -> Path:
        """The configuration file of this directory; it need not exist."""
        return self.root / "config.yaml"

    @property
    def configuration(self) -> Path:
        """The configuration that the running `up` has validated, for its components."""
        return self.root / "configuration.json"

    @property
    def is_of_up(self) -> bool:
        """Whether `slipway up` made this directory: then the gateway and the node are on this machine."""
        return self.configuration.exists()

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
        """Lock file of the `up` that owns this directory."""
        return self.root / "up.lock"

    @property
    def run(self) -> Path:
        """Files of the running components: process identities, locks, sockets and ports."""
        return self.root / "run"

    def identity(self, component: str) -> Path:
        """Process identity of a component."""
        return self.run / f"{component}.json"

    def liveness(self, component: str) -> Path:
        """Unix socket on which a component answers while its event loop runs."""
        return self.run / f"{component}.sock"

    @property
    def ports(self) -> Path:
        """The latest ports, which the next `up` uses again."""
        return self.run / "ports.json"

    def metrics(self, component: str) -> Path:
        """File with the port of a component's metrics page."""
        return self.pages / f"{component}.json"

    @property
    def pages(self) -> Path:
        """Directory of the files of `metrics`, which `serving.metrics.pages` reads."""
        return self.run / "metrics"

    @property
    def prometheus_targets(self) -> Path:
        """Targets for a Prometheus (`file_sd_configs`), while `up` runs."""
        return self.root / "prometheus-targets.json"

    @property
    def logs(self) -> Path:
        """An append-only file per component."""
        return self.root / "logs"

    @property
    def pods(self) -> Path:
        """A directory per Pod uid: volumes, logs, exit records."""
        return self.root / "pods"

    @property
    def zygotes(self) -> Path:
        """Sockets, identities and logs of zygotes, from which replicas are forked."""
        return self.root / "zygotes"

    @property
    def models(self) -> Path:
        """The model store: blobs/sha256/<hex>, trees/<hex>."""
        return self.root / "models"

    @property
    def engines(self) -> Path:
        """Users' manifests of engines."""
        return self.root / "engines"

    @property
    def job_kinds(self) -> Path:
        """Users' manifests of kinds of training jobs."""
        return self.root / "job-kinds"

    @property
    def downloads(self) -> Path:
        """Downloads from storages until they are in the model store, a directory per ModelVersion uid."""
        return self.root / "downloads"

    @property
    def imports(self) -> Path:
        """Copies of `slipway model import` until they are built, a directory per namespace and version."""
        return self.root / "imports"

    @property
    def gateway(self) -> Path:
        """Envoy's files, its admin socket and the private probe socket."""
        return self.root / "gateway"

    @property
    def earlier_answers(self) -> Path:
        """The answers of clusters before they were removed from Envoy, for a gateway that adopts it."""
        return self.gateway / "earlier-answers.json"

    @property
    def admin_socket(self) -> Path:
        """Unix socket of Envoy's admin interface."""
        return self.gateway / "admin.sock"

    @property
    def probe_socket(self) -> Path:
        """Unix socket of the gateway's private listener, where /NAMESPACE/BACKEND/... reaches one backend."""
        return self.gateway / "probe.sock"

    @property
    def activator(self) -> Path:
        """The activator's sockets, one per backend that may be scaled to zero."""
        return self.root / "activator"

    @property
    def autoscaler(self) -> Path:
        """The autoscaler's state of each target."""
        return self.root / "autoscaler"

    @property
    def user_ids(self) -> Path:
        """The user ids that Pods and load generators have had: see `serving.system.isolation.user_ids`."""
        return self.run / "user_ids"

    @property
    def pod_sockets(self) -> Path:
        """The Unix sockets of Pods, `ADDRESS:PORT` each, where only this user may enter."""
        return self.root / "sockets"

    def pod_record(self, pod_uid: str) -> Path:
        """The node's record of a Pod; its `user` is the Pod's user id, null for the node's own."""
        return self.pods / pod_uid / POD_RECORD

    def pod_volume(self, pod_uid: str, volume: str) -> Path:
        """An emptyDir of a Pod."""
        return self.pods / pod_uid / "volumes" / volume

    def pod_log(self, pod_uid: str, container: str, restart: int) -> Path:
        """Log of the n-th run of a container, from 0; its rotated older part is `.1` beside it."""
        return self.pods / pod_uid / "logs" / container / f"{restart}.log"
