"""From syntax tree to answer: names bound to fields, conditions, a plan over one snapshot, and its result."""
