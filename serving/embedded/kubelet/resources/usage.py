"""The usage of every container of this node, for Prometheus, under the kubelet's names.

Each scrape reads cgroups, /proc and the records of runs, so a restart of the agent loses peaks alone.
Without cgroups (an ordinary user) it comes from /proc alone.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from serving.embedded.kubelet.container.shim import oom_kills
from serving.embedded.kubelet.devices.gpus import Gpus
from serving.embedded.kubelet.records import PodDirectory, RunDirectory, pods
from serving.embedded.kubelet.resources import usage_parsing
from serving.embedded.kubelet.resources.cgroups import TOP
from serving.embedded.kubelet.resources.hardware import this_hardware
from serving.embedded.kubelet.resources.usage_parsing import CgroupPaths, Process, Resident
from serving.resources.formats import cadvisor
from serving.resources.formats.cadvisor import ContainerKey, ContainerUsage
from serving.system import processes
from serving.system.isolation.cgroup_layout import CgroupLayout

TICKS = os.sysconf("SC_CLK_TCK")
"""Clock ticks in a second, the unit of /proc/PID/stat."""
MICROSECONDS = 1e6
NANOSECONDS = 1e9

# The name of a metric: the field of ContainerUsage, and the help text.
_COUNTERS = {
    cadvisor.CPU_SECONDS: ("cpu_seconds", "Processor seconds used."),
    cadvisor.PERIODS: ("periods", "Periods of the processor limit in which the container ran."),
    cadvisor.THROTTLED_PERIODS: ("throttled_periods", "Periods in which the limit throttled the container."),
    cadvisor.THROTTLED_SECONDS: ("throttled_seconds", "Seconds for which the limit throttled the container."),
    cadvisor.OOM_EVENTS: ("oom_events", "Processes killed by the OOM killer."),
}
_GAUGES = {
    cadvisor.WORKING_SET: ("working_set", "Bytes in use, with shared pages."),
    cadvisor.RSS: ("rss", "Bytes in use that are of no file, with shared pages."),
    cadvisor.PEAK: ("peak", "Most bytes in use since the run began, with shared pages."),
    cadvisor.STARTED: ("started", "Unix seconds at which the run began."),
    cadvisor.GPU_DUTY: ("gpu_duty", "Utilization of the GPU by all processes, in percent."),
    cadvisor.GPU_MEMORY: ("gpu_memory", "Bytes of GPU memory."),
}


def _text(path: str) -> str | None:
    """Return the content of a file; None if it cannot be read.

    The kernel cuts the name of a process at 15 bytes, perhaps in the middle of a character.
    """
    try:
        return Path(path).read_text(errors="replace")
    except OSError:  # gone, or not in this kernel
        return None


class UsageCollector:
    """A Prometheus collector; one instance per agent."""

    def __init__(self, root: Path, layout: CgroupLayout, gpus: Gpus) -> None:
        """`root` is the directory of the Pods' records."""
        self._root, self._layout, self._gpus = root, layout, gpus
        self._peaks: dict[Path, float] = {}
        """The highest memory in use so far, in bytes, by the directory of the run."""

    def describe(self) -> list[Metric]:
        """Return nothing, so that the registration does not scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all running containers and of the machine."""
        usage = dict(self._containers())
        for name, (field, help_text) in _COUNTERS.items():
            counter = CounterMetricFamily(name, help_text, labels=ContainerKey._fields)
            for container, figures in usage.items():
                counter.add_metric(container, getattr(figures, field))
            yield counter
        for name, (field, help_text) in _GAUGES.items():
            gauge = GaugeMetricFamily(name, help_text, labels=ContainerKey._fields)
            for container, figures in usage.items():
                if name != cadvisor.GPU_DUTY or figures.gpus:  # without a GPU it is not 0, but unknown
                    gauge.add_metric(container, getattr(figures, field))
            yield gauge
        yield from _machine(self._gpus.name)

    def _containers(self) -> Iterator[tuple[ContainerKey, ContainerUsage]]:
        """Yield the usage of each container whose main process runs."""
        running = _processes()
        children = usage_parsing.tree(running)
        gpu_memory, duty = self._gpus.memory(), self._gpus.duty()
        peaks: dict[Path, float] = {}
        for pod in pods(self._root):
            info = pod.info
            if "name" not in info:  # the record is missing or malformed
                continue
            for run in pod.latest():
                identities = run.identities()
                if identities is None or run.exit() is not None or not processes.is_alive(identities.main):
                    continue
                members = usage_parsing.below(identities.shim.pid, children)
                ticks = usage_parsing.ticks(identities.shim.pid, members, running)
                figures = self._figures(run, identities.main.pid, members, ticks / TICKS)
                figures = replace(figures, oom_events=figures.oom_events + _killed_before(pod, run))
                on_gpu = [gpu_memory[pid] for pid in members if pid in gpu_memory]
                if on_gpu:
                    figures = replace(figures, gpu_duty=duty, gpus=1, gpu_memory=sum(on_gpu))
                peaks[run.path] = figures.peak
                yield ContainerKey(info["namespace"], info["name"], run.container), figures
        self._peaks = peaks  # without the runs that have ended

    def _figures(self, run: RunDirectory, pid: int, members: list[int], cpu_seconds: float) -> ContainerUsage:
        """Return the usage of a run, without that of the GPU.

        Args:
            run: the record of the run.
            pid: the main process, whose cgroups are the container's.
            members: the pids of all processes of the container.
            cpu_seconds: the processor time of these processes, for a container without a cgroup.
        """
        cgroups = usage_parsing.cgroup_paths(_text(f"/proc/{pid}/cgroup") or "", self._layout, TOP)
        charged = self._charged(cgroups)
        resident = _resident(members)
        working_set = max(charged.working_set, resident.total)
        throttling = self._throttling(cgroups)
        started = run.read().started_at
        return ContainerUsage(
            cpu_seconds=self._cpu(cgroups, cpu_seconds),
            periods=throttling.periods,
            throttled_periods=throttling.throttled_periods,
            throttled_seconds=throttling.throttled_seconds,
            working_set=working_set,
            rss=max(charged.rss, resident.unreclaimable),
            peak=max(self._peaks.get(run.path, 0.0), working_set, resident.peak),
            oom_events=oom_kills(self._oom_file(cgroups)),
            started=started.timestamp() if started else 0.0,
        )

    def _cpu(self, cgroups: CgroupPaths, of_processes: float) -> float:
        """Return processor seconds of the cgroup; `of_processes` without a cgroup that counts them."""
        if cgroups.unified and (text := _text(f"{cgroups.unified}/cpu.stat")):
            numbers = usage_parsing.pairs(text)
            if "usage_usec" in numbers:
                return numbers["usage_usec"] / MICROSECONDS
        if cgroups.cpu_v1 and (text := _text(f"{cgroups.cpu_v1}/cpuacct.usage")):
            return int(text) / NANOSECONDS
        return of_processes

    def _throttling(self, cgroups: CgroupPaths) -> usage_parsing.Cpu:
        limited = cgroups.unified if "cpu" in self._layout.unified_controllers else cgroups.cpu_v1
        return usage_parsing.throttling((limited and _text(f"{limited}/cpu.stat")) or "")

    def _charged(self, cgroups: CgroupPaths) -> usage_parsing.Memory:
        if cgroups.unified and "memory" in self._layout.unified_controllers:
            usage, stat = _text(f"{cgroups.unified}/memory.current"), _text(f"{cgroups.unified}/memory.stat")
        elif cgroups.memory_v1:
            usage, stat = (
                _text(f"{cgroups.memory_v1}/memory.usage_in_bytes"),
                _text(f"{cgroups.memory_v1}/memory.stat"),
            )
        else:
            return usage_parsing.Memory()
        return usage_parsing.charged(usage, stat) if usage and stat else usage_parsing.Memory()

    def _oom_file(self, cgroups: CgroupPaths) -> str | None:
        if cgroups.unified and "memory" in self._layout.unified_controllers:
            return f"{cgroups.unified}/memory.events"
        return f"{cgroups.memory_v1}/memory.oom_control" if cgroups.memory_v1 else None


def _killed_before(pod: PodDirectory, run: RunDirectory) -> int:
    """Return the number of OOM-killed runs among the earlier recorded ones of a container.

    The kernel's count of such a run is gone with its cgroup, perhaps before a scrape.
    """
    ends = [earlier.exit() for earlier in pod.runs(run.container) if earlier.index < run.index]
    return sum(end is not None and end.reason == "OOMKilled" for end in ends)


def _processes() -> dict[int, Process]:
    """Return all processes of this machine."""
    running = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 names only
        if name.isdigit() and (text := _text(f"/proc/{name}/stat")):
            running[int(name)] = usage_parsing.process(int(name), text)
    return running


def _resident(members: list[int]) -> Resident:
    """Return the resident memory of those of the processes that still run."""
    statuses = [text for pid in members if (text := _text(f"/proc/{pid}/status"))]
    residents = [usage_parsing.resident(text) for text in statuses]
    rollups = []
    if len(residents) > 1:
        rollups = [
            usage_parsing.rollup(text) for pid in members if (text := _text(f"/proc/{pid}/smaps_rollup"))
        ]
    return usage_parsing.together(residents, rollups)


def _machine(gpu: str) -> Iterator[Metric]:
    hardware = this_hardware()
    yield GaugeMetricFamily(cadvisor.MACHINE_CORES, "Cores that replicas may use.", value=hardware.cores)
    yield GaugeMetricFamily(cadvisor.MACHINE_MEMORY, "Bytes of memory.", value=hardware.memory)
    info = GaugeMetricFamily(
        cadvisor.MACHINE_INFO, "Processor, cores and GPU.", labels=["cpu", "cores", "gpu"]
    )
    info.add_metric([hardware.cpu, str(hardware.cores), gpu], 1)
    yield info
