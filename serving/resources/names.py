"""Names shared by several components: labels, annotations, conditions, finalizers, environment variables,
headers.
"""

from serving.settings import DEFAULTS

FIELD_MANAGER_PREFIX = "slipway-"
"""Prefix of the field managers `slipway-gateway-NAME` and `slipway-activator-NAME`."""
SUBDOMAIN_PATTERN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
"""The names of most objects: DNS subdomains by RFC 1123."""
MAX_SUBDOMAIN = 253
LABEL_PATTERN = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
"""The names of Models, ModelVersions in use and predictors: DNS labels by RFC 1123."""
INFERENCE_LABEL = "slipway.dev/inference"
PREDICTOR_LABEL = "slipway.dev/predictor"
REVISION_LABEL = "slipway.dev/revision"
PREFETCH_LABEL = "slipway.dev/prefetch"
"""On the Pods that keep the images of a revision on their nodes: the name of the revision. They have no other
label, so that no selector of replicas selects them."""
MODEL_LABEL = "slipway.dev/model"
"""On the ModelVersion of a hand-off, and on a Job that captures an output: the name of the Model."""
EXPERIMENT_LABEL = "slipway.dev/experiment"
TRIAL_LABEL = "slipway.dev/trial"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
POD_TEMPLATE_HASH_LABEL = "pod-template-hash"
SERVICE_NAME_LABEL = "kubernetes.io/service-name"

ANNOTATION_PREFIX = "slipway.dev/"
"""Prefix of Slipway's annotations and labels."""
MODEL_ANNOTATION = "slipway.dev/model"
"""On a Job: its output becomes a version of this Model."""
MODEL_VERSION_ANNOTATION = "slipway.dev/model-version"
"""On a Job: the name of its ModelVersion; default: the Job's name, with `-` for dots and cut if too long, and
the first 5 characters of its uid. On Pods: the version that they serve."""
REVISION_ANNOTATION = "deployment.kubernetes.io/revision"
TEMPLATE_HASH_ANNOTATION = "slipway.dev/template-hash"
"""On a Deployment: hash of the template that has the number in REVISION_ANNOTATION."""
ATTEMPT_ANNOTATION = "slipway.dev/attempt"
"""On a Job's Pod: the number of the Job's attempt, so that a finished Pod is counted once. On a Job that
captures an output: the failed attempts at its ModelVersion before it, so that its failure is counted once."""
HANDOFF_FINALIZER = "slipway.dev/hand-off"
"""On a Job: holds it until its output has been captured."""
MODEL_IMAGE_FINALIZER = "slipway.dev/model-image"
"""On a ModelVersion: holds it until its image has been released."""
START_PHASES = ("fetch", "verify", "spawn", "import", "load", "warmup", "probe")
"""The phases of a start in the message of `STARTED_CONDITION`, in order: fetching images; verifying their
seals and hashes; volumes, sandbox and process, up to the runtime's `main`; imports, or the wait for those of
a zygote; loading the model; warm-up; the time until the probe's answer."""
STARTED_CONDITION = "slipway.dev/Started"
"""On a Pod: timing of its start. Reason `Cold` or `Zygote`; the message is JSON with Unix times and
milliseconds."""
LIMITS_ENFORCED_CONDITION = "slipway.dev/LimitsEnforced"
"""On a Pod of one machine with limits: whether the node enforces all of them, with the node's own limit of
processes."""
MODEL_POLICY_ANNOTATION = "slipway.dev/model-policy"
"""On a Namespace: rules for its ModelVersions' contents, separated by commas: `noCode`, `signed`."""
MODEL_POLICY_KEYS_ANNOTATION = "slipway.dev/model-policy-keys"
"""On a Namespace: the PEM public keys of its rule `signed`, one after another; default: those of
`models.policy.keys`."""
ON_DEMAND_LABEL = "slipway.dev/on-demand"
"""On a Route, Service, EndpointSlice or Autoscaler: `true` if the predictor may be at zero; the activator
watches these."""
STANDBY_LABEL = "slipway.dev/standby"
"""On a Pod: `true` while it is a standby replica without traffic. As a Deployment's annotation: their
number."""
STANDBY_ANNOTATION = STANDBY_LABEL
ZYGOTE_ANNOTATION = "slipway.dev/zygote"
"""On a Pod: `disabled` for a new process instead of one forked from a zygote with all modules imported."""
CPUSET_ANNOTATION = "slipway.dev/cpus"
"""On a Pod: the processor cores for its processes, such as `0` or `0,2`. Only on one machine; a cluster has
its static CPU manager."""
SOCKET_PORT_ANNOTATION = "slipway.dev/socket-port"
"""On a Pod: the containerPort whose requests come by a Unix socket that only the gateway may enter. The node
passes it to the container as sd_listen_fds(3) describes. Only on one machine; empty for none."""
GATEWAY_PORT_ANNOTATION = "slipway.dev/gateway-port"
"""On a Pod: the containerPort to which only the gateway and the node may connect by TCP. Only on one
machine, as root; empty for none."""
UNIX_PROTOCOL = "slipway.dev/unix"
"""appProtocol of an EndpointSlice's port that is reached by the Unix socket of the Pod's address."""
H2C = "h2c"
"""Protocol of a Route's backend whose replicas speak HTTP/2 without TLS."""
H2C_PROTOCOL = "kubernetes.io/h2c"
"""appProtocol of a Service's port that speaks h2c (KEP-3726)."""
H2C_PORT_NAMES = ("h2c", "grpc", "http2")
"""Names of a container's port that speaks h2c, as in KServe and Knative."""
GPU_RESOURCE = "nvidia.com/gpu"
"""Resource of NVIDIA's device plugin. With MPS it is a share, sized by an environment variable."""
HAMI_MEMORY = "nvidia.com/gpumem"
HAMI_CORES = "nvidia.com/gpucores"
HAMI_HANDSHAKE = "hami.io/node-handshake"
"""Annotation of a Node by which HAMi's scheduler knows whether its device plugin is alive: it begins with
`Deleted` once the plugin is gone, and the registered GPUs remain."""
HAMI_ANNOTATION = "hami.io/node-nvidia-register"
"""On a Node: the memory and the cores of its GPUs, as HAMi's device plugin registers one resource with the
kubelet."""
GPU_ANNOTATION = "slipway.dev/gpu"
"""On a Pod: JSON with its share of a GPU as `asked` and `granted` (memory in MiB, cores in percent), the
values that were rounded up as `snapped`, the `mechanism`, and `enforcedIf`: the conditions under which the
share is enforced."""

OUTPUT_DIR_ENV = "SLIPWAY_OUTPUT_DIR"
OUTPUT_VOLUME_ENV = "SLIPWAY_OUTPUT_VOLUME"
"""On a container that captures an output: the mount path of its volume, below which no link is followed."""
CAPTURE_REPOSITORY_ENV = "SLIPWAY_CAPTURE_REPOSITORY"
"""On a capturing container: `HOST/PATH` in the registry, to which the image is pushed by digest."""
CAPTURE_STORE_ENV = "SLIPWAY_CAPTURE_STORE"
"""On a capturing container: an empty directory for the image until it is pushed."""
CAPTURE_FRAMEWORK_ENV = "SLIPWAY_CAPTURE_FRAMEWORK"
"""On a capturing container: the framework of the ModelVersion; unset or empty: the framework in the output's
`slipway.json`."""
CAPTURE_COMPRESSION_ENV = "SLIPWAY_CAPTURE_COMPRESSION"
"""On a capturing container: `zstd` for compressed layers; unset or `none` for plain layers."""
JOB_API_VERSION_ENV = "SLIPWAY_JOB_API_VERSION"
"""On a capturing container: the API version of the job that wrote the output; unset: `batch/v1`."""
JOB_KIND_ENV = "SLIPWAY_JOB_KIND"
"""On a capturing container: the kind of that job; unset: `Job`."""
JOB_NAME_ENV = "SLIPWAY_JOB_NAME"
"""On a capturing container: the name of that job."""
JOB_UID_ENV = "SLIPWAY_JOB_UID"
"""On a capturing container: the uid of that job."""
TERMINATION_LOG_ENV = "SLIPWAY_TERMINATION_LOG"
"""On a capturing container: the file for the result; unset: `/dev/termination-log`."""
MANIFEST_FILE = "slipway.json"
"""Optional in the output directory: {"framework", "metrics", "sourceRevision"}."""

MODEL_NAME_ENV = "SLIPWAY_MODEL_NAME"
MODEL_VERSION_ENV = "SLIPWAY_MODEL_VERSION"
MODEL_DIR_ENV = "SLIPWAY_MODEL_DIR"
MODEL_DIGEST_ENV = "SLIPWAY_MODEL_DIGEST"
"""Digest of the model image's manifest."""
MODEL_FILES_DIGEST_ENV = "SLIPWAY_MODEL_FILES_DIGEST"
"""Digest of `files.json`, which lists the digest of every file; the runtime loads no other bytes."""
MODEL_IMAGE_ENV = "SLIPWAY_MODEL_IMAGE"
"""On the init container that copies a model: the image by digest."""
MODEL_VOLUME_ENV = "SLIPWAY_MODEL_VOLUME"
"""On the init container that copies a model: the mount path of the volume that it fills."""
PULL_SECRETS_ENV = "SLIPWAY_PULL_SECRETS"
"""On a container that copies a model or captures an output: names of the Secrets with logins, separated by
commas."""
PULL_SECRETS_DIR_ENV = "SLIPWAY_PULL_SECRETS_DIR"
"""Beside `PULL_SECRETS_ENV`: the directory with a file for each of these Secrets that exists."""
MODEL_SEALED_ENV = "SLIPWAY_MODEL_SEALED"
"""Set by the node: digest of the mounted image, whose seal it has just verified. The runtime then hashes only
files that contain code."""
BATCH_SIZE_ENV = "SLIPWAY_BATCH_SIZE"
"""Maximum rows in one prediction; unset or 1 without batching."""
BATCH_TIMEOUT_ENV = "SLIPWAY_BATCH_TIMEOUT"
"""Maximum time for which a request waits for others, a duration such as `2ms`; default 0."""
DEVICE_ENV = "SLIPWAY_DEVICE"
"""On a container with a share of a GPU: `cuda`; a runtime then uses the GPU or fails to start."""
MODEL_MOUNT = "/mnt/model"
"""Mount path of the model image; its files are in `models/`, as in KServe's modelcars."""

ARM_HEADER = "x-slipway-arm"
"""On every response: the predictor that served it. Removed from requests: a client cannot choose."""
SERVED_VERSION_HEADER = "x-slipway-model-version"
STARTED_HEADER = "x-slipway-started"
"""On a runtime's response to its readiness probe: Unix time at which its `main` began, with microseconds."""

ACTIVATOR_REPORTER = "activator-"
"""Prefix of the reporters of demand in an Autoscaler's status; the name of their gateway follows."""

LOCAL_REGISTRY = "slipway.local"
"""Registry of image references in this machine's model store."""
RUNTIME_IMAGE_PREFIX = f"{DEFAULTS.runtime_images.prefix}/"
"""Prefix of the images of the local runtimes of one machine, and by default of the images on a cluster."""
RUNTIME_PORT = 8080


def pod_socket_name(address: str, port: int) -> str:
    """Return the file name of a Pod's Unix socket, which the node makes and the gateway connects to."""
    return f"{address}:{port}"
