"""Classification metrics: the accuracy Q of local training, and accuracy, AUC and confusions of a test."""

from bpt.train.metrics.auc import macro_auc
from bpt.train.metrics.confusion_counts import Confusion, ConfusionWatch
from bpt.train.metrics.local_accuracy import CorrectCount, LocalAccuracy
from bpt.train.metrics.score_watch import ClassScores, ScoreWatch

__all__ = ["ClassScores", "Confusion", "ConfusionWatch", "CorrectCount", "LocalAccuracy", "ScoreWatch", "macro_auc"]
