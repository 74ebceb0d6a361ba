"""Weir as a service: namespaces over HTTP, for many tenants, by several processes on one root.

It needs the extra ``weir-lance[service]``. ``weir serve`` runs it; each dialect is a package that only
translates.
"""
