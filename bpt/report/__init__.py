"""What a run tells: log lines, the progress bar, tables."""
