"""Compares what the readers of a cluster have processed with the rows that were sent. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

from bridge.demo.compare import Proof
from bridge.demo.rows import Row


class QueueComparison:
    """Takes the messages that were processed from all queues of one name, reader by reader in their order."""

    def __init__(
        self,
        queue: str,
        rows: Sequence[Row],
        expected: Collection[int],
        sender_of: Mapping[int, Hashable],
        heirs: Collection[str] = (),
    ) -> None:
        """Begin without a message.

        Args:
            queue: its name.
            rows: all rows.
            expected: indices of the rows sent to its address.
            sender_of: by index, the row's client.
            heirs: nodes that have taken over another one: two queues in one, each in its own order.
        """
        self.queue = queue
        self._rows = rows
        self._expected = frozenset(expected)
        self._sender_of = sender_of
        self._copies: Counter[int] = Counter()
        self._heirs = frozenset(heirs)
        #: By node and client, the last row of each of the queues that are one there.
        self._last: dict[tuple[str, Hashable], list[int]] = {}
        #: Messages that are no row of this queue.
        self._foreign = 0
        #: Messages processed, by node.
        self.at: Counter[str] = Counter()
        #: Rows that came at a node after a later one of the same client.
        self.out_of_order = 0

    def take(self, node: str, key: bytes | None, body: bytes | None) -> None:
        """Take the next message of a node: its key is the row's index, and its body must be that row's."""
        self.at[node] += 1
        index = int(key) if key is not None and key.isdigit() else -1
        if index not in self._expected or self._rows[index].body != body:
            self._foreign += 1
            return
        self._copies[index] += 1
        if self._copies[index] == 1:
            self.out_of_order += not self._follows(node, index)

    def _follows(self, node: str, index: int) -> bool:
        """Whether the row can be the next one of one of the queues that are one at the node."""
        last = self._last.setdefault((node, self._sender_of[index]), [])
        before = [at for at, row in enumerate(last) if row < index]
        if before:
            last[max(before, key=last.__getitem__)] = index
        elif len(last) < (2 if node in self._heirs else 1):
            last.append(index)
        else:
            return False
        return True

    @property
    def expected(self) -> int:
        """Number of rows sent to its address."""
        return len(self._expected)

    @property
    def missing(self) -> Sequence[int]:
        """Indices of the rows of which no copy came."""
        return sorted(index for index in self._expected if not self._copies[index])

    @property
    def doubled(self) -> int:
        """Copies beyond the first, and messages that no client sent."""
        return sum(copies - 1 for copies in self._copies.values() if copies > 1) + self._foreign

    def line(self) -> str:
        """The number of rows that were processed once, in all and at each node, as one line."""
        nodes = ", ".join(f"{count} at {node}" for node, count in sorted(self.at.items()))
        once = sum(copies == 1 for copies in self._copies.values())
        return f"{once} of {self.expected} processed once: {nodes or 'none'}"


@dataclass(frozen=True, slots=True)
class ClusterProof(Proof):
    """The proof of a cluster: a row has arrived once every queue that it was for has processed it."""

    #: Nodes that joined under way, and that handed everything over and left.
    joined: int
    drained: int
    #: Messages processed, over all queues.
    processed: int

    def values(self) -> dict[str, int | float]:
        """As `Proof.values`, with what a cluster adds before the time."""
        values = Proof.values(self)
        times = {name: values.pop(name) for name in ("seconds", "messages/s")}
        return {
            **values,
            "joined": self.joined,
            "drained": self.drained,
            "processed": self.processed,
            **times,
        }
