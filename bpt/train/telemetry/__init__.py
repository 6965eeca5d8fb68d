"""What a run tells of itself while it trains: who is slow and why, its metrics as a file, a live view of that."""
