"""The outer layer of BPT-CNN at work: a server on rank 0, and workers that train by themselves between submissions.

``train`` runs it. What is decided, and when, stands in ``bpt.parallel.outer``; here it is executed.
"""

from bpt.train.outer.outer_training import train

__all__ = ["train"]
