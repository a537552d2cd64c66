"""Every command: its name, its function and its summary."""

from serving.cli.command_group import Command, Group

_OBJECTS = "serving.cli.objects"
_MODEL = "serving.cli.model"
_TUNE = "serving.cli.tune"
_AUTOSCALE = "serving.cli.autoscale"
_API_OPTIONS = "serving.cli.options:before_command"
"""The options of a group that choose the API."""

COMMANDS = Group(
    "From a finished training job to weighted traffic.",
    {
        "up": Command("serving.cli.machine.up:up", "Run everything on this machine until Ctrl-C."),
        "down": Command("serving.cli.machine.up:down", "Stop what `slipway up` started."),
        "demo": Command("serving.cli.demo.command:demo", "Train, serve and shift traffic; then clean up."),
        "apply": Command(f"{_OBJECTS}.apply:apply", "Create or change the objects of manifests."),
        "get": Command(f"{_OBJECTS}.get:get", "Show objects."),
        "describe": Command(
            f"{_OBJECTS}.describe:describe", "Show objects with their conditions, Events and lineage."
        ),
        "logs": Command(f"{_OBJECTS}.logs:logs", "Print what replicas and Jobs have written."),
        "top": Command(f"{_OBJECTS}.top:top", "Show what replicas use, beside their requests and limits."),
        "delete": Command(f"{_OBJECTS}.delete:delete", "Delete objects, and everything that they own."),
        "convert": Command(
            "serving.cli.convert:convert",
            "Print Morphling's ProfilingExperiments as ours; say what has no equivalent.",
        ),
        "version": Command("serving.cli.version:version", "Print the versions of client and API."),
        "completion": Command(
            "serving.cli.completion.shells:completion",
            "Print the script that lets a shell complete commands, kinds, names and arms.",
        ),
        "traffic": Group(
            "Show and set how traffic is split over the arms.",
            {
                "get": Command(
                    "serving.cli.traffic:get",
                    "Show the weights that are asked for and the shares that are served.",
                ),
                "set": Command(
                    "serving.cli.traffic:set_",
                    "Set the weights of the arms that are named; the others keep theirs.",
                ),
            },
            function=_API_OPTIONS,
        ),
        "model": Group(
            "Versions of models: show, bring in, copy, check and compare.",
            {
                "list": Command(f"{_MODEL}.listing:list_", "Show the versions of models, and who uses them."),
                "get": Command(f"{_MODEL}.listing:get", "Show some versions.", names="modelversions"),
                "push": Command(
                    f"{_MODEL}.push:push", "Copy a version's image into a registry.", names="modelversions"
                ),
                "pull": Command(f"{_MODEL}.pull:pull", "Make a version of a registry's image."),
                "verify": Command(
                    f"{_MODEL}.verify:verify",
                    "Check a version's files and its signature.",
                    names="modelversions",
                ),
                "diff": Command(
                    f"{_MODEL}.diff:diff",
                    "Compare two versions: files, metrics, lineage.",
                    names="modelversions",
                ),
                "import": Command(f"{_MODEL}.importing:import_", "Make a version of a directory."),
            },
            function=_API_OPTIONS,
        ),
        "tune": Group(
            "Find the cheapest spec of a predictor that meets its SLO.",
            {
                "status": Command(
                    f"{_TUNE}.status:status",
                    "Show progress, the best spec so far and the running trials.",
                    names="profilingexperiments",
                ),
                "report": Command(
                    f"{_TUNE}.report:report", "Explain the result.", names="profilingexperiments"
                ),
                "apply": Command(
                    f"{_TUNE}.apply:apply",
                    "Let the predictor run the recommended spec.",
                    names="profilingexperiments",
                ),
                "stop": Command(
                    f"{_TUNE}.suspend:stop", "Start no more trials.", names="profilingexperiments"
                ),
                "resume": Command(
                    f"{_TUNE}.suspend:resume", "Resume a stopped experiment.", names="profilingexperiments"
                ),
            },
            function=f"{_TUNE}.group:tune",
        ),
        "autoscale": Group(
            "See why replicas are what they are, and try policies on recorded load.",
            {
                "status": Command(
                    f"{_AUTOSCALE}.status:status",
                    "Show replicas, load, forecast and the binding rule.",
                    names="autoscalers",
                ),
                "explain": Command(
                    f"{_AUTOSCALE}.status:explain",
                    "Say why the count is what it is, and what is expected next.",
                    names="autoscalers",
                ),
                "record": Command(
                    f"{_AUTOSCALE}.record:record",
                    "Record what arrives at a predictor, second by second.",
                    names="autoscalers",
                ),
                "simulate": Command(
                    f"{_AUTOSCALE}.simulate:simulate",
                    "Compare Slipway's policy with HPA, KEDA, Knative and others on recorded load.",
                ),
            },
            function=_API_OPTIONS,
        ),
        "config": Group(
            "Show and explain the settings of the configuration file.",
            {
                "show": Command(
                    "serving.cli.config.printing:show",
                    "Validate the configuration and print what differs from the defaults.",
                ),
                "explain": Command(
                    "serving.cli.config.printing:explain",
                    "Explain settings: unit, bounds, default and reason.",
                ),
            },
        ),
    },
    function=_API_OPTIONS,
)
