"""The system's programs that the test bed is made with."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess

from bpt.base.errors import RunError

_PACKAGES = {"ip": "iproute2", "tc": "iproute2", "nsenter": "util-linux", "unshare": "util-linux", "mount": "mount"}
_SYSTEM_FOLDERS = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"]


def search_path() -> str:
    """``PATH``, and behind it the folders of the system's programs, which not every shell has in it."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join([*folders, *(folder for folder in _SYSTEM_FOLDERS if folder not in folders)])


def why_not() -> str | None:
    """Why no test bed can be here; ``None``: nothing stands against it, as far as these programs go."""
    if platform.system() != "Linux":
        return f"the test bed needs Linux (network namespaces, cgroups); this is {platform.system()}"
    if os.geteuid() != 0:
        return "the test bed needs root: it makes network namespaces and cgroups; try sudo"
    for program, package in _PACKAGES.items():
        if not shutil.which(program, path=search_path()):
            return f'the program "{program}" is missing (Debian, Ubuntu: apt install {package})'
    try:  # root inside a container may lack the rights: try what every command on a host begins with
        call("unshare", "--mount", "--net", "--uts", "mount", "-t", "sysfs", "sysfs", "/sys")
    except RunError as error:
        return f"this root may not make namespaces (inside a container: run it with --privileged): {error}"
    return None


def call(*words: str) -> str:
    """Run a program and return what it printed.

    Raises:
        RunError: it failed; with its words and its own message.
    """
    environment = {**os.environ, "PATH": search_path(), "LC_ALL": "C"}
    try:
        done = subprocess.run(
            words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise RunError(f'the program "{words[0]}" is missing') from error
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
        raise RunError(f"{' '.join(words)}: {said}")
    return done.stdout
