"""The audit: compares the records of a Kafka source with those of its target.

``plan`` says what is read and how far, ``records`` what a record of either end becomes, ``source`` is the
data source that Spark reads them through (``kafka_source`` and ``node_source`` know the ends, and
``loose_records`` what aiokafka cannot decode), ``bounds`` and ``compare`` judge, ``job`` does it all and
``summary`` says it. No delivery log is read: docs/audit.md.
"""
