"""Load balance: how many samples of a batch each rank trains (StaticLB, section 3).

The shares solve x_p / s_p(x_p) equal over all ranks, where s_p is the measured speed function of a rank. DYNAMIC goes
beyond the paper. IDPA, which divides samples among the nodes of the outer layer, is in ``bpt.parallel.outer``.

Read the files in this order:

1. ``balance_rules.py`` and ``divisible_batches.py``: what combines, and which batches may be divided.
2. ``speed.py`` and ``batch_shares.py``: speed functions, and the shares UNIFORM and STATIC.
3. ``divided_net.py``: speeds of ranks that run a part of a net. ``iteration_time.py``: the time of an iteration with
   its exchange, which ``by: ITERATION`` makes short.
4. ``rank_facts.py`` and ``profile.py``: the file of measured speeds.
5. ``dynamic.py`` and ``dynamic_balancer.py``: shares that follow the speeds during a run. ``noise_scale.py``: a batch
   that follows the noise of the gradients.
6. ``shared_batch.py`` and ``load_balance.py``: the balance of a run, and its report.
"""

from bpt.parallel.balance.batch_shares import Balance, Static, Uniform, imbalance

__all__ = ["Balance", "Static", "Uniform", "imbalance"]
