"""A progress bar over the iterations of a run, on a terminal or in a notebook only, or what shows them in its place."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Protocol

from tqdm import tqdm


class ProgressObserver(Protocol):
    """Shows the iterations of a run in place of its bar."""

    def count_from(self, done: int, total: int) -> None:
        """Note that a run begins, or continues, with ``done`` of ``total`` iterations."""

    def advance_to(self, done: int, loss: float | None) -> None:
        """Note that so many iterations are done; ``loss`` of the last one, ``None`` if it is not known."""


_OBSERVERS: list[ProgressObserver] = []


@contextmanager
def showing_progress(observer: ProgressObserver) -> Iterator[None]:
    """Let ``observer`` show the iterations of runs in the context, which draw no bar then."""
    _OBSERVERS.append(observer)
    try:
        yield
    finally:
        _OBSERVERS.remove(observer)


class ProgressBar:
    """Shows iterations done, speed and loss; silent if stderr is neither a terminal nor a notebook's.

    Args:
        total: iterations of the whole run.
        done: iterations that a resumed run did before.
        label: a word or two for the work.
        shown: whether this is the rank that shows it.
    """

    def __init__(self, total: int, done: int = 0, label: str = "", shown: bool = True) -> None:
        self._observer = _OBSERVERS[-1] if shown and _OBSERVERS else None
        self._done = done
        if self._observer:
            self._observer.count_from(done, total)
            shown = False
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
        self.to(self._done + 1, loss)

    def to(self, iterations: int, loss: float | None = None) -> None:
        """Show that this number of iterations of the whole run is done."""
        self._done = iterations
        if self._observer:
            self._observer.advance_to(iterations, loss)
            return
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
