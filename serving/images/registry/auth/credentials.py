"""Logins at registries, from the user's Docker configuration and its helper programs, or from a Secret.

The file is read at each look-up, so that a `docker login` takes effect at once.
"""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serving import errors
from serving.images.registry.auth import docker_config
from serving.images.registry.auth.docker_config import DockerConfig, Login
from serving.images.registry.reference import DOCKER_HUB, Reference
from serving.settings import DEFAULTS

_TOKEN_USER = "<token>"  # noqa: S105 by this user name, helpers mark an identity token; no password
_NOT_FOUND = "credentials not found in native keychain"
"""Output of helpers without a login (github.com/docker/docker-credential-helpers, credentials/error.go)."""


class Credentials:
    """Logins by registry and repository."""

    def __init__(
        self, read: Callable[[], DockerConfig], helper_seconds: float = DEFAULTS.registry.helper_seconds
    ) -> None:
        """`read` returns the present configuration, and may block."""
        self._read = read
        self._helper_seconds = helper_seconds

    @classmethod
    def none(cls) -> "Credentials":
        """Return anonymous credentials."""
        return cls(DockerConfig)

    @classmethod
    def from_docker(
        cls, directory: Path | None = None, *, helper_seconds: float = DEFAULTS.registry.helper_seconds
    ) -> "Credentials":
        """Return the credentials in `config.json` of Docker's directory (`$DOCKER_CONFIG`, else `~/.docker`).

        Without that file all access is anonymous. A helper program has `helper_seconds` for its answer.
        """

        def read() -> DockerConfig:
            base = directory or Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
            path = base / "config.json"
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                return DockerConfig()
            except OSError as error:
                raise errors.Permanent("InvalidCredentials", f"{path}: cannot be read: {error}") from error
            return docker_config.parse(data, str(path), programs=True)

        return cls(read, helper_seconds)

    @classmethod
    def from_secret(cls, data: bytes, name: str) -> "Credentials":
        """Return the credentials in a Secret's `.dockerconfigjson`.

        Args:
            data: the JSON, decoded from base64.
            name: of the Secret, for messages.

        Raises:
            errors.Permanent: `InvalidCredentials`.
        """
        config = docker_config.parse(data, f"Secret {name}: .dockerconfigjson", programs=False)
        return cls(lambda: config)

    async def login(self, reference: Reference) -> Login | None:
        """Return the login for a repository, or None for anonymous access.

        Raises:
            errors.Permanent: `InvalidCredentials`, the file or the helper program is unusable.
            errors.Temporary: `CredentialHelperFailed`, the helper program failed or took too long.
        """
        config = await asyncio.to_thread(self._read)
        if helper := config.helper(reference.host):
            server = docker_config.HUB_SERVER if reference.host == DOCKER_HUB else reference.host
            if (login := await self._run_helper(helper, server)) is not None:
                return login
        return config.login(reference.host, reference.repository)

    async def _run_helper(self, helper: str, server: str) -> Login | None:
        """Return the login that a helper program has for a server; None if it has none."""
        program = f"docker-credential-{helper}"
        try:
            process = await asyncio.create_subprocess_exec(
                program,
                "get",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        except OSError as error:
            raise errors.Permanent("InvalidCredentials", f"{program} cannot be run: {error}") from error
        try:
            async with asyncio.timeout(self._helper_seconds):
                out, _ = await process.communicate(server.encode())
        except TimeoutError as error:
            raise errors.Temporary(
                "CredentialHelperFailed", f"{program} did not answer within {self._helper_seconds:g} s"
            ) from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            if _NOT_FOUND in out.decode(errors="replace"):
                return None
            raise errors.Temporary("CredentialHelperFailed", f"{program} failed with {process.returncode}")
        return _login_of(program, out)


def _login_of(program: str, out: bytes) -> Login:
    try:
        answer: Any = json.loads(out)
        username, secret = str(answer["Username"]), str(answer["Secret"])
    except (ValueError, KeyError, TypeError) as error:
        raise errors.Permanent(
            "InvalidCredentials", f"{program} must answer {{Username, Secret}} as JSON"
        ) from error
    if username == _TOKEN_USER:
        return Login(identity_token=secret)
    return Login(username, secret)
