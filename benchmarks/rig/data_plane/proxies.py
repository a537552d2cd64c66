"""Other proxies with minimal configurations that split traffic 90/10 between the same two backends."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from serving.router.envoy.process.binary import find_envoy

PROXY_CORE, LOAD_CORE = "0", "1"
"""The proxy has a core to itself; load and backends share another."""
START_SECONDS = 15.0

NGINX = """daemon off; worker_processes 1; pid {dir}/{name}.pid; error_log stderr error;
events {{ worker_connections 8192; }}
http {{ access_log off; keepalive_requests 100000000;
client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u;
scgi_temp_path {dir}/s;
{body} }}
"""
BACKEND = 'server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ return 200 "{body}"; }} }}'
SPLIT = """split_clients "$request_id" $arm {{ 90% stable; * canary; }}
upstream stable {{ server 127.0.0.1:{0}; keepalive 256; }}
upstream canary {{ server 127.0.0.1:{1}; keepalive 256; }}
server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ proxy_http_version 1.1;
proxy_set_header Connection ""; proxy_pass http://$arm; }} }}"""
HAPROXY = """global
  nbthread 1
  maxconn 2000
defaults
  mode http
  timeout connect 1s
  timeout client 300s
  timeout server 300s
  http-reuse always
frontend f
  bind 127.0.0.1:{port}
  default_backend b
backend b
  balance roundrobin
  server stable 127.0.0.1:{0} weight 90
  server canary 127.0.0.1:{1} weight 10
"""
AIOHTTP = """
import random, sys, aiohttp
from aiohttp import web
PORT, A, B = (int(x) for x in sys.argv[1:4])
async def proxy(request):
    port = A if random.random() < 0.9 else B
    url = f"http://127.0.0.1:{port}{request.path_qs}"
    async with request.app["client"].request(request.method, url, data=await request.read()) as answer:
        return web.Response(status=answer.status, body=await answer.read())
async def start(app):
    app["client"] = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
app = web.Application()
app.on_startup.append(start)
async def stop(app):
    await app["client"].close()
app.on_cleanup.append(stop)
app.router.add_route("*", "/{tail:.*}", proxy)
web.run_app(app, host="127.0.0.1", port=PORT, access_log=None, print=None)
"""
FASTAPI = """
import random, sys, httpx, uvicorn
from fastapi import FastAPI, Request, Response
PORT, A, B = (int(x) for x in sys.argv[1:4])
app = FastAPI()
client = httpx.AsyncClient(limits=httpx.Limits(max_connections=None, max_keepalive_connections=256))
@app.api_route("/{path:path}", methods=["GET", "POST"])
async def proxy(path: str, request: Request):
    port = A if random.random() < 0.9 else B
    url = f"http://127.0.0.1:{port}/{path}"
    answer = await client.request(request.method, url, content=await request.body())
    return Response(answer.content, answer.status_code)
uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="error")
"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_listening(port: int, process: subprocess.Popen[bytes], seconds: float = START_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.2):
            return
        time.sleep(0.02)
    raise RuntimeError(f"{process.args!r} does not listen on {port}")


@contextlib.contextmanager
def running(core: str, port: int, *command: str, seconds: float = START_SECONDS) -> Iterator[int]:
    process = subprocess.Popen(
        ["taskset", "-c", core, *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    try:
        wait_listening(port, process, seconds)
        yield port
    finally:
        stop(process)


def pin(pid: int) -> None:
    """Confine all threads of a process to the proxies' core, as `contender` starts its own."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {int(PROXY_CORE)})


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process: SIGTERM, then SIGKILL."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def nginx(folder: Path, core: str, port: int, name: str, body: str) -> Iterator[int]:
    path = folder / f"{name}.conf"
    user = "user root;\n" if os.geteuid() == 0 else ""
    path.write_text(user + NGINX.format(dir=folder, name=name, body=body))
    with running(core, port, _found("nginx"), "-c", str(path), "-p", str(folder)):
        yield port


@contextlib.contextmanager
def backends(folder: Path, body: str) -> Iterator[tuple[int, int]]:
    """Two servers at a tenth of the cost of any proxy: nginx with a fixed body."""
    ports = (free_port(), free_port())
    text = "\n".join(BACKEND.format(port=port, body=body) for port in ports)
    with nginx(folder, LOAD_CORE, ports[0], "backends", text):
        yield ports


@contextlib.contextmanager
def contender(kind: str, folder: Path, ports: tuple[int, int]) -> Iterator[int]:
    """Start one of `minimal-envoy`, `nginx`, `haproxy`, `aiohttp`, `fastapi-httpx`; yields its port."""
    port = free_port()
    if kind == "nginx":
        with nginx(folder, PROXY_CORE, port, kind, SPLIT.format(*ports, port=port)):
            yield port
        return
    if kind == "haproxy":
        (folder / "haproxy.cfg").write_text(HAPROXY.format(*ports, port=port))
        command = [_found("haproxy"), "-db", "-f", str(folder / "haproxy.cfg")]
    elif kind == "minimal-envoy":
        (folder / "minimal.json").write_text(json.dumps(minimal_envoy(port, ports)))
        command = [
            find_envoy(),
            "-c",
            str(folder / "minimal.json"),
            "--disable-hot-restart",
            "--concurrency",
            "1",
        ]
        command += ["--log-level", "error"]
    else:
        source = {"aiohttp": AIOHTTP, "fastapi-httpx": FASTAPI}[kind]
        command = [sys.executable, "-c", source, *(str(p) for p in (port, *ports))]
    with running(PROXY_CORE, port, *command):
        yield port


def listener(port: int) -> int:
    """Return the process that listens on a port."""
    inodes = {
        fields[9]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if (fields := line.split())[1].endswith(f":{port:04X}") and fields[3] == "0A"
    }
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                for handle in (process / "fd").iterdir():
                    if any(str(handle.readlink()) == f"socket:[{inode}]" for inode in inodes):
                        return int(process.name)
    raise RuntimeError(f"nothing listens on {port}")


def available(kind: str) -> bool:
    return kind not in ("nginx", "haproxy") or _where(kind) is not None


def minimal_envoy(port: int, ports: tuple[int, int]) -> dict[str, object]:
    """The smallest Envoy configuration that splits 90/10 and keeps connections."""
    types = "type.googleapis.com/envoy.extensions.filters"
    arms = [("stable", 90, ports[0]), ("canary", 10, ports[1])]
    manager = {
        "@type": f"{types}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "minimal",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [
                        {
                            "match": {"prefix": "/"},
                            "route": {
                                "weighted_clusters": {
                                    "clusters": [{"name": n, "weight": w} for n, w, _ in arms]
                                }
                            },
                        }
                    ],
                }
            ]
        },
        "http_filters": [
            {"name": "router", "typed_config": {"@type": f"{types}.http.router.v3.Router"}},
        ],
    }

    def address(p: int) -> dict[str, object]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": p}}

    chain = {"filters": [{"name": "http", "typed_config": manager}]}
    return {
        "static_resources": {
            "listeners": [{"name": "l", "address": address(port), "filter_chains": [chain]}],
            "clusters": [
                {
                    "name": n,
                    "type": "STATIC",
                    "load_assignment": {
                        "cluster_name": n,
                        "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(p)}}]}],
                    },
                }
                for n, _, p in arms
            ],
        }
    }


def _where(name: str) -> str | None:
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def _found(name: str) -> str:
    path = _where(name)
    if path is None:
        raise FileNotFoundError(f"{name} is not installed")
    return path
