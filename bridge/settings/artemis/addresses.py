"""Artemis's `<address-setting>`, `<address>` and `<queue>`. Pure."""

from __future__ import annotations

from typing import Final

from bridge.settings.artemis.keys import OFF, ArtemisKey, Form, Rows, answered, carried, idle, table

_EXCLUSIVE: Final = "there are no exclusive queues: a bridge, or a single reader, keeps the order"
_LAST_VALUE: Final = "there are no last-value queues: a compacted Kafka topic keeps the last value of a key"
_BROWSE: Final = "a browser, GET /v1/addresses/{a}/messages, reads and leaves messages where they are"
_TYPE: Final = "routing-type of [addresses.NAME] says it; addresses made by a send are MULTICAST"
_READERS: Final = "a queue has any number of readers, up to 1,000 leases"
_KEEPS: Final = "a queue keeps its messages; DELETE deletes it"
_GROUPS: Final = "there are no message groups: readers take turns, and a single reader keeps the order"
_DISPATCH: Final = "a queue hands out messages as soon as a reader asks"
_RING: Final = (
    "there are no ring queues: max-size-bytes and address-full-policy say what happens when it is full"
)
_DEAD_LETTERS: Final = (
    "dead-letter-address of [[bridges]] takes what a bridge cannot deliver; for readers there is none: a "
    "message whose lease ends unsettled is next again"
)
_REDELIVERY: Final = (
    "what a reader releases is next again at once; the lease of a GET says how long it may keep it"
)
_EXPIRY: Final = "messages do not expire: they stay until every queue has passed them"
_PAGING: Final = "every message is on disk already, so nothing is paged"
_SLOW: Final = (
    "no reader is thrown out for being slow; core_bridge_queue_lag_messages of /metrics shows what waits"
)
_MANAGEMENT: Final = "concerns Artemis's management; /v1/status and /metrics show addresses and queues"
_CONFIG_DELETE: Final = (
    "what is no longer in the settings stays: core-bridge forget and DELETE /v1/addresses/{a} delete"
)
_NO_ROUTE: Final = (
    "what has no queue is a dead letter NO_ROUTE at ANYCAST addresses, and counted as unrouted at MULTICAST "
    "ones"
)
_JMS: Final = "the deprecated name"

_PAGE: Final = (
    "every message is on disk already, so nothing is paged: BLOCK with a max-size-bytes as large as the disk "
    "allows"
)
_DROP: Final = "no message is dropped behind its sender's back: FAIL answers ADDRESS_FULL at once"

ADDRESS_SETTING: Final[Rows] = table(
    carried(
        Form.FLAG,
        "auto-create-addresses auto-create-queues auto-delete-queues auto-delete-created-queues",
        "auto-delete-queues-skip-usage-check auto-delete-addresses",
        "auto-delete-addresses-skip-usage-check",
    ),
    carried(Form.TIME, "redistribution-delay"),
    # Artemis looks every 30 s, so that its 0 is nearly the default here.
    [
        ArtemisKey(name, name, Form.TIME, same=frozenset({"0"}))
        for name in ("auto-delete-queues-delay", "auto-delete-addresses-delay")
    ],
    carried(Form.COUNT, "auto-delete-queues-message-count", "id-cache-size"),
    [
        ArtemisKey(
            "auto-create-jms-queues", "auto-create-queues", Form.FLAG, f"{_JMS} of auto-create-queues"
        ),
        ArtemisKey(
            "auto-delete-jms-queues", "auto-delete-queues", Form.FLAG, f"{_JMS} of auto-delete-queues"
        ),
        ArtemisKey(
            "auto-create-jms-topics", "auto-create-addresses", Form.FLAG, f"{_JMS} of auto-create-addresses"
        ),
        ArtemisKey(
            "auto-delete-jms-topics", "auto-delete-addresses", Form.FLAG, f"{_JMS} of auto-delete-addresses"
        ),
        ArtemisKey("max-size-bytes", "max-size-bytes", same=frozenset({"-1"})),
        ArtemisKey("address-full-policy", "address-full-policy", values={"PAGE": _PAGE, "DROP": _DROP}),
        ArtemisKey(
            "page-limit-bytes",
            "max-size-bytes",
            answer="with PAGE it is max-size-bytes, for every message is on disk",
            same=frozenset({"-1"}),
        ),
        ArtemisKey(
            "page-full-policy",
            "address-full-policy",
            answer="with PAGE it is address-full-policy; DROP becomes FAIL",
        ),
    ],
    answered(
        "max-size-bytes limits an address, in bytes; without it an address takes what the disk holds",
        "max-size-messages page-limit-messages",
        same="-1",
    ),
    answered(
        "a full address with BLOCK holds a send for call-timeout, and then refuses it",
        "max-size-bytes-reject-threshold",
        same="-1",
    ),
    answered(
        "a full disk holds sends, and then refuses them with DISK_FULL", "disk-full-policy", same="block"
    ),
    idle(
        _PAGING,
        "page-size-bytes page-max-cache-size max-read-page-messages max-read-page-bytes",
        "prefetch-page-messages prefetch-page-bytes",
    ),
    answered(
        _DEAD_LETTERS,
        "dead-letter-address max-delivery-attempts auto-create-dead-letter-resources",
        "dead-letter-queue-prefix dead-letter-queue-suffix",
        same="false",
    ),
    answered(_NO_ROUTE, "send-to-dla-on-no-route", same="false"),
    answered(
        _EXPIRY,
        "expiry-address auto-create-expiry-resources expiry-queue-prefix expiry-queue-suffix",
        "expiry-delay min-expiry-delay max-expiry-delay",
        same="false -1",
    ),
    answered(_EXPIRY, "no-expiry", same="true false"),
    answered(
        _REDELIVERY,
        "redelivery-delay redelivery-delay-multiplier redelivery-collision-avoidance-factor",
        "max-redelivery-delay",
        same="0 0.0 1 1.0",
    ),
    answered(_EXCLUSIVE, "default-exclusive-queue", same="false"),
    answered(_LAST_VALUE, "last-value-queue default-last-value-queue default-last-value-key", same="false"),
    answered(_BROWSE, "default-non-destructive", same="false"),
    answered(
        _GROUPS,
        "default-group-rebalance default-group-rebalance-pause-dispatch default-group-buckets",
        "default-group-first-key",
        same="false -1",
    ),
    answered(_DISPATCH, "default-consumers-before-dispatch default-delay-before-dispatch", same=OFF),
    answered(_TYPE, "default-address-routing-type default-queue-routing-type", same="multicast"),
    answered(_KEEPS, "default-purge-on-no-consumers", same="false"),
    answered(_READERS, "default-max-consumers", same="-1"),
    idle("max of a GET says how many messages a reader takes at a time", "default-consumer-window-size"),
    answered(_RING, "default-ring-size", same="-1"),
    answered(
        "a new queue begins with the earliest message that is still there; retain-time keeps messages that "
        "every queue has passed",
        "retroactive-message-count",
        same="0",
    ),
    answered(
        _SLOW,
        "slow-consumer-threshold slow-consumer-threshold-measurement-unit slow-consumer-policy",
        "slow-consumer-check-period",
        same="-1",
    ),
    answered(
        _CONFIG_DELETE,
        "config-delete-queues config-delete-addresses config-delete-diverts",
        same="off",
    ),
    answered(
        "a message has its producer's Message-Timestamp; the delivery log says when it was stored",
        "enable-ingress-timestamp",
        same="false",
    ),
    idle(
        _MANAGEMENT,
        "message-counter-history-day-limit management-browse-page-size enable-metrics",
        "management-message-attribute-size-limit",
    ),
    idle("concerns Artemis's memory", "initial-queue-buffer-size"),
)

_TYPES: Final = "routing-type of [addresses.NAME] says it, one type an address"

ADDRESS: Final[Rows] = table(
    [
        ArtemisKey("name", "name"),
        ArtemisKey("anycast", "routing-type", answer=_TYPES),
        ArtemisKey("multicast", "routing-type", answer=_TYPES),
    ],
)

QUEUE: Final[Rows] = table(
    [
        ArtemisKey("name", "name"),
        ArtemisKey("filter", "filter"),
        ArtemisKey("address", answer="a queue is written below its address: queues of [addresses.NAME]"),
    ],
    answered("every queue is durable", "durable", same="true"),
    answered("receive of [[acceptor.users]] says who may read an address", "user"),
    answered(_READERS, "max-consumers", same="-1"),
    answered(_KEEPS, "purge-on-no-consumers", same="false"),
    answered(_EXCLUSIVE, "exclusive", same="false"),
    answered(_LAST_VALUE, "last-value", "last-value-key", same="false"),
    answered(_BROWSE, "non-destructive", same="false"),
    answered(
        _GROUPS,
        "group-rebalance group-rebalance-pause-dispatch group-buckets group-first-key",
        same="false -1",
    ),
    answered(_DISPATCH, "consumers-before-dispatch delay-before-dispatch", same=OFF),
    answered(_RING, "ring-size", same="-1"),
    answered("a queue is there and takes messages, or it is deleted", "enabled", same="true"),
)
