"""Client quotas of a cluster, by AlterClientQuotas (KIP-546): no client library of the tests has it."""

from __future__ import annotations

import struct
from io import BytesIO
from typing import Any

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import for_code
from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Int16, Int32, Schema, String

from tests.kafka.cluster.reachable import Reachable


class _Float64(AbstractType[float]):
    @classmethod
    def encode(cls, value: float) -> bytes:
        return struct.pack(">d", value)

    @classmethod
    def decode(cls, data: BytesIO) -> float:
        (value,) = struct.unpack(">d", data.read(8))
        return float(value)


_ENTITY = ("entity", Array(("type", String("utf-8")), ("name", String("utf-8"))))


class _ResponseV0(Response):
    API_KEY = 49
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("entries", Array(("error_code", Int16), ("error_message", String("utf-8")), _ENTITY)),
    )


class _RequestV0(RequestStruct):
    API_KEY = 49
    API_VERSION = 0
    RESPONSE_TYPE = _ResponseV0
    SCHEMA = Schema(
        (
            "entries",
            Array(
                _ENTITY,
                ("ops", Array(("key", String("utf-8")), ("value", _Float64), ("remove", Boolean))),
            ),
        ),
        ("validate_only", Boolean),
    )


class _AlterClientQuotas(Request[_RequestV0]):
    API_KEY = 49

    def __init__(self, client_id: str, quotas: dict[str, float]) -> None:
        self._client_id = client_id
        self._quotas = quotas

    def build(self, request_struct_class: type[_RequestV0]) -> _RequestV0:
        ops = [(key, value, False) for key, value in self._quotas.items()]
        return request_struct_class([([("client-id", self._client_id)], ops)], False)


async def limit(cluster: Reachable, client_id: str, **bytes_per_s: float) -> None:
    """Let clients of this id have so much: ``limit(cluster, "bridge", producer_byte_rate=200_000)``."""
    client = AIOKafkaClient(bootstrap_servers=cluster.bootstrap)
    await client.bootstrap()
    try:
        answer: Any = await client.send(client.get_random_node(), _AlterClientQuotas(client_id, bytes_per_s))
    finally:
        await client.close()
    for error, message, _entity in answer.entries:
        if error:
            raise for_code(error)(message)
