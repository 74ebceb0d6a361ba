"""Where the bytes live: get, list, put-if-absent, compare-and-swap. Knows nothing of LSM trees."""
