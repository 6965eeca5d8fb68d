"""How well a net classifies: the accuracy Q of local training, and accuracy, AUC and confusions of a test."""

from bpt.solvers.scores.auc import macro_auc
from bpt.solvers.scores.confusion import Confusion, ConfusionWatch
from bpt.solvers.scores.local_accuracy import LocalAccuracy, Tally
from bpt.solvers.scores.watch import ClassScores, ScoreWatch

__all__ = ["ClassScores", "Confusion", "ConfusionWatch", "LocalAccuracy", "ScoreWatch", "Tally", "macro_auc"]
