"""Completion of command lines by shells: quick, and silent without an API.

Typer's own completion parses with Pydantic, and the client of the other commands imports aiohttp: each takes
longer than a user waits for a Tab.
"""
