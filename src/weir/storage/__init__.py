"""Object storage: get, list, put-if-absent, compare-and-swap. Independent of LSM trees."""
