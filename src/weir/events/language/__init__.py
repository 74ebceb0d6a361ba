"""The language of the event store: scanner, grammar, syntax tree, parser. Knows nothing of tables."""
