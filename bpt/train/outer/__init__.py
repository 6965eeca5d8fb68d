"""The outer layer of BPT-CNN in a run (section 3): a server on rank 0, and workers that train between submissions.

Section 3.2.2 has the roles, section 3.3.2 the updates SGWU (Eq. 7) and AGWU (Eq. 9 and 10). ``train`` runs it. The
decisions are made in ``bpt.parallel.outer``; this package executes them.

Read the files in this order:

1. ``outer_training.py`` and ``roles.py``: the entry point, and the role of each rank.
2. ``serving.py``, ``server.py``, ``global_weights.py``, ``parameter_server.py``, ``server_update.py`` and
   ``background_evaluator.py``: the server.
3. ``worker.py``, ``trainer.py``, ``worker_ranks.py`` and ``node_solvers.py``: the workers.
4. ``worker_links.py``, ``colocated.py``, ``remote.py``, ``messages.py``, ``outbox.py``, ``assignment.py`` and
   ``coded_submissions.py``: what the server and the workers send.
5. ``flat_weights.py``, ``divided_weights.py`` and ``data_set.py``: weights in one buffer, and the data set.
6. ``monitor.py``, ``replay_log.py`` and ``report``: log, replay log, and reports.
"""

from bpt.train.outer.outer_training import train

__all__ = ["train"]
