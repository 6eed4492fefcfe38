"""The bridge's part in an audit: the plan of what is read, and the access of Spark's tasks to the ends.

The comparison itself is `dedup.reconcile.audit`; it knows no settings. ``planning`` makes its plan,
``access`` has the functions that its tasks call by name, each in a process of its own.
"""
