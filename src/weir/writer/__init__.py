"""The writer of a table: checks rows, routes them to shards, and waits until they are durable."""

from weir.writer.receipt import WriteReceipt
from weir.writer.table_writer import TableWriter

__all__ = ["TableWriter", "WriteReceipt"]
