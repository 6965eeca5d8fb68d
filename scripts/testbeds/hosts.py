"""The hosts of a test bed, as a user writes them: ``a:1.0,b:0.25:2``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bpt.base.errors import UsageError, did_you_mean

_SUBNET = "10.77.0"  # seen by the hosts only: they have no way out, so it cannot collide with a real network
PREFIX_LENGTH = 24
_MOST_HOSTS = 254
_LEAST_SHARE = 0.01
# A letter first (Open MPI takes a number for something else); short enough for a host name and a folder.
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?", re.ASCII)


@dataclass(frozen=True)
class Host:
    """One host.

    Args:
        name: its host name.
        share: the processor time it may use, in cores; 0.25 is a quarter of one core.
        slots: the ranks it takes unless a run says otherwise.
        address: its IPv4 address.
    """

    name: str
    share: float
    slots: int
    address: str

    def __str__(self) -> str:
        return f"{self.name}:{self.share:g}:{self.slots}"


def parse_hosts(text: str) -> tuple[Host, ...]:
    """The hosts of ``name:share[:slots],...``; slots are one for each whole core, and at least one.

    Raises:
        UsageError: the text says something else, or a name twice.
    """
    hosts: list[Host] = []
    for word in text.split(","):
        name, *rest = word.strip().split(":")
        if len(rest) not in {1, 2}:
            raise UsageError(f"--hosts: {word!r} is not name:share or name:share:slots, as in 'a:1.0,b:0.25'")
        if not _NAME.fullmatch(name) or name == "localhost":
            raise UsageError(
                f"--hosts: {name!r} cannot be a host's name: a letter, then letters, digits and hyphens, all small, "
                "at most 32, and not localhost"
            )
        if any(name == host.name for host in hosts):
            raise UsageError(f"--hosts: there are two hosts called {name!r}")
        share = _share(word, rest[0])
        slots = _count(f"--hosts: {word!r}", rest[1]) if rest[1:] else max(1, int(share))
        hosts.append(Host(name, share, slots, f"{_SUBNET}.{len(hosts) + 1}"))
    if len(hosts) > _MOST_HOSTS:
        raise UsageError(f"--hosts: {len(hosts)} hosts; the test bed has addresses for {_MOST_HOSTS}")
    return tuple(hosts)


def parse_slots(text: str, hosts: Sequence[Host]) -> dict[str, int]:
    """Ranks by host for one run, from ``a:2,b:1``: the hosts named take part, in this order.

    Raises:
        UsageError: the text says something else, or names a host that there is not, or one twice.
    """
    slots: dict[str, int] = {}
    for word in text.split(","):
        name, *rest = word.strip().split(":")
        if len(rest) != 1:
            raise UsageError(f"--slots: {word!r} is not name:slots, as in 'a:2,b:1'")
        find_host(name, hosts, "--slots")
        if name in slots:
            raise UsageError(f"--slots: host {name!r} is there twice")
        slots[name] = _count(f"--slots: {word!r}", rest[0])
    return slots


def find_host(name: str, hosts: Sequence[Host], flag: str) -> Host:
    """The host of that name.

    Raises:
        UsageError: there is none; the message begins with ``flag``.
    """
    for host in hosts:
        if host.name == name:
            return host
    known = [host.name for host in hosts]
    raise UsageError(f"{flag}: no host {name!r}{did_you_mean(name, known)}; the hosts are {', '.join(known)}")


def hosts_file(hosts: Sequence[Host]) -> str:
    """The text of the hosts' ``/etc/hosts``."""
    lines = [("127.0.0.1", "localhost"), *((host.address, host.name) for host in hosts)]
    return "".join(f"{address}\t{name}\n" for address, name in lines)


def _share(word: str, text: str) -> float:
    if not re.fullmatch(r"\d+\.?\d*|\.\d+", text, re.ASCII):
        raise UsageError(f"--hosts: {word!r}: the share {text!r} is not a number of cores, such as 1.0 or 0.25")
    share = float(text)
    if share < _LEAST_SHARE:
        raise UsageError(f"--hosts: {word!r}: a share is at least {_LEAST_SHARE:g} of a core")
    return share


def _count(where: str, text: str) -> int:
    if not re.fullmatch(r"\d+", text, re.ASCII) or not 1 <= int(text) <= 1024:
        raise UsageError(f"{where}: the number of slots {text!r} is not a whole number from 1 to 1024")
    return int(text)
