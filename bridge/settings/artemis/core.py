"""The elements of Artemis's `<core>` itself. Pure."""

from __future__ import annotations

from typing import Final

from bridge.settings.artemis.keys import ArtemisKey, Form, Rows, answered, idle, table

_JOURNAL: Final = "the journal is one SQLite file in data-directory, flushed to disk before each answer"
_DIRECTORIES: Final = "data-directory of [node] holds everything"
_THREADS: Final = "a node runs one event loop and one writer; workers of [node] serve Kafka to Kafka bridges"
_SECURITY: Final = "tokens and [[acceptor.users]] say who may send, receive and link"
_CLUSTER_USER: Final = "token of the connector of connector-ref says who a node is at the others"
_MANAGEMENT: Final = "[operations] serves status, metrics and management over HTTP"
_DISK: Final = "a full disk is noticed by itself: sends are held, and then refused with DISK_FULL"
_MEMORY: Final = "messages are on disk; max-size-bytes limits an address, max-transit-size what comes in"
_CODE: Final = "a node runs no foreign code but ends of installed packages (docs/ends.md)"
_PROTOCOLS: Final = "clients speak HTTP: there is neither AMQP nor MQTT nor STOMP nor OpenWire"
_CRITICAL: Final = "/ping and /ready answer as long as the node does; an orchestrator restarts it"
_NETWORK: Final = "a link that is cut is noticed by check-period and connection-ttl"
_TRANSACTIONS: Final = "a transaction is one POST /v1/transactions: none is left open"
_MIRROR: Final = "there is no mirror"
_DELIVERY: Final = "a queue counts no delivery attempts of readers: a message whose lease ends is next again"

CORE: Final[Rows] = table(
    [
        ArtemisKey("name", "node.name", Form.TEXT),
        ArtemisKey("id-cache-size", "duplicate-detection.id-cache-size", Form.COUNT),
        ArtemisKey("persist-id-cache", "duplicate-detection.persist-id-cache", Form.FLAG),
        ArtemisKey("connectors", "connectors"),
        ArtemisKey("acceptors", "acceptor"),
        ArtemisKey("bridges", "bridges"),
        ArtemisKey("cluster-connections", "cluster-connections"),
        ArtemisKey("address-settings", "address-settings"),
        ArtemisKey("addresses", "addresses"),
        ArtemisKey("queues", "addresses", answer="queues of [addresses.NAME]"),
        ArtemisKey(
            "diverts", "bridges", answer='a divert is a bridge whose static-connectors are ["journal"]'
        ),
        ArtemisKey("discovery-groups", answer='discovery = "dns://name:port" of [[cluster-connections]]'),
    ],
    answered(
        "every message is on disk before its sender hears stored: there is no other way",
        "persistence-enabled",
        same="true",
    ),
    answered(
        "nodes have no backups: what is stored waits on the disk until the node is back; a cluster takes new "
        "messages meanwhile, and core-bridge drain hands a node over",
        "ha-policy",
    ),
    answered(
        'discovery = "dns://name:port" of [[cluster-connections]]: there is no multicast', "broadcast-groups"
    ),
    answered("there are no message groups: a single reader keeps the order", "grouping-handler"),
    answered("bridges and clusters bring messages to other nodes; there is no federation", "federations"),
    answered(
        "there are no AMQP connections; [[bridges]] bring messages to other nodes", "broker-connections"
    ),
    answered("clients choose their node, by DNS or a load balancer", "connection-routers"),
    answered(_SECURITY, "security-settings"),
    answered(_SECURITY, "security-enabled", same="true"),
    answered(_CLUSTER_USER, "cluster-user", "cluster-password"),
    answered(
        "user, certificate and source of a message are in the log; messages carry none of them",
        "populate-validated-user reject-empty-validated-user",
        same="false",
    ),
    answered("${VAR} and ${file:path} keep secrets out of the file", "password-codec"),
    answered("${VAR} and ${file:path} keep secrets out of the file", "mask-password", same="false"),
    answered(
        "max-requests, max-connections and max-queues limit what callers take", "resource-limit-settings"
    ),
    answered(
        _CODE,
        "broker-plugins remoting-incoming-interceptors remoting-outgoing-interceptors connector-services",
    ),
    answered("/metrics of [operations] is there by itself, for Prometheus", "metrics", "metrics-plugin"),
    answered("the journal is an SQLite file; there is no database store", "store"),
    answered(
        "retain-time of [address-settings] keeps messages that every queue has passed",
        "journal-retention-directory",
    ),
    answered(
        "'.' separates words, '*' is one word, '#' any number of words: rewrite the patterns",
        "wildcard-addresses",
    ),
    answered(
        "a message goes to the queues of its own address; a bridge with queue-name = '/regex/' reads many",
        "wild-card-routing-enabled",
        same="false",
    ),
    answered(
        "names begin with no prefix of their own",
        "literal-match-markers uuid-namespace temporary-queue-namespace",
    ),
    answered(
        _MEMORY,
        "global-max-size global-max-messages global-max-size-percent-of-jvm-max-memory",
        same="-1",
    ),
    answered(
        "connection-ttl of [[bridges]] and [[cluster-connections]]", "connection-ttl-override", same="-1"
    ),
    answered(_DISK, "max-disk-usage", "min-disk-free"),
    idle(_DISK, "disk-scan-period"),
    answered(_NETWORK, "network-check-list network-check-URL-list network-check-NIC"),
    idle(
        _NETWORK,
        "network-check-period network-check-timeout network-check-ping-command",
        "network-check-ping6-command connection-ttl-check-interval",
    ),
    idle(
        _JOURNAL,
        "journal-type journal-datasync journal-buffer-timeout journal-buffer-size",
        "journal-device-block-size journal-sync-transactional journal-sync-non-transactional",
        "journal-file-size journal-min-files journal-pool-files journal-compact-percentage",
        "journal-compact-min-files journal-max-io journal-file-open-timeout",
        "journal-lock-acquisition-timeout log-journal-write-rate journal-max-attic-files large-message-sync",
        "create-bindings-dir create-journal-dir",
        "page-max-concurrent-io read-whole-page purge-page-folders page-sync-timeout",
    ),
    idle(
        _DIRECTORIES,
        "paging-directory bindings-directory journal-directory large-messages-directory",
        "node-manager-lock-directory",
    ),
    idle(
        _THREADS,
        "scheduled-thread-pool-max-size thread-pool-max-size async-connection-execution-enabled",
        "message-expiry-thread-priority",
    ),
    idle(
        "shutdown-timeout of [node] bounds the drain",
        "graceful-shutdown-enabled graceful-shutdown-timeout",
    ),
    idle(
        "tokens and certificates are read again when their files change",
        "security-invalidation-interval authentication-cache-size authorization-cache-size",
    ),
    answered(
        "watch-settings of [node] has the settings reloaded when their file changes",
        "configuration-file-refresh-period",
        same="-1",
    ),
    idle(
        _MANAGEMENT,
        "management-address management-notification-address jmx-management-enabled jmx-domain",
        "jmx-use-broker-name message-counter-enabled message-counter-sample-period",
        "message-counter-max-day-history suppress-session-notifications",
        "view-permission-method-match-pattern management-message-rbac management-rbac-prefix",
        "server-dump-interval memory-warning-threshold",
        "memory-measure-interval log-delegate-factory-class-name",
    ),
    idle(
        _CRITICAL,
        "critical-analyzer critical-analyzer-timeout critical-analyzer-check-period",
        "critical-analyzer-policy",
    ),
    idle(_TRANSACTIONS, "transaction-timeout transaction-timeout-scan-period"),
    idle(_DELIVERY, "persist-delivery-count-before-delivery max-redelivery-records"),
    idle("messages do not expire", "message-expiry-scan-period"),
    idle("auto-delete-queues-delay and auto-delete-addresses-delay say when", "address-queue-scan-period"),
    idle(
        _PROTOCOLS,
        "resolve-protocols amqp-use-core-subscription-naming mqtt-session-scan-interval",
        "mqtt-session-state-persistence-timeout mqtt-subscription-persistence-enabled",
    ),
    idle(
        _MIRROR,
        "mirror-ack-manager-queue-attempts mirror-ack-manager-page-attempts",
        "mirror-ack-manager-retry-delay mirror-ack-manager-warn-unacked mirror-page-transaction",
    ),
    idle("concerns Artemis's own names", "system-property-prefix internal-naming-prefix"),
    idle(
        "an old name that Artemis itself ignores",
        "file-deployment-enabled backup-servers shared-store backup clustered",
    ),
)
