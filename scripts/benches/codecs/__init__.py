"""What codecs save on slow links, and what they cost in accuracy."""
