"""Reads a node's page of container metrics through the node proxy, and parses it beside the event loop."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from serving import errors
from serving.kube.connection import refusals
from serving.kube.connection.client import Kube
from serving.resources.formats import cadvisor

T = TypeVar("T")

PAGE_BYTES = 32 * 1024 * 1024
"""Longest page of a node: that of 250 Pods has 25 MB."""


async def read(kube: Kube, node: str, parse: Callable[[str], T], *, seconds: float) -> T:
    """Return what `parse` makes of the node's `/metrics/cadvisor`.

    Args:
        kube: a client.
        node: the node's name.
        parse: is called in a thread, as a page has tens of thousands of lines, which take a second.
        seconds: the timeout of the request.

    Raises:
        ValueError: the page is longer than PAGE_BYTES, or not UTF-8, or `parse` raises it.
        errors.ApiError: the API answered with an error.
        errors.Unavailable: the API or the node did not answer in time.
        RuntimeError: no thread can be started.
    """
    try:
        async with asyncio.timeout(seconds):
            page = await refusals.repeated(partial(_page, kube, node))
    except TimeoutError as error:
        message = f"the metrics of node {node}: no answer within {seconds:g} s"
        raise errors.Unavailable(message) from error
    return await asyncio.to_thread(lambda: parse(page.decode()))


async def _page(kube: Kube, node: str) -> bytes:
    page = bytearray()
    async for part in kube.stream(f"/api/v1/nodes/{node}/proxy/{cadvisor.PATH}"):
        page += part
        if len(page) > PAGE_BYTES:
            raise ValueError(f"the metrics of node {node} have more than {PAGE_BYTES} bytes")
    return bytes(page)
