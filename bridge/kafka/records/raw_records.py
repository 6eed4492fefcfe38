"""Records as they were decoded, from a consumer that makes nothing more of them.

aiokafka copies each decoded record into a `ConsumerRecord`, which costs twice what decoding it does. A relay
knows topic and partition from where it asked. What is skipped and what raises stays aiokafka's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import PartitionRecords


def _unmade(value: bytes | None) -> bytes | None:
    """Marks a consumer of `RawRecords`; a deserializer, for that is what reaches the fetcher."""
    return value


#: The consumer's option.
RAW: Final = {"value_deserializer": _unmade}


class RawRecords(PartitionRecords):
    """What a fetch brought of one partition, read in order; `next_fetch_offset` moves with it."""

    #: None once all has been read, or could not be.
    _records_iterator: Iterator[Any] | None

    def __iter__(self) -> Iterator[Any]:
        """The generator itself, which is quicker than `next` of this object."""
        return iter(()) if self._records_iterator is None else self._records_iterator

    def _unpack_records(self) -> Iterator[Any]:
        try:
            yield from super()._unpack_records()
        finally:
            self._records_iterator = None  # else the fetch's bytes stay until a cycle is found

    def _consumer_record(self, _tp: Any, record: Any) -> Any:
        return record


def _of_fetch(*given: Any) -> PartitionRecords:
    """In place of `PartitionRecords` in the fetcher, which has no other way in."""
    return (RawRecords if _unmade in given else PartitionRecords)(*given)


fetcher.PartitionRecords = _of_fetch
