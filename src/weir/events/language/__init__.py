"""The language of the event store: scanner, grammar, syntax tree, parser. Independent of tables."""
