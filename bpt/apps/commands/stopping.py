"""``bpt stop``: ask a run to write a snapshot and to stop, and wait until it has ended."""

from __future__ import annotations

import logging
import os
import socket
import time
from pathlib import Path

from bpt.base.errors import RunError, UserError
from bpt.base.signals import STOP_SIGNAL
from bpt.config.plan.run_plan import RunPlan
from bpt.train.state.prefix_lock import LockHolder, holder_of

LOG = logging.getLogger("bpt")

_POLL_INTERVAL = 0.1  # seconds between two checks of the lock


def stop(plan: RunPlan) -> None:
    """Stop the run that writes snapshots under the prefix of ``plan``, and return when it has ended.

    Raises:
        UserError: there is no such run on this host, or it is another user's.
        RunError: the run ended without a new snapshot.
    """
    prefix = plan.snapshot_prefix
    holder = _living_holder(prefix)
    before = _newest_state(prefix)
    try:
        os.kill(holder.process, STOP_SIGNAL)
    except ProcessLookupError:
        raise UserError(f"there is nothing to stop: {holder} has just ended") from None
    except PermissionError:
        raise UserError(f"{holder} is the run of another user; only that user can stop it") from None
    LOG.info("Asked %s to stop; it writes a snapshot after the current iteration", holder)
    while (now := holder_of(prefix)) is not None and now.lives and now.process == holder.process:
        time.sleep(_POLL_INTERVAL)
    after = _newest_state(prefix)
    if after is None or after == before:
        newest = f"the newest is {after[1]}" if after else "there is none"
        raise RunError(f"the run has ended without a new snapshot under {prefix}: {newest}; its log says why")
    LOG.info("The run has ended; --snapshot %s continues it", after[1])


def _living_holder(prefix: str) -> LockHolder:
    holder, here = holder_of(prefix), socket.gethostname()
    if holder is None:
        raise UserError(
            f"there is nothing to stop: no run writes snapshots under {prefix} ({prefix}.lock is missing); call bpt "
            "stop in the folder in which the run was started, with the same --solver and --set"
        )
    if not holder.lives:
        raise UserError(f"there is nothing to stop: the run that left {prefix}.lock has ended ({holder})")
    if holder.host != here:
        raise UserError(f"the run is on another host, {holder}, and this one is {here}; call bpt stop there")
    return holder


def _newest_state(prefix: str) -> tuple[int, str] | None:
    """Return time and path of the newest solver state; ``None``: there is none."""
    folder, name = os.path.split(prefix)
    found = []
    for path in Path(folder or ".").iterdir():
        if path.name.startswith(f"{name}_iter_") and ".solverstate" in path.name:
            found.append((path.stat().st_mtime_ns, os.path.join(folder, path.name)))
    return max(found, default=None)
