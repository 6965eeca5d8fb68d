"""The script that starts a command on a host: what ``ssh`` is on a cluster, for mpirun too."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from scripts.testbeds.names import ASIDE, HOSTS_FILE, NAMESPACES, SCRATCH, namespace

# In two steps. The name and the mounts are the command's own and end with it. /sys shows the network of whoever mounted
# it, so it is mounted anew; the cgroups, which stand in it, go with it: a program asks them how much processor time it
# has, and mpirun on one host calls this script to start its daemon on another.
_TEXT = """\
#!/bin/sh
# enter HOST WORD...: run the words, joined, as a shell command on a host of the test bed, as ssh does.
set -e
case "$1" in
--inside) # in the host's network, with a name and mounts of its own
    echo "$2" >/proc/sys/kernel/hostname
    export HOSTNAME="$2" TMPDIR={scratch}
    mount --bind {hosts_file} /etc/hosts
    mount --rbind /sys/fs/cgroup {aside}
    mount -t sysfs sysfs /sys
    mount --move {aside} /sys/fs/cgroup
    mount -t tmpfs -o mode=1777 tmpfs {scratch}
    mount -t tmpfs -o mode=1777 tmpfs /dev/shm
    cd {folder}
    exec /bin/sh -c "$3"
    ;;
{hosts}
*)
    echo "error: the test bed has no host '$1'" >&2
    exit 1
    ;;
esac
host=$1
shift
exec nsenter --net="$network" unshare --mount --uts "$0" --inside "$host" "$*"
"""
_HOST = """\
{name})
    echo $$ >{procs}
    network={network}
    ;;"""


def script(groups: Mapping[str, Path], folder: str) -> str:
    """The text of the script, for one job.

    Args:
        groups: the job's cgroup on each host, by the host's name.
        folder: where commands start.
    """
    hosts = "\n".join(
        _HOST.format(name=name, procs=shlex.quote(str(group / "cgroup.procs")), network=NAMESPACES / namespace(name))
        for name, group in groups.items()
    )
    return _TEXT.format(hosts=hosts, scratch=SCRATCH, hosts_file=HOSTS_FILE, aside=ASIDE, folder=shlex.quote(folder))
