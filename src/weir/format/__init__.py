"""The stored formats: encoding and decoding, without I/O."""
