"""What is acknowledged and not flushed yet, and how much of it there may be."""
