"""Protobuf messages, generated from ``memwal.proto``. Only codecs in this package use them."""
