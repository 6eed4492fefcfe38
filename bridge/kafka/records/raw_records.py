"""Records as they were decoded, from a consumer that does not convert them.

aiokafka copies each decoded record into a `ConsumerRecord`, which costs twice what decoding it does. A relay
knows topic and partition from its request. Which records are skipped or raise stays aiokafka's decision.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import PartitionRecords


def _unmade(value: bytes | None) -> bytes | None:
    """Marks a consumer of `RawRecords`; it is a deserializer, because deserializers reach the fetcher."""
    return value


#: The option of a consumer that makes it one of `RawRecords`.
RAW: Final = {"value_deserializer": _unmade}


class RawRecords(PartitionRecords):
    """The records of one partition that a fetch returned, in order; reading moves `next_fetch_offset`."""

    #: None once all records were read, or could not be read.
    _records_iterator: Iterator[Any] | None

    def __iter__(self) -> Iterator[Any]:
        """The generator itself, which is faster than `next` of this object."""
        return iter(()) if self._records_iterator is None else self._records_iterator

    def _unpack_records(self) -> Iterator[Any]:
        try:
            yield from super()._unpack_records()
        finally:
            self._records_iterator = None  # otherwise the fetch's bytes stay in memory until a cycle is found

    def _consumer_record(self, _tp: Any, record: Any) -> Any:
        return record


def _of_fetch(*given: Any) -> PartitionRecords:
    """Replaces `PartitionRecords` in the fetcher, which offers no other way to do so."""
    return (RawRecords if _unmade in given else PartitionRecords)(*given)


fetcher.PartitionRecords = _of_fetch
