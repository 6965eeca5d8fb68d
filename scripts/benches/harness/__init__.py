"""What benches share: how processes are started and take turns, the nets that they train, and their tables."""
