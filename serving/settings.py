"""Every default in one place, each with its unit and its reason.

Frozen values; the edges (CLI, environment) parse and override them. Nothing here reads the environment.
"""

from dataclasses import dataclass, field

GROUP = "slipway.dev"
VERSION = "v1alpha1"
FIELD_MANAGER_PREFIX = "slipway-"


@dataclass(frozen=True)
class ApiSettings:
    """The embedded API server."""

    port: int = 7443
    """TCP port; 0 picks a free one."""
    host: str = "127.0.0.1"
    """Loopback only: creating a Job means running a command. Other addresses only when asked for."""
    watch_history: int = 20_000
    """Events kept for watchers; older resourceVersions get 410. About 20 MB at 1 KiB an object."""
    watch_queue: int = 4_000
    """Events buffered per watcher before a slow one is cut off (it lists again)."""
    bookmark_seconds: float = 30.0
    """Between bookmarks; kube-apiserver's minute is long for laptops that sleep."""
    page_limit: int = 10_000
    """Most objects in one list page."""
    max_body_bytes: int = 3 * 1024 * 1024
    """kube-apiserver's limit for a request body."""
    certificate_days: int = 365
    """Lifetime of the server's certificate."""
    renew_before_days: int = 30
    """The certificate is replaced while it still has this long."""
    event_ttl_seconds: float = 3600.0
    """Events live an hour, as on kube-apiserver."""
    sweep_seconds: float = 60.0
    """Between looks for old Events."""
    collect_retry_seconds: float = 1.0
    """After garbage could not be collected because the disk refused."""
    watch_seconds: float = 3600.0
    """Longest watch; kube-apiserver ends them after 30 to 60 minutes."""
    stalled_seconds: float = 30.0
    """A watcher that reads nothing for this long is cut off."""
    keep_alive_seconds: int = 90
    """Idle connections; longer than a minute, so that clients who look each minute reuse theirs."""
    stop_seconds: int = 2
    """Longest wait for requests in flight when the server stops; watchers are ended at once."""
    renew_check_seconds: float = 3600.0
    """Between looks at the certificate's age."""


@dataclass(frozen=True)
class NodeSettings:
    """The node agent."""

    name: str = "local"
    run_as: str = "nobody"
    """User of replicas and Jobs when the agent runs as root: it can read neither token nor data directory."""
    pod_network: str = "127.77"
    """First two octets of Pod addresses; each Pod has its own 127.77.y.z."""
    log_bytes: int = 10 * 1024 * 1024
    """A container's log file is rotated at this size; one older file is kept (kubelet: 10 MiB, 5 files)."""
    backoff_base_seconds: float = 1.0
    """First restart delay; doubles. kubelet's 10 s is long for one machine."""
    backoff_cap_seconds: float = 300.0
    """Longest restart delay, as kubelet's."""
    backoff_reset_seconds: float = 600.0
    """A container that ran this long starts over with the first delay, as kubelet's."""
    blocked_cap_seconds: float = 30.0
    """Longest wait before trying again what could not be started (a model not in the store, a missing Secret)."""
    grace_seconds: float = 30.0
    """terminationGracePeriodSeconds where the Pod does not say, as Kubernetes."""
    drain_seconds: float = 1.5
    """Between leaving the EndpointSlice and SIGTERM: the time for every gateway to stop sending."""
    metrics_port: int = 0
    """TCP port of `GET /metrics` on 127.0.0.1; 0 picks a free one. `DIR/run/metrics/node.json` says which."""
    finished_pods_kept: int = 100
    """Finished Pods without an owner that are kept before the oldest go."""


@dataclass(frozen=True)
class GatewaySettings:
    """The gateway and its Envoy."""

    port: int = 8080
    """TCP port of the public listener; 0 picks a free one."""
    host: str = "127.0.0.1"
    domain: str = "slipway.local"
    """Hosts are NAME.NAMESPACE.<domain>."""
    concurrency: int = 1
    """Envoy worker threads on one machine: one core moves ~20,000 small requests/s and leaves the rest to models."""
    max_requests: int = 40_000
    """Circuit breakers; Envoy's 1024 fails streams long before a model is full (llm-d uses 40000)."""
    connect_timeout_seconds: float = 1.0
    stream_idle_seconds: float = 300.0
    """A stream without a byte for this long is cut, and headers that are not complete by then; there is no total timeout
    (Envoy's 15 s kills generations)."""
    drain_seconds: float = 30.0
    """Longest wait for requests in flight when the gateway stops."""
    upstream_idle_seconds: float = 4.0
    """An idle connection to a replica is closed by us: uvicorn closes after 5 s, and a request sent in that moment fails."""
    retries: int = 2
    """Attempts on another replica when the first never began (connect failure, refused stream)."""
    retry_budget_percent: float = 20.0
    """Retries at once, as a share of requests in flight: a sick service must not get twice its load (Envoy's default)."""
    retry_min_concurrency: int = 10
    """Retries at once that are always allowed; Envoy's 3 is less than one burst onto a replica that has just gone."""
    retry_after_seconds: int = 1
    """Retry-After of a service without a ready replica; replicas here start within seconds."""
    lease_seconds: int = 15
    """A gateway whose Lease is older is not waited for."""
    lease_renew_seconds: float = 5.0
    """Three tries within the Lease."""
    envoy_check_seconds: float = 0.2
    """Between looks at whether Envoy lives; a killed one is back within a second."""
    metrics_port: int = 0
    """TCP port of `GET /metrics` on 127.0.0.1; 0 picks a free one. `DIR/run/metrics/gateway.json` says which."""


@dataclass(frozen=True)
class ActivatorSettings:
    """What holds the requests of predictors at zero."""

    held_per_backend: int = 2_000
    """Requests that wait for one backend: a burst of 1,000 fits twice."""
    held: int = 10_000
    """Requests that wait in all: each is an open file here and two in Envoy."""
    bytes_per_backend: int = 256 * 1024 * 1024
    """Bodies that wait for one backend: 1,000 images of 224 x 224 pixels."""
    bytes: int = 512 * 1024 * 1024
    """Bodies that wait in all: what a laptop can spare."""
    body_bytes: int = 64 * 1024 * 1024
    """One request, as the runtimes accept."""
    deadline_seconds: float = 240.0
    """Longest wait for a replica, not for its work; below the gateway's `stream_idle_seconds`, so that the client gets a
    reason."""
    retry_after_seconds: int = 5
    """Retry-After of what was held in vain, or could not be: about a start."""
    permits: int = 32
    """Requests that one replica works on before its next is released: it never idles between two, and what it is not
    asked goes to the replica that is ready next."""
    attempts: int = 3
    """Of a request that a replica took and did not answer; one that could not be handed over is tried until its
    deadline."""
    retry_seconds: float = 0.05
    """Between attempts when no other replica is there."""
    idle_seconds: float = 0.5
    """An idle connection to a replica is closed by us after this, or twice this: within a burst none is idle for so long,
    and a replica that stops waits until nobody has one."""
    report_seconds: float = 1.0
    """Between reports of how many wait; that there are any, or none, is reported at once."""
    report_retry_seconds: float = 0.1
    """After a report that the API did not take; it restarts within a second."""
    metrics_port: int = 0
    """TCP port of `GET /metrics` on 127.0.0.1; 0 picks a free one. `DIR/run/metrics/activator.json` says which."""
    backlog: int = 4_096
    """Connections that wait for accept on one socket: a burst arrives faster than it is accepted."""


@dataclass(frozen=True)
class ControllerSettings:
    """All controllers."""

    workers: int = 8
    """Keys reconciled at once by one controller."""
    backoff_base_seconds: float = 0.05
    backoff_cap_seconds: float = 30.0
    probe_timeout_seconds: float = 5.0
    """One probe of a new revision through the gateway."""
    probe_retry_seconds: float = 1.0
    """Between probes of a revision that did not answer 200: long beside a probe, short beside a roll-out."""
    gather_seconds: float = 0.04
    """From a change of an Inference's children to the look at it: one burst of them is one look. Its own changes do
    not wait."""
    status_settle_seconds: float = 1.0
    """A status that only says that things are on their way is written once it has lasted this long: quick changes
    pass without one, and people who watch a slow one see it move. At 0.25 s, 100 Inferences at once wrote two such
    statuses each; at 1 s, one."""
    builds: int = 1
    """Model images built at once; one already runs at the speed of sha256."""
    transfers: int = 3
    """ModelVersions at once whose files are fetched or pushed: what one waits for is the network, not this machine."""
    build_attempts: int = 30
    """Tries of a ModelVersion before it has failed for good: with the delays below two hours, longer than a
    registry's restart or the clearing of a full disk."""
    build_backoff_base_seconds: float = 2.0
    """First delay after a failed try; doubles."""
    build_backoff_cap_seconds: float = 300.0
    """Longest delay between tries, as of a Pod that crashes."""
    progress_seconds: float = 5.0
    """Between two statuses that only say how far a build or transfer is: people look, and each is a write."""
    release_seconds: float = 2.0
    """Between looks at whether a deleted version's image is still pinned; pins are files, which nobody announces."""
    prometheus: str = ""
    """Base URL of the Prometheus of PromQL metrics without a `serverAddress`, and of the load before the autoscaler knew a
    target; empty: there is none. `slipway up --prometheus`, or `SLIPWAY_PROMETHEUS`."""
    warm_share: float = 0.5
    """Of the available memory: an image that takes more is not read into the page cache ahead of its replicas, as it
    would drive out what serves."""


@dataclass(frozen=True)
class RegistrySettings:
    """The client of image registries."""

    parallel: int = 4
    """Blobs moved at once: one connection seldom fills a fast link, and each holds `chunk_bytes` while it uploads."""
    chunk_bytes: int = 12 * 1024 * 1024
    """One PATCH of an upload, kept in memory until the registry has it. Larger than the 10 MiB parts of registries on
    object stores, which read a shorter last part back; four of them are 48 MiB."""
    piece_bytes: int = 1024 * 1024
    """Handed on at a time: large beside what handing on costs, small beside the chunk."""
    connect_seconds: float = 10.0
    """Until a connection stands, TLS included."""
    stall_seconds: float = 30.0
    """A peer that moves less than `slowest_bytes_per_second` for this long, or does not answer, is given up."""
    slowest_bytes_per_second: int = 8 * 1024
    """A gigabyte would take 36 hours: nobody waits for that, and a trickle must not hold a connection for ever."""
    attempts: int = 6
    """Tries in a row without progress; with the delays below about 15 s of a registry that is away."""
    backoff_base_seconds: float = 0.5
    """First delay between tries; doubles, and is drawn between half and all of it."""
    backoff_cap_seconds: float = 15.0
    retry_after_cap_seconds: float = 60.0
    """A longer Retry-After is the caller's to wait for: it gives a worker away."""
    helper_seconds: float = 30.0
    """A credential helper may ask a keychain or a cloud, not a person."""
    token_seconds: float = 60.0
    """Lifetime of a token whose server does not say (distribution's token specification)."""


@dataclass(frozen=True)
class StoreSettings:
    """The model store."""

    max_bytes: int = 64 * 1024**3
    """Beyond this the least recently used images go, of those that can be fetched again and that nobody uses: an eighth
    of a laptop's disk. What was built here and never pushed stays whatever its size, as it is nowhere else."""


@dataclass(frozen=True)
class RuntimeSettings:
    """The model servers we ship."""

    port: int = 8080
    """TCP port where `PORT` does not say."""
    max_body_bytes: int = 64 * 1024 * 1024
    """An inference request, after decompression: 130,000 rows of 64 doubles, far above any sensible batch."""
    compress_from_bytes: int = 1024
    """Smaller responses go as they are, even to clients that accept gzip: it would cost more than it saves."""
    inline_seconds: float = 0.002
    """A prediction expected to take less runs on the event loop: handing it to a thread cost 0.5 ms at the median
    here, and health checks can wait this long."""
    waiting: int = 2048
    """Requests that wait for a prediction where they are gathered: as many as connections that wait for accept, and more
    than a replica that keeps up ever has. The next is told to ask again."""
    retry_after_seconds: int = 1
    """Retry-After of that one: long beside a prediction."""
    linger_seconds: float = 0.5
    """After SIGTERM: new connections are still served for this long, each response closing its connection, so that
    a gateway that has not heard yet gets answers and not resets."""
    idle_seconds: float = 5.0
    """Longest wait after that for idle connections to be closed by who opened them: a gateway closes one at once when it
    hears that the replica goes, and after `upstream_idle_seconds` in any case."""
    grace_seconds: float = 24.0
    """Longest wait for requests in flight after that; all three together are below the Pod's 30 s."""
    backlog: int = 2048
    """Connections that wait for accept, as uvicorn's."""
    map_from_bytes: int = 1024 * 1024
    """Arrays of a model this large are views of its file, which all replicas share; smaller ones are copied, as each
    view holds a descriptor and a mapping of its own."""
    map_at_most: int = 256
    """Arrays of one model that are views; a process commonly may have 1,024 descriptors, most of them for clients."""


@dataclass(frozen=True)
class SupervisorSettings:
    """`slipway up`."""

    restart_seconds: float = 0.2
    """Delay before a killed component is started again; within the second that DESIGN.md promises."""
    restart_cap_seconds: float = 5.0
    """Longest delay for one that keeps dying; it doubles up to here."""
    healthy_seconds: float = 10.0
    """A component that ran this long starts over with the first delay."""
    poll_seconds: float = 0.1
    """Between looks at the components; an adopted one is not our child, so nothing tells us of its end."""
    ready_seconds: float = 60.0
    """Longest wait until the API and the gateway answer; ten times what a slow laptop needs."""
    log_bytes: int = 10 * 1024 * 1024
    """A component's log is put aside as `.log.1` when it is started with one larger than this."""
    stop_seconds: float = 40.0
    """Longest wait for a component to stop before SIGKILL: the drain above, and some."""


@dataclass(frozen=True)
class Settings:
    """All of them."""

    api: ApiSettings = field(default_factory=ApiSettings)
    node: NodeSettings = field(default_factory=NodeSettings)
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    activator: ActivatorSettings = field(default_factory=ActivatorSettings)
    controllers: ControllerSettings = field(default_factory=ControllerSettings)
    supervisor: SupervisorSettings = field(default_factory=SupervisorSettings)
    registry: RegistrySettings = field(default_factory=RegistrySettings)
    store: StoreSettings = field(default_factory=StoreSettings)


DEFAULTS = Settings()
