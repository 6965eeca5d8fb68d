"""Where and how: operators execute the instructions of a segment."""
