"""Signals become actions of the solver while it runs, and nothing else."""

from __future__ import annotations

import signal

from bpt.signals import Action, SignalActions


def test_each_signal_asks_for_its_action_once() -> None:
    with SignalActions(sigint=Action.SNAPSHOT, sighup=Action.STOP) as signals:
        assert signals.take() is Action.NONE
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGHUP)
        assert signals.take() is Action.SNAPSHOT
        assert signals.take() is Action.STOP
        assert signals.take() is Action.NONE


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with SignalActions():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before


def test_sigterm_beside_ctrl_c_still_terminates() -> None:
    """A batch system that sends both SIGTERM and SIGINT must not read that the run has come to its end."""
    with SignalActions() as signals:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        assert signals.take() is Action.STOP
        assert signals.terminated
