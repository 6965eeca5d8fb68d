"""What the commands do beyond training, one feature a folder."""
