"""A progress bar over the iterations of a run, on a terminal or in a notebook only."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib.util import find_spec
from types import TracebackType
from typing import Any

from tqdm import tqdm


class ProgressBar:
    """Shows iterations done, speed and loss; silent if stderr is neither a terminal nor a notebook's.

    Args:
        total: iterations of the whole run.
        done: iterations that a resumed run did before.
        label: a word or two for the work.
        shown: whether this is the rank that shows it.
    """

    def __init__(self, total: int, done: int = 0, label: str = "", shown: bool = True) -> None:
        notebook = _in_notebook()
        self._bar: tqdm[Any] = (_notebook_bar() if notebook and shown else tqdm)(
            total=total,
            initial=done,
            desc=label,
            unit="iter",
            file=sys.stderr,
            disable=not (shown and (notebook or sys.stderr.isatty())),
            dynamic_ncols=True,
        )

    def advance(self, loss: float | None = None) -> None:
        """Show that one more iteration is done."""
        if loss is not None and not self._bar.disable:
            self._bar.set_postfix_str(f"loss {loss:.4g}", refresh=False)
        self._update(1)

    def to(self, iterations: int, loss: float | None = None) -> None:
        """Show that this number of iterations of the whole run is done."""
        if loss is not None and not self._bar.disable:
            self._bar.set_postfix_str(f"loss {loss:.4g}", refresh=False)
        self._update(iterations - self._bar.n)

    def _update(self, iterations: float) -> None:
        try:
            self._bar.update(iterations)
        except OSError:  # the terminal is closed, but the run continues
            self._bar.disable = True

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._bar.close()


def _in_notebook() -> bool:
    """Return whether a kernel of Jupyter runs this process."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and "IPKernelApp" in shell.config


def _notebook_bar() -> type[tqdm[Any]]:
    """Return a bar of widgets if they are installed; else one of characters, which a notebook also shows."""
    if find_spec("ipywidgets") is None:
        return tqdm
    from tqdm.notebook import tqdm as widget  # noqa: PLC0415  warns where there are none

    return widget
