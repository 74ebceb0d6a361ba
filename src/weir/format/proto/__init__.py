"""Protobuf messages, generated from ``memwal.proto``. Nothing but codecs in this package uses them."""
