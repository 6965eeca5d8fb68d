"""The forecast of a plan's iteration on a cluster: time, messages and memory; and the search for the fastest plan."""
