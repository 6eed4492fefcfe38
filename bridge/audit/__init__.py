"""The bridge's part in an audit: what is to be read, how far, and how Spark's tasks reach it.

The comparison itself is `dedup.reconcile.audit`; it knows no settings. ``planning`` makes its plan,
``access`` has the functions that its tasks call by name, each in a process of its own.
"""
