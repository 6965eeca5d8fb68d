"""Fully connected layers that are split over ranks: model-parallel FC layers over MPI (MPI-FC).

Reading order: ``model_parallel`` (which layers are split, and what each shard holds: section 3.1), ``split_layers``
(how blobs travel), ``piece_exchange`` (pieces that travel while others multiply), ``master_slave`` and ``peer`` (the
two schemes). The engine's protocol is ``engine/split_pass.py``.
"""
