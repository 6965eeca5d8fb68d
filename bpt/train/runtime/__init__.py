"""A run on the available ranks and devices: nets, operators, communicators.

Read the files in this order:

1. ``train_options.py``, ``binding.py`` and ``runtime.py``: how a plan becomes a Runtime, and its methods.
2. ``parallel_setup.py``, ``parallel.py``, ``batch_sharing.py`` and ``parameter_sync.py``: the parts of each rank.
3. ``built_nets.py``, ``passes.py``, ``updater.py`` and ``run_state.py``: nets, passes, updates and state.
4. ``tuned_settings.py``, ``algorithm_setting.py``, ``half_precision.py`` and ``autotuner.py``: settings that the first
   iterations measure.
5. ``checkpoint.py`` and ``starting_point.py``: snapshots.
6. ``rank_group.py``, ``rank_status.py``, ``heartbeat.py``, ``recovery.py`` and ``healing.py``: lost ranks.
"""
