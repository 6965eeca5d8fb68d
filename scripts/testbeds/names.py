"""What the test bed's things are called. All begin with one prefix, so that they can be found after a crash."""

from __future__ import annotations

from pathlib import Path

PREFIX = "bpt-testbed"

# Emptied at a reboot, like all else here; nobody but root writes there.
RUN = Path("/run")
FOLDER = RUN / PREFIX
STATE = FOLDER / "state.json"
HOSTS_FILE = FOLDER / "hosts"
SCRATCH = FOLDER / "tmp"
ASIDE = FOLDER / "aside"
LOCK = RUN / f"{PREFIX}.lock"

NAMESPACES = RUN / "netns"  # where "ip netns" keeps them
SWITCH = PREFIX  # the network namespace that holds the bridge


def namespace(host: str) -> str:
    """The network namespace of a host."""
    return f"{PREFIX}-{host}"
