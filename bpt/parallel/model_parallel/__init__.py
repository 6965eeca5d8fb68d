"""Fully connected layers that are split over ranks: model-parallel FC layers over MPI (MPI-FC).

Read the files in this order:

1. ``model_parallel.py``: which layers are split, and what each shard holds (section 3.1).
2. ``split_layers.py``: how blobs travel; ``piece_exchange.py``: pieces that travel while others multiply.
3. ``master_slave.py`` and ``peer.py``: the two schemes.

The engine's protocol is ``bpt/engine/split_pass.py``.
"""
