"""PMIx, the interface of Open MPI's launcher, as far as MPI itself does not expose it."""

from __future__ import annotations

import ctypes
import re
from typing import Any

_LIBRARY = r"/libpmix[^/]*\.so|/libopen-pal[^/]*\.so"
_LOST_LAUNCHER = (-61, -101)  # PMIX_ERR_LOST_CONNECTION, PMIX_ERR_LOST_CONNECTION_TO_SERVER
_ACTION_COMPLETE = -334  # no other handler has to handle the event

_ANY, _SIZE = ctypes.c_void_p, ctypes.c_size_t
_Done = ctypes.CFUNCTYPE(None, ctypes.c_int, _ANY, _SIZE, _ANY, _ANY, _ANY)  # pmix_event_notification_cbfunc_fn_t
_Handler = ctypes.CFUNCTYPE(
    None, _SIZE, ctypes.c_int, _ANY, _ANY, _SIZE, _ANY, _SIZE, _ANY, _ANY
)  # pmix_notification_fn_t


def loaded_pmix() -> ctypes.CDLL | None:
    """Return the library with PMIx that MPI has loaded; ``None`` if there is none."""
    try:
        with open("/proc/self/maps") as maps:
            files = dict.fromkeys(line.split(maxsplit=5)[5].strip() for line in maps if re.search(_LIBRARY, line))
    except OSError:
        return None
    for file in files:
        try:
            library = ctypes.CDLL(file)
            library.PMIx_Get  # noqa: B018  raises if it is missing
        except (OSError, AttributeError):
            continue
        return library
    return None


def outlive_launcher() -> None:
    """Let this process continue when its launcher ends; to be called when MPI has started.

    Open MPI ends a process that loses the connection to its launcher, unless a handler takes that event.
    """
    library = loaded_pmix()
    if library is not None:
        codes = (ctypes.c_int * len(_LOST_LAUNCHER))(*_LOST_LAUNCHER)
        library.PMIx_Register_event_handler(codes, _SIZE(len(codes)), None, _SIZE(0), _HANDLER, None, None)


def _complete(*event: Any) -> None:
    done, data = event[-2:]
    if done:
        _Done(done)(_ACTION_COMPLETE, None, 0, None, None, data)


_HANDLER = _Handler(_complete)  # this reference keeps it alive, since the library calls it
