"""What stored bytes mean: encode and decode, without reading or writing anything."""
