"""Keeps the campaign from every network but this machine's loopback, or refuses to let it begin."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys
from pathlib import Path
from typing import Any

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
GET_FLAGS, SET_FLAGS, IS_UP = 0x8913, 0x8914, 0x1
ELSEWHERE = ("192.0.2.1", 9)
"""An address that is kept for documentation: no host has it."""


class NetworkRefusedError(Exception):
    """A connection to another machine, or a campaign that could make one."""


def isolate() -> str:
    """Leave all networks; return how. Call before any thread exists and before anything connects.

    Raises
    ------
    NetworkRefusedError
        If this process could still reach another machine.
    """
    if not (_has_loopback_only() or enter_namespace()):
        block_sockets()
    return in_force()


def in_force() -> str:
    """Say what keeps this process from other machines: `namespace` or `blocked sockets`."""
    if _has_loopback_only():
        return "namespace"
    with socket.socket() as probe:
        probe.settimeout(0.2)
        try:
            probe.connect(ELSEWHERE)
        except NetworkRefusedError:
            return "blocked sockets"
        except OSError:
            pass
    raise NetworkRefusedError("other machines can be reached: the campaign does not start")


def enter_namespace() -> bool:
    """Move this process into a network namespace that has a loopback and nothing else."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(CLONE_NEWNET) != 0:
        if libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
            return False
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(control, GET_FLAGS, request))[1]
        fcntl.ioctl(control, SET_FLAGS, struct.pack("16sh14x", b"lo", flags | IS_UP))
    return True


def block_sockets() -> None:
    """Refuse connections to other machines in this process, and in what is forked from it, for ever."""

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo"):
            place = arguments[0] if event == "socket.getaddrinfo" else arguments[1]
            if not _is_here(place[0] if isinstance(place, tuple) else place):
                raise NetworkRefusedError(f"{event} to {place!r}")

    sys.addaudithook(refuse)


def _is_here(host: object) -> bool:
    """Whether a host, or the path of a socket, is on this machine."""
    text = host.decode() if isinstance(host, bytes) else host
    if not isinstance(text, str):
        return text is None
    return text in ("", "localhost", "::1", "0.0.0.0") or text.startswith(("127.", "/", "\0"))


def _has_loopback_only() -> bool:
    """Whether the only network interface is the loopback."""
    try:
        lines = Path("/proc/self/net/dev").read_text().splitlines()[2:]
    except OSError:
        return False
    return [line.split(":")[0].strip() for line in lines] == ["lo"]
