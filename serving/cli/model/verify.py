"""`slipway model verify`: checks a version's files against their digests, and its signature."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.filesize import decimal

from serving import errors
from serving.cli.model.store import VersionName, open_store, ready
from serving.cli.options import with_target
from serving.cli.session import with_kube
from serving.cli.target import Target
from serving.images.documents.signing import PublicKey, by_fingerprint, public_key
from serving.images.registry import Credentials, Reference, Registry, signatures
from serving.images.store.model_store import ModelStore
from serving.resources import kinds, names

if TYPE_CHECKING:
    from serving.kube import Kube


@with_target
def verify(
    target: Target,
    name: VersionName,
    key: Annotated[
        list[Path] | None,
        typer.Option(
            "--key",
            metavar="FILE",
            help="PEM public key; the image must be signed with one of them.  [default: the Model's]",
        ),
    ] = None,
) -> None:
    """Check a version's files and its signature.

    Every byte in this machine's model store is read; exit code 1 if something is wrong.
    """
    store = open_store(target, ModelStore)

    async def work(kube: "Kube") -> None:
        version = await ready(kube, target.namespace, name)
        status = version["status"]
        files = await asyncio.to_thread(store.verify, status["digest"], deep=True)
        _compare(name, status, {file.path: file.digest for file in files})
        print(f"{name}: {status['digest']}")
        total = decimal(sum(file.size for file in files))
        print(f"  {len(files)} files, {total}: the seal and all digests match")
        keys = [_read(path) for path in key or []] or await _keys_of_model(
            kube, target.namespace, version["spec"]["modelName"]
        )
        if keys:
            signers = await _signers(status["image"], status["digest"], keys)
            print(f"  signed by {', '.join(sorted(signers))} ({len(keys)} trusted)")
        else:
            print("  signature not checked: no --key, and the Model has no verification.keys")

    with_kube(target.kubeconfig, work)


def _compare(name: str, status: Any, digests: dict[str, str]) -> None:
    expected = {file["path"]: file["digest"] for file in status.get("files") or []}
    if wrong := sorted(
        path for path in expected.keys() | digests.keys() if expected.get(path) != digests.get(path)
    ):
        raise errors.UserError(
            f"the status of ModelVersion {name} does not describe its image: {', '.join(wrong[:3])}"
        )


def _read(path: Path) -> PublicKey:
    try:
        return public_key(path.read_bytes())
    except OSError as error:
        raise errors.UserError(f"--key {path}: cannot be read: {error}") from error


async def _keys_of_model(kube: "Kube", namespace: str, name: str) -> list[PublicKey]:
    try:
        model = await kube.get(kinds.MODEL, namespace, name)
    except errors.NotFound:
        return []
    return [public_key(pem.encode()) for pem in (model["spec"].get("verification") or {}).get("keys", [])]


async def _signers(image: str, digest: str, keys: Sequence[PublicKey]) -> frozenset[str]:
    """Return the fingerprints of the keys that have signed the image.

    Raises:
        errors.Permanent: `SignatureMissing`, `SignatureInvalid`.
    """
    if image.startswith(f"{names.LOCAL_REGISTRY}/"):
        raise errors.Permanent(
            "SignatureMissing", f"{image} was never pushed: signatures lie beside images in registries"
        )
    async with Registry(Credentials.from_docker()) as client:
        reference = Reference.parse(image)
        await signatures.require(client, reference, digest, keys)
        return await signatures.signers(client, reference, digest, by_fingerprint(keys))
