"""Tries to bind a TCP port as another user, in every way, until its input ends.

Prints {"rounds": N, "bound": [...]}: how often it has tried all ways, and those that succeeded. `PROGRAM
USER ADDRESS PORT`.
"""

import itertools
import json
import os
import select
import socket
import sys

SHARING = ((), (socket.SO_REUSEADDR,), (socket.SO_REUSEPORT,), (socket.SO_REUSEADDR, socket.SO_REUSEPORT))


def ways(address: str) -> list[tuple[str, int | None, tuple[int, ...]]]:
    """Return addresses with IPV6_V6ONLY and options; with it first, as Linux then refuses less."""
    ipv4 = itertools.product((address, "0.0.0.0"), (None,), SHARING)
    ipv6 = itertools.product(("::",), (1, 0), SHARING)
    mapped = itertools.product((f"::ffff:{address}", "::ffff:0.0.0.0"), (0,), SHARING)
    return [*ipv4, *ipv6, *mapped]


def binds(address: str, port: int, only_ipv6: int | None, options: tuple[int, ...]) -> bool:
    with socket.socket(socket.AF_INET if only_ipv6 is None else socket.AF_INET6) as thief:
        if only_ipv6 is not None:
            thief.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only_ipv6)
        for option in options:
            thief.setsockopt(socket.SOL_SOCKET, option, 1)
        try:
            thief.bind((address, port))
        except OSError:
            return False
    return True


def main(user: int, address: str, port: int) -> None:
    os.nice(10)  # it never waits: the product and other tests would have half of a core less
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    rounds, bound = 0, {}
    while not rounds or not select.select([sys.stdin], [], [], 0)[0]:
        for way in ways(address):
            if binds(way[0], port, *way[1:]):
                bound.setdefault(str(way), rounds)
        rounds += 1
    print(json.dumps({"rounds": rounds, "bound": bound}))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
