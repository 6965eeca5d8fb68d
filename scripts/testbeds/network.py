"""The network: a switch, a cable to each host, and what makes them slow.

A network namespace holds a bridge, the switch; each host has a namespace of its own whose ``eth0`` ends at a port of
the bridge. Nothing of it can be seen outside these namespaces, so that neither the machine's network nor its firewall
meets it.
"""

from __future__ import annotations

from collections.abc import Sequence

from bpt.base.errors import RunError
from scripts.testbeds.hosts import PREFIX_LENGTH, Host
from scripts.testbeds.link import Link
from scripts.testbeds.names import NAMESPACES, PREFIX, SWITCH, namespace
from scripts.testbeds.programs import call

_BRIDGE = "bridge0"


def build(hosts: Sequence[Host], link: Link) -> None:
    """Make the switch and the hosts' network.

    Raises:
        RunError: a step failed. What was made by then stays; ``remove`` takes it away.
    """
    call("ip", "netns", "add", SWITCH)
    call("ip", "-n", SWITCH, "link", "add", _BRIDGE, "type", "bridge")
    call("ip", "-n", SWITCH, "link", "set", _BRIDGE, "up")
    for number, host in enumerate(hosts):
        inside, port = namespace(host.name), f"port{number}"
        call("ip", "netns", "add", inside)
        call("ip", "-n", SWITCH, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", inside)
        call("ip", "-n", SWITCH, "link", "set", port, "master", _BRIDGE, "up")
        call("ip", "-n", inside, "link", "set", "lo", "up")
        call("ip", "-n", inside, "address", "add", f"{host.address}/{PREFIX_LENGTH}", "dev", "eth0")
        call("ip", "-n", inside, "link", "set", "eth0", "up")
        _slow(inside, port, link)


def _slow(inside: str, port: str, link: Link) -> None:
    """Give one cable its bandwidth and latency."""
    root = ["root", "handle", "1:"]
    if link.latency:
        try:
            _qdisc(inside, "eth0", *root, *link.delay())
        except RunError as error:
            raise RunError(
                "--latency needs the kernel's netem (module sch_netem; some distributions have it in a package of "
                f"extra modules), and it cannot be used here: {error}. Leave --latency out"
            ) from error
        root = ["parent", "1:1", "handle", "10:"]
    if link.bandwidth is not None:
        # At both ends: the host's own sending, and all that the others send to it.
        _qdisc(inside, "eth0", *root, *link.shaper())
        _qdisc(SWITCH, port, "root", *link.shaper())


def _qdisc(inside: str, device: str, *words: str) -> None:
    call("tc", "-n", inside, "qdisc", "add", "dev", device, *words)


def remains() -> list[str]:
    """The namespaces of a test bed, whole or not, that are here."""
    return sorted(path.name for path in NAMESPACES.glob(f"{PREFIX}*"))


def remove() -> None:
    """Take all namespaces of a test bed away; with the switch go its ports and the hosts' ends of the cables."""
    for name in remains():
        call("ip", "netns", "delete", name)
