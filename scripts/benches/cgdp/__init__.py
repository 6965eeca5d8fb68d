"""``scripts/bench cgdp`` (bench.py) and ``gpu`` (gpu.py): CGDP against other exchanges, on CPU cores and on a GPU."""
