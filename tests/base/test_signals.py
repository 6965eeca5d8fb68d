"""Signals become actions of the solver while it runs, and nothing else."""

from __future__ import annotations

import signal

import pytest

from bpt.base.errors import RunError
from bpt.base.signals import STOP_SIGNAL, SignalAction, SignalActions


def test_each_signal_asks_for_its_action_once() -> None:
    with SignalActions(sigint=SignalAction.SNAPSHOT, sighup=SignalAction.STOP) as signals:
        assert signals.take() is SignalAction.NONE
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGHUP)
        assert signals.take() is SignalAction.SNAPSHOT
        assert signals.take() is SignalAction.STOP
        assert signals.take() is SignalAction.NONE


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
        assert signals.take() is SignalAction.STOP
        assert signals.terminated


@pytest.mark.parametrize("number", [signal.SIGTERM, STOP_SIGNAL])
def test_a_run_that_has_not_begun_ends_in_good_order(number: signal.Signals) -> None:
    """It used to be killed, and its lock stayed."""
    before = signal.getsignal(number)
    match = f"stopped by {number.name} before the first iteration"
    with pytest.raises(RunError, match=match), SignalActions().before_training():
        signal.raise_signal(number)
    assert signal.getsignal(number) == before


def test_a_signal_after_training_comes_too_late() -> None:
    signals = SignalActions()
    with signals.before_training():
        with signals:
            pass
        signal.raise_signal(signal.SIGTERM)
