"""What tables of one process share: cache, executors, throttle, log events."""
