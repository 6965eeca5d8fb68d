"""A run: runtime, solver, snapshots, healing and telemetry; and the execution of BPT-CNN's outer layer."""
