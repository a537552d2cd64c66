"""The settings of Slipway: a dataclass for each section, and the type, default and reason of each setting.

The types have the units (`serving.units`). The dataclasses are immutable: `serving.cli.config` makes them
from the configuration file, environment variables and options. A setting without a value there has its
default.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from serving.units import (
    Bytes,
    Count,
    CountOrZero,
    Days,
    Interval,
    LeaseSeconds,
    ModuleBytes,
    Percent,
    Pids,
    Port,
    Ratio,
    Seconds,
    Share,
    WholeSeconds,
)

BACKLOG = 2048
"""Connections that wait for accept on a listener, as uvicorn's."""


class Section:
    """A section of the configuration file: a frozen dataclass whose fields are settings or sections."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "allow_inf_nan": False}
    """How pydantic validates the section: unknown names, NaN and infinity are refused."""


@dataclass(frozen=True)
class ApiSettings(Section):
    """The embedded API server."""

    port: Port = 7443
    """Port of the API; 0 picks a free one."""
    host: str = "127.0.0.1"
    """Loopback only: whoever creates a Job runs a command. Other addresses only when asked for."""
    watch_history: Count = 20_000
    """Events kept for watchers; an older resourceVersion gets 410. About 20 MB at 1 KiB an object."""
    watch_history_bytes: Bytes = 64 * 1024 * 1024
    """Bytes of these events' objects in JSON: large objects would take gigabytes."""
    watch_queue: Count = 4_000
    """Most changes that a watcher may be behind; a slower one is cut off, and lists again."""
    bookmark_seconds: Interval = 30.0
    """Between bookmarks; kube-apiserver's minute is long for laptops that sleep."""
    page_limit: Count = 10_000
    """Most objects in a page of a list."""
    max_body_bytes: Bytes = 3 * 1024 * 1024
    """Largest body of a request; kube-apiserver's limit."""
    certificate_days: Days = 365
    """Lifetime of the server's certificate: a year, as kubeadm's certificates."""
    renew_before_days: Days = 30
    """Remaining lifetime at which the certificate is replaced."""
    event_ttl_seconds: Interval = 3600.0
    """Lifetime of Events, an hour as on kube-apiserver."""
    watch_seconds: Interval = 3600.0
    """Longest watch; kube-apiserver ends a watch after 30 to 60 minutes."""
    stalled_seconds: Interval = 30.0
    """A watcher that reads nothing for this long is cut off."""
    keep_alive_seconds: WholeSeconds = 90
    """Idle time after which a connection is closed: above a minute, so that clients that poll each minute
    reuse theirs."""
    stop_seconds: WholeSeconds = 2
    """Longest wait for requests in flight when the server stops; watches end at once."""
    renew_check_seconds: Interval = 3600.0
    """Between checks of the certificate's age."""


@dataclass(frozen=True)
class NodeSettings(Section):
    """The node agent."""

    name: str = "local"
    """Name of the Node object. Pods that are bound to another name, such as an earlier one, are deleted."""
    pod_network: str = "127.77"
    """First two octets of Pod addresses; each Pod has its own 127.77.y.z."""
    log_bytes: Bytes = 10 * 1024 * 1024
    """Size at which a container's log is rotated; one older file is kept (kubelet: 10 MiB, 5 files)."""
    backoff_base_seconds: Interval = 1.0
    """Delay before the second restart in a row; it doubles, and the first restart has none, as kubelet's.
    kubelet's 10 s is long for one machine."""
    backoff_cap_seconds: Interval = 300.0
    """Longest delay before a restart, as kubelet's."""
    backoff_reset_seconds: Interval = 600.0
    """Run time after which a container's delay is the first one again, as kubelet's."""
    blocked_cap_seconds: Interval = 30.0
    """Longest pause between attempts at a start that something missing prevents: a model, a Secret."""
    pod_pids_limit: Pids = 4096
    """Most processes and threads of a Pod, as kubelet's podPidsLimit; 0 is no limit. It is an eighth of
    pid_max on machines of up to 32 cores (32,768): one fork bomb leaves seven eighths to the others, and
    programs with some threads for each core stay far below. A forked container has it to itself."""
    host_path_roots: str = "/data,/mnt,/srv,/tmp,/var/tmp"
    """Absolute paths of directories, separated by commas, below which a hostPath of type DirectoryOrCreate
    makes any directory; elsewhere only where the Pod's user may write. A new directory belongs to that user,
    and one in /etc, or in a home, can be a program that root or another user runs. Empty: none."""
    grace_seconds: Seconds = 30.0
    """terminationGracePeriodSeconds of a Pod without one, as Kubernetes."""
    drain_seconds: Seconds = 1.5
    """From leaving the EndpointSlice to SIGTERM: the time in which every gateway stops sending."""
    reserve_seconds: Seconds = 60.0
    """Time after a Pod's end for which its TCP ports remain reserved: a gateway that hangs still connects to
    them, and is replaced within 20 s."""
    metrics_port: Port = 0
    """Port of `GET /metrics` on `pages.host`; 0 picks a free one, which `DIR/run/metrics/node.json` names."""
    finished_pods_kept: CountOrZero = 100
    """Finished Pods without an owner that are kept; beyond it the oldest are deleted."""


@dataclass(frozen=True)
class GatewaySettings(Section):
    """The gateway and its Envoy."""

    name: str = "local"
    """Names this gateway among those of one API, in the status of Routes and in its Lease: on a cluster the
    name of its Pod."""
    address: str = ""
    """Host and port by which clients reach the gateway, for `status.url`: of a load balancer, for example.
    Empty: those of the listener."""
    port: Port = 8080
    """Port of the public listener; 0 picks a free one."""
    host: str = "127.0.0.1"
    """Address of the public listener: loopback only, unless asked for."""
    domain: str = "slipway.local"
    """Hosts are NAME.NAMESPACE.<domain>."""
    concurrency: Count = 1
    """Envoy's worker threads: one core moves 20,000 small requests/s and leaves the others to models."""
    huge_pages: bool = True
    """Envoy's code and, where this process has CAP_SYS_NICE, its heap in pages of 2 MiB: 3 to 10 % more
    requests per second, by the machine, for 105 MiB of memory. Where the kernel has none, Envoy runs in small
    ones."""
    max_requests: Count = 40_000
    """Circuit breaker of a backend: Envoy's 1,024 fails streams long before a model is full (llm-d:
    40,000)."""
    connections: Count = 10_000
    """Open connections of clients, of which each takes some 10 KB; further ones are closed at once."""
    connection_streams: Count = 100
    """Requests in flight on one HTTP/2 connection of a client; clients keep further ones back (Envoy's advice
    for edge proxies)."""
    heap_bytes: Bytes = 1024 * 1024 * 1024
    """Memory of Envoy: 1,000 services take 200 MiB. Near it the streams that buffer most are reset, then new
    requests get 503 (`envoy overloaded`)."""
    connection_buffer_bytes: Bytes = 64 * 1024
    """Bytes of a connection that wait in Envoy, in each direction: with Envoy's 1 MiB, 450 uploads took 790
    MB and kept it from other requests for 1.6 s; with 32 KiB large bodies are a fifth slower."""
    retry_body_bytes: Bytes = 1024 * 1024
    """Largest body of a request that is sent again: Envoy keeps it until the answer begins."""
    language_request_bytes: ModuleBytes = 4 * 1024 * 1024
    """Largest request to a language model, which Envoy reads as a whole to know its tokens: a million tokens
    of text."""
    connect_timeout_seconds: Interval = 1.0
    """Longest time to open a connection to a replica: one on the same network accepts within milliseconds."""
    stream_idle_seconds: Interval = 300.0
    """A stream without a byte for this long is cut, and a connection without a stream closed. There is no
    total timeout, as Envoy's 15 s cuts generations."""
    header_seconds: Interval = 30.0
    """Longest time from the first byte of a request to the end of its headers: slow clients take seconds, and
    each incomplete request holds a connection."""
    request_seconds: Interval = 120.0
    """Longest time until a request has arrived as a whole, unless its answer begins before: 64 MiB, the
    largest one, at 5 Mbit/s take 107 s, and the received part of a request to a language model is kept until
    then."""
    probe_timeout_seconds: Interval = 5.0
    """Longest wait for the answer to one probe of a new revision."""
    probes_at_once: Count = 32
    """Revisions probed at once: a probe mostly waits for its replica."""
    drain_seconds: Seconds = 30.0
    """Longest wait for requests in flight when the gateway stops."""
    leave_seconds: Seconds = 10.0
    """In a Pod, from SIGTERM to the end of its listeners: the time in which kube-proxies and load balancers
    learn that the Pod ends. Meanwhile each answer closes its connection. With `drain_seconds`, and 5 s for
    the rest, below the Pod's terminationGracePeriodSeconds."""
    upstream_idle_seconds: Interval = 4.0
    """Idle time after which the gateway closes a connection to a replica: uvicorn closes after 5 s, and a
    request sent in that moment fails."""
    retries: CountOrZero = 2
    """Attempts on another replica when the first never began (connect failure, refused stream)."""
    retry_budget_percent: Percent = 20.0
    """Most concurrent retries, as a share of the requests in flight: a sick service must not get twice its
    load (Envoy's default)."""
    retry_min_concurrency: CountOrZero = 10
    """Concurrent retries that are always allowed; Envoy's 3 is less than a burst onto a replica that has just
    ended."""
    eject_consecutive_failures: CountOrZero = 5
    """Tries in a row that a replica leaves without an answer before it is ejected (Envoy's default); 0 ejects
    none."""
    eject_seconds: Interval = 10.0
    """First time for which a replica is ejected, multiplied by its ejections in a row: as long as liveness
    probes need to replace a hung one."""
    eject_max_percent: Percent = 50.0
    """Most replicas of a backend that are ejected at once; a sole replica never is."""
    retry_after_seconds: WholeSeconds = 1
    """Retry-After of a service without a ready replica, or above its limit; replicas here start within
    seconds."""
    lease_seconds: LeaseSeconds = 15
    """Age of a gateway's Lease from which the gateway counts as dead."""
    lease_renew_seconds: Interval = 5.0
    """Between renewals of the Lease: three attempts within its lifetime."""
    metrics_port: Port = 0
    """Port of `GET /metrics` on `pages.host`; 0 picks a free one, which `DIR/run/metrics/gateway.json`
    names."""


@dataclass(frozen=True)
class ActivatorSettings(Section):
    """The activator, which holds the requests of predictors at zero."""

    held_per_backend: Count = 2_000
    """Requests held for one backend: a burst of 1,000 fits twice."""
    held: Count = 10_000
    """Requests held in all: each is an open file here and two in Envoy."""
    bytes_per_backend: Bytes = 256 * 1024 * 1024
    """Bodies held for one backend: 1,000 images of 224 x 224 pixels."""
    bytes: Bytes = 512 * 1024 * 1024
    """Bodies held in all: memory that a laptop can spare."""
    body_bytes: Bytes = 64 * 1024 * 1024
    """Largest body of a request, as the runtimes accept."""
    deadline_seconds: Interval = 240.0
    """Longest wait for a replica, not for its answer; below the gateway's `stream_idle_seconds`, so that the
    client gets a reason."""
    retry_after_seconds: WholeSeconds = 5
    """Retry-After of a request that was refused or held in vain: about a start."""
    permits: Count = 32
    """Requests that one replica works on before the next is released: the replica never idles between two,
    and the rest goes to the replica that is ready next."""
    attempts: Count = 3
    """Attempts at a request that a replica took and did not answer, if its Route has `Lost` in `retries.on`
    and no `retries.attempts`; a request that could not be handed over is tried until its deadline."""
    metrics_port: Port = 0
    """Port of `GET /metrics` on `pages.host`; 0 picks a free one, which `DIR/run/metrics/activator.json`
    names."""
    backlog: Count = 4_096
    """Connections that wait for accept on one socket: a burst arrives faster than it is accepted."""


@dataclass(frozen=True)
class PagesSettings(Section):
    """The pages of components: their metrics, and in Pods their health."""

    host: str = "127.0.0.1"
    """Literal address on which every component serves its pages: loopback only, unless asked for. In a Pod
    `0.0.0.0` or `::`, as kubelet, Prometheus and the autoscaler ask from elsewhere."""


@dataclass(frozen=True)
class ControllerSettings(Section):
    """All controllers."""

    workers: Count = 8
    """Keys that one controller reconciles at once: a reconcile mostly waits for the API."""
    backoff_base_seconds: Interval = 0.05
    """First delay after a failed reconcile; it doubles."""
    backoff_cap_seconds: Interval = 30.0
    """Longest delay after a failed reconcile."""
    leader_election: bool = False
    """Of several processes of controllers one works and the others wait. With `slipway up` a lock of the data
    directory does the same."""
    lease_namespace: str = "default"
    """Namespace of the Leases of gateways and controllers: on a cluster that of the installation."""
    watch_namespace: str = ""
    """Namespace whose objects controllers, gateways and activators watch and write, so that Roles in it are
    enough. Empty: all namespaces, which takes ClusterRoles."""
    gather_seconds: Seconds = 0.04
    """From a change of an Inference's children to its reconcile, so that a burst of changes is one reconcile.
    Changes of the Inference itself do not wait."""
    gone_gateway_seconds: Interval = 3600.0
    """Time without a valid Lease after which the Lease of a gateway and its entries in statuses are removed:
    longer than a node takes to restart."""
    status_settle_seconds: Seconds = 1.0
    """Age at which a status that only reports progress is written: quick changes pass without a write. At
    0.25 s, 100 Inferences created at once wrote two such statuses each; at 1 s, one."""
    builds: Count = 1
    """Model images built at once; one build already runs at the speed of sha256."""
    transfers: Count = 3
    """ModelVersions fetched at once, and as many pushed: a transfer waits for the network, not for this
    machine. Neither waits for the other, and versions that need no network wait for none."""
    build_attempts: Count = 30
    """Attempts at a ModelVersion before it has failed for good: two hours with the delays below, longer than
    a registry's restart or the clearing of a full disk."""
    build_backoff_base_seconds: Interval = 2.0
    """First delay after a failed attempt; it doubles."""
    build_backoff_cap_seconds: Interval = 300.0
    """Longest delay between attempts, as of a Pod that crashes."""
    progress_seconds: Interval = 5.0
    """Between statuses that only report the progress of a build or a transfer; each is a write."""
    release_seconds: Interval = 2.0
    """Between checks whether the image of a deleted version is still pinned: pins are files, which send no
    events."""
    prometheus: str = ""
    """Base URL of the Prometheus for PromQL metrics without `serverAddress`, and for the load before the
    autoscaler knew a target; empty: none. Also `slipway up --prometheus` and `SLIPWAY_PROMETHEUS`."""
    warm_share: Share = 0.5
    """Of the available memory: a larger image is not read into the page cache ahead of its replicas, as it
    would displace the replicas that serve."""


@dataclass(frozen=True)
class RegistrySettings(Section):
    """The client of image registries."""

    parallel: Count = 4
    """Blobs moved at once: one connection seldom fills a fast link, and each upload holds `chunk_bytes`."""
    chunk_bytes: Bytes = 12 * 1024 * 1024
    """One PATCH of an upload, kept in memory until the registry has it. Larger than the 10 MiB parts of
    registries on object stores, which read a shorter last part back; four of them are 48 MiB."""
    piece_bytes: Bytes = 1024 * 1024
    """Bytes handed on at a time: large beside the cost of handing on, small beside a chunk."""
    connect_seconds: Interval = 10.0
    """Longest time to open a connection to a registry, with its TLS handshake."""
    stall_seconds: Interval = 30.0
    """A peer that moves less than `slowest_bytes_per_second` for this long, or does not answer, is given
    up."""
    slowest_bytes_per_second: Bytes = 8 * 1024
    """Slowest transfer: a gigabyte would take 36 hours, and a trickle must not hold a connection for ever."""
    attempts: Count = 6
    """Attempts in a row without progress; with the delays below about 15 s of an absent registry."""
    backoff_base_seconds: Interval = 0.5
    """First delay between attempts; it doubles, and the pause is drawn between half of it and all of it."""
    backoff_cap_seconds: Interval = 15.0
    """Longest delay between attempts."""
    retry_after_cap_seconds: Interval = 60.0
    """Longest Retry-After that the client waits for; the caller waits for a longer one, as it occupies a
    worker."""
    helper_seconds: Interval = 30.0
    """Longest run of a credential helper: it may ask a keychain or a cloud, not a person."""


@dataclass(frozen=True)
class StoreSettings(Section):
    """The model store."""

    max_bytes: Bytes = 64 * 1024**3
    """Size beyond which the least recently used images are evicted, of those that can be fetched again and
    are not in use: an eighth of a laptop's disk. An image that was built here and never pushed stays, as it
    is nowhere else."""
    unpack_ratio: Ratio = 100.0
    """Most bytes that a compressed layer may unpack to, per byte of it. Model weights compress to between all
    and a tenth of their size, text to a tenth; gzip reaches 1,000 only with repetitions."""
    unpack_free_bytes: Bytes = 16 * 1024 * 1024
    """Bytes that the compressed layers of an image may unpack to in any case, in equal parts: the tar of
    small files is mostly padding, with a high ratio, and 16 MiB fill no disk."""


@dataclass(frozen=True)
class ModelPolicySettings(Section):
    """The rules for the files of every model version; annotations of a Namespace add rules for its own."""

    no_code: bool = False
    """Only files that run no code when they are loaded: safetensors, ONNX, skops, NumPy, text. Off: most
    models are pickles, and run in a sandbox."""
    signed: bool = False
    """Only images that one of `keys` has signed. Off: a signature needs a key pair and a registry."""
    keys: str = ""
    """Paths of files with PEM public keys (ECDSA P-256), separated by commas, read when the controllers
    start; empty: none."""


@dataclass(frozen=True)
class ModelsSettings(Section):
    """Models."""

    policy: ModelPolicySettings = field(default_factory=ModelPolicySettings)
    volume: str = "auto"
    """How Pods get the files of a model: `image`, an image volume; `copy`, an init container that copies
    them; `auto`, an image volume if the versions of the API server and of each node have such volumes. With
    `auto` a revision that serves keeps its own, so that an upgrade of nodes replaces no replica; `image` or
    `copy` gives each predictor that has the other one a new revision."""
    capture: str = "auto"
    """The reader of the output of a finished Job: `local`, the controllers, from their own disk; `job`, a Pod
    where the output is, which pushes its image; `auto`, the controllers on one machine, and a Pod on a
    cluster."""


@dataclass(frozen=True)
class RuntimeSettings(Section):
    """The model servers that Slipway ships."""

    port: Port = 8080
    """Port of a model server whose environment has no `PORT`."""
    max_body_bytes: Bytes = 64 * 1024 * 1024
    """An inference request, after decompression: 130,000 rows of 64 doubles as binary tensors, far above any
    sensible batch."""
    request_memory_bytes: Bytes = 256 * 1024 * 1024
    """Memory that decoded requests, one or all together, may take, and as much again that received bodies may
    take: 40,000 rows of 64 doubles in JSON, whose numbers take 100 bytes each. Of the memory that a memory
    limit leaves free after the start, decoded requests may take at most a half, and bodies at most a quarter,
    but 16 MiB in any case. Keys and values of a language model in main memory count as used."""
    compress_from_bytes: Bytes = 1024
    """Smaller responses are not compressed, as compression would cost more than it saves."""
    inline_seconds: Seconds = 0.002
    """A prediction that is expected to take less runs on the event loop: a thread costs 0.5 ms at the median,
    and health checks can wait this long."""
    waiting: Count = BACKLOG
    """Requests that wait for a prediction: as many as connections that wait for accept, and more than a
    replica that keeps up ever has. Further requests get 503 with Retry-After."""
    sequences: Count = 64
    """Sequences that a language model generates together, where `batching.batchSize` is not set: throughput
    of a small model on a CPU hardly rises beyond. Fewer if half of the free memory does not hold them."""
    context_tokens: CountOrZero = 0
    """Longest prompt with its answer; 0: the model's. Each sequence has memory for so many tokens."""
    waiting_sequences: Count = 256
    """Requests that wait until one of the `sequences` ends: four batches. Further requests get 429 with
    Retry-After."""
    prompt_tokens_per_step: Count = 512
    """Prompt tokens that are read between two tokens of the other sequences: a longer part makes them wait
    longer, a shorter one reads prompts more slowly."""
    prefix_cache: bool = True
    """Whether a prompt that begins as an ended sequence does, such as a chat's next turn, is read from there
    on. Off: clients must not learn from the time to the first token how others' prompts begin."""
    retry_after_seconds: WholeSeconds = 1
    """Retry-After of a 429 or 503 of a model server that is full: most predictions take less time, so that it
    then has room again."""
    linger_seconds: Seconds = 0.5
    """After SIGTERM, time in which new connections are still served, each response closing its connection: a
    gateway that has not seen the change yet gets answers and no resets."""
    idle_seconds: Seconds = 5.0
    """Longest wait after `linger_seconds` for clients to close idle connections: a gateway closes them when
    it learns that the replica ends, and after `upstream_idle_seconds` in any case."""
    grace_seconds: Seconds = 24.0
    """Longest wait after `idle_seconds` for requests in flight; `linger_seconds`, `idle_seconds` and this
    wait together are below the Pod's 30 s."""
    backlog: Count = BACKLOG
    """Connections that wait for accept, as uvicorn's."""


@dataclass(frozen=True)
class RuntimeImageSettings(Section):
    """The images of the model servers that Slipway ships, in the Pods of predictors and of trials. Another
    image is another revision of each predictor, which is proven before it gets traffic.
    """

    prefix: str = "slipway.dev/runtimes"
    """Repository above those of the images, as `make images` names them; the framework's name follows. The
    default names the local runtimes of one machine, which knows no other."""
    tag: str = ""
    """Tag of the images: on a cluster the version of Slipway. Empty: none, as one machine has one version."""
    pull_policy: str = ""
    """Always, IfNotPresent or Never. Empty: Kubernetes' default, IfNotPresent for a tag."""
    pull_secret: str = ""
    """Secret with the login of the registry, in each namespace with predictors. Empty: none, or those of the
    Pods' service account."""
    copier: str = "transfer"
    """Name of the image that copies a model, where `models.volume` chooses a copy, and captures the output of
    a Job, where `models.capture` chooses a Pod. It has the client of registries and little else, as a node
    pulls it before the model."""
    waiter: str = "registry.k8s.io/pause:3.10"
    """Image whose program waits for its end without arguments, as a user given by number: of the Pods that
    keep images on nodes (`predictors[].prefetch`). The default takes less than 1 MB, and most nodes have it
    for the sandboxes of Pods; name a copy where nodes do not reach its registry."""


@dataclass(frozen=True)
class SupervisorSettings(Section):
    """`slipway up`."""

    restart_seconds: Interval = 0.2
    """Delay before a killed component is started again, so that it is back within a second; it doubles."""
    restart_cap_seconds: Interval = 5.0
    """Longest delay before a component that keeps dying is started again."""
    healthy_seconds: Interval = 10.0
    """Run time after which a component's delay is the first one again."""
    hang_seconds: Interval = 5.0
    """Silence of an event loop from which its component counts as hung, and is replaced: twenty times the
    longest pause of a loaded one."""
    start_seconds: Interval = 60.0
    """Longest time from a component's start to its first answer; imports take a second."""
    ready_seconds: Interval = 60.0
    """Longest wait until the API and the gateway answer; ten times the wait on a slow laptop."""
    log_bytes: Bytes = 10 * 1024 * 1024
    """Size from which a component's log becomes `.log.1` when the component starts."""
    stop_seconds: Interval = 40.0
    """Longest wait for a component to stop before SIGKILL: the gateway's `drain_seconds`, and some."""


@dataclass(frozen=True)
class Settings(Section):
    """The settings of the serving package."""

    api: ApiSettings = field(default_factory=ApiSettings)
    node: NodeSettings = field(default_factory=NodeSettings)
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    activator: ActivatorSettings = field(default_factory=ActivatorSettings)
    pages: PagesSettings = field(default_factory=PagesSettings)
    controllers: ControllerSettings = field(default_factory=ControllerSettings)
    supervisor: SupervisorSettings = field(default_factory=SupervisorSettings)
    registry: RegistrySettings = field(default_factory=RegistrySettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    models: ModelsSettings = field(default_factory=ModelsSettings)
    runtimes: RuntimeSettings = field(default_factory=RuntimeSettings)
    runtime_images: RuntimeImageSettings = field(default_factory=RuntimeImageSettings)


DEFAULTS = Settings()
