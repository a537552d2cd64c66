"""From trained files to an image in the store, and from there to a registry.

Build: rounds of sha256 over the same number of bytes in memory, a build in a new process into an empty store,
a plain write of as many bytes to the disk, and buildah's build (`copy`, `commit --disable-compression`) of
the same files, in that order, so that a busy moment affects all of them. Buildah takes half a minute and runs
in every third round. The time of a build is that of `build_image`, from the first stat of the files until the
image is visible and synced; its memory is the peak of the process (VmHWM). The files are read once before
each build and come from the page cache, as after a training: in buildah's half minute a kernel may reclaim
idle pages.

Upload: to a real registry, in bytes as the client counts them and as the registry's disk grows. 1 GB of
random weights in ten files, so one changed file is 10 %, and small files beside them; 128 MB with --quick.
"""

import argparse
import asyncio
import contextlib
import hashlib
import json
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rig.data_plane import proxies
from rig.harness import ROOT, Bar, at_least, interval, report

from serving.images.building.model_image import build_image
from serving.images.registry import Credentials, Reference, Registry, push
from serving.images.store.disk import NewFile, remove_tree
from serving.images.store.model_store import ModelStore

MB = 1_000_000
FILES, SMALL_FILES, SMALL_BYTES = 10, 50, 8_000
BUILD_BAR, MEMORY_BAR_MB, UNCHANGED_BAR = 0.5, 100.0, 0.0
CHUNK, DISK_CHUNK = 1024 * 1024, 4 * 1024 * 1024
BUILD = """
import json, re, sys, time
from pathlib import Path
from serving.images.building.model_image import build_image
from serving.images.store.model_store import ModelStore
store = ModelStore(Path(sys.argv[2]))
started, worked = time.perf_counter(), time.process_time()
source, compression = Path(sys.argv[1]), sys.argv[3]
built = build_image(source, store, repository="bench/m", lineage={"uid": "1"}, compression=compression)
took, cpu = time.perf_counter() - started, time.process_time() - worked
peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
print(json.dumps({"seconds": took, "cpu": cpu, "peakMB": int(peak[1]) * 1024 / 1e6, "digest": built.digest}))
"""
REGISTRY = """version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {root}}}}}
http: {{addr: 127.0.0.1:{port}}}
"""


@dataclass(frozen=True)
class Round:
    """Seconds of each contender, one after the other."""

    sha256: float
    disk: float
    build: float
    build_cpu: float
    """CPU seconds of all threads; the minimum is two hashes of each byte."""
    peak_mb: float
    buildah: float | None


def write_weights(path: Path, size: int) -> None:
    with path.open("wb") as file:
        for start in range(0, size, CHUNK):
            file.write(os.urandom(min(CHUNK, size - start)))


def train(folder: Path, size: int) -> Path:
    (folder / "small").mkdir(parents=True)
    for i in range(FILES):
        write_weights(folder / f"weights-{i}.bin", size // FILES)
    for i in range(SMALL_FILES):
        (folder / "small" / f"{i}.txt").write_bytes(os.urandom(SMALL_BYTES))
    os.sync()
    return folder


def cached(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.read(CHUNK):
                    pass


def sha256_seconds(size: int) -> float:
    data = os.urandom(CHUNK)
    digest = hashlib.sha256()
    started = time.perf_counter()
    for start in range(0, size, CHUNK):
        digest.update(data[: min(CHUNK, size - start)])
    return time.perf_counter() - started


def disk_seconds(path: Path, size: int) -> float:
    """Write and sync one file of as many bytes as a build writes."""
    data = memoryview(mmap.mmap(-1, DISK_CHUNK))
    data[:] = os.urandom(DISK_CHUNK)
    started = time.perf_counter()
    copy = NewFile(path, size, direct=True)
    for start in range(0, size, DISK_CHUNK):
        copy.write(data[: min(DISK_CHUNK, size - start)], start)
    copy.finish()
    took = time.perf_counter() - started
    path.unlink()
    return took


def build(folder: Path, store: Path, compression: str = "none") -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", BUILD, folder, store, compression],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


class Buildah:
    """Buildah, with its own storage."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.driver = next((driver for driver in ("overlay", "vfs") if self._works(driver)), "")

    @property
    def missing(self) -> str:
        if shutil.which("buildah") is None:
            return "buildah is not installed (Debian package buildah)"
        return "" if self.driver else "buildah works with neither overlay nor vfs here"

    def seconds(self, trained: Path) -> float:
        with self._storage(self.driver) as storage:
            started = time.perf_counter()
            container = _output(*storage, "from", "scratch")
            _output(*storage, "copy", container, str(trained), "/models")
            _output(*storage, "commit", "--quiet", "--disable-compression", container, "bench")
            os.sync()  # as our build has, when it ends
            return time.perf_counter() - started

    def _works(self, driver: str) -> bool:
        if shutil.which("buildah") is None:
            return False
        with self._storage(driver) as storage:
            done = subprocess.run([*storage, "from", "scratch"], capture_output=True, check=False)
            return done.returncode == 0

    @contextlib.contextmanager
    def _storage(self, driver: str) -> Iterator[tuple[str, ...]]:
        root, run = self._folder / "buildah", self._folder / "buildah-run"
        storage = ("buildah", "--root", str(root), "--runroot", str(run), "--storage-driver", driver)
        try:
            yield storage
        finally:
            subprocess.run([*storage, "rm", "--all"], capture_output=True, check=False)
            for path in (root, run):
                remove_tree(path)


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()


def one_round(folder: Path, trained: Path, size: int, buildah: Buildah | None) -> Round:
    store = folder / "store"
    before = sha256_seconds(size)
    cached(trained)
    built = build(trained, store)
    remove_tree(store)
    after = sha256_seconds(size)
    buildah_seconds = None if buildah is None or buildah.missing else buildah.seconds(trained)
    disk = disk_seconds(folder / "raw", size)
    measured = Round(
        (before + after) / 2, disk, built["seconds"], built["cpu"], built["peakMB"], buildah_seconds
    )
    print(
        f"  sha256 {measured.sha256:.2f} s, disk {disk:.2f} s, build {measured.build:.2f} s"
        f" ({measured.sha256 / measured.build:.2f}),"
        f" buildah {'-' if buildah_seconds is None else f'{buildah_seconds:.2f} s'}",
        flush=True,
    )
    return measured


def grown(path: Path, before: int) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) - before


async def uploads(folder: Path, trained: Path, size: int) -> dict[str, Any]:
    """First push, a version with one file of ten changed, the same files built again elsewhere."""
    port, data = proxies.free_port(), folder / "registry"
    config = folder / "registry.yml"
    config.write_text(REGISTRY.format(root=data, port=port))
    results: dict[str, Any] = {}

    async def version(name: str, lineage: str = "1") -> None:
        store = ModelStore(folder / f"store-{name}")
        digest = build_image(trained, store, repository="bench/m", lineage={"uid": lineage}).digest
        before = grown(data, 0)
        started = time.perf_counter()
        async with Registry(Credentials.none()) as registry:
            pushed = await push(registry, store, digest, Reference.parse(f"127.0.0.1:{port}/bench/m:{name}"))
        results[name] = {
            "bytesUploaded": pushed.bytes_uploaded,
            "registryGrewBytes": grown(data, before),
            "seconds": round(time.perf_counter() - started, 2),
        }
        print(f"  {name}: {results[name]}", flush=True)
        remove_tree(store.root)

    both = f"{proxies.PROXY_CORE},{proxies.LOAD_CORE}"
    with proxies.running(both, port, "sh", "-c", f"exec docker-registry serve {config} 2>/dev/null"):
        await version("first")
        await version("unchanged")
        await version("unchanged-by-another-job", "2")
        write_weights(trained / "weights-0.bin", size // FILES)
        await version("tenth-changed")
    return results


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="128 MB and three rounds")
    parser.add_argument("--folder", type=Path, help="where to write; three times the weights' size is needed")
    options = parser.parse_args()
    size = 128 * MB if options.quick else 1000 * MB
    folder = Path(tempfile.mkdtemp(prefix="images-", dir=options.folder))
    try:
        run(folder, size, 3 if options.quick else 21)
    finally:
        remove_tree(folder)


def run(folder: Path, size: int, rounds: int) -> None:
    trained = train(folder / "trained", size)
    buildah = Buildah(folder)
    print(f"{size // MB} MB; buildah: {buildah.missing or buildah.driver}", flush=True)
    one_round(folder, trained, size, None)  # the first finds cold caches
    measured = [one_round(folder, trained, size, None if n % 3 else buildah) for n in range(rounds)]
    compressed = build(trained, folder / "store", "zstd")
    remove_tree(folder / "store")
    ratio = interval([r.sha256 / r.build for r in measured])
    peak = max(r.peak_mb for r in measured)
    results: dict[str, Any] = {
        "bytes": size,
        "buildOverSha256": ratio,
        "buildMBPerSecond": interval([size / MB / r.build for r in measured]),
        "buildCpuSecondsPerGB": interval([r.build_cpu * 1000 * MB / size for r in measured]),
        "sha256MBPerSecond": interval([size / MB / r.sha256 for r in measured]),
        "diskMBPerSecond": interval([size / MB / r.disk for r in measured]),
        "peakMB": round(peak, 1),
        "zstd": {"seconds": round(compressed["seconds"], 2), "peakMB": round(compressed["peakMB"], 1)},
    }
    bars = [
        at_least("build rate over sha256 rate", ratio, BUILD_BAR),
        Bar("peak memory of a build, MB", round(peak, 1), MEMORY_BAR_MB, peak <= MEMORY_BAR_MB),
    ]
    if buildah.missing:
        results["buildah"] = {"skipped": buildah.missing}
    else:
        times = [(r.buildah, r.build) for r in measured if r.buildah is not None]
        results["buildah"] = {
            "storageDriver": buildah.driver,
            "seconds": round(statistics.median(seconds for seconds, _ in times), 2),
            "buildahOverOurs": interval([seconds / ours for seconds, ours in times]),
        }
    if shutil.which("docker-registry") is None:
        results["uploads"] = {"skipped": "docker-registry is not installed (Debian package docker-registry)"}
    else:
        pushed = results["uploads"] = asyncio.run(uploads(folder, trained, size))
        unchanged = float(pushed["unchanged"]["bytesUploaded"])
        bars.append(
            Bar("bytes uploaded for unchanged files", unchanged, UNCHANGED_BAR, unchanged <= UNCHANGED_BAR)
        )
    report("images", results, bars)


if __name__ == "__main__":
    main()
