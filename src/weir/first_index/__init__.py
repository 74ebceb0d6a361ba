"""Tables with the first form of the MemWAL index: their rows, their protocol, and the upgrade.

Their whole state is in the manifest of the table: the MemWALs, their regions, and which entries each WAL has.
So one version of the table says exactly which rows there are (:mod:`weir.first_index.view`), and every change
is a version (:mod:`weir.base.publish`), which the released library does not commit.
"""
