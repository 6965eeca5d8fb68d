"""A run: runtime, solver, snapshots, healing, telemetry; and the outer layer of BPT-CNN at work."""
