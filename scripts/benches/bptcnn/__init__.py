"""``scripts/bench bptcnn`` (bench.py): the outer layer of BPT-CNN on unlike hosts, measured and simulated."""
