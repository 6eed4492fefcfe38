"""A node that hostile peers are let loose on, and an honest client and an honest bridge beside them."""

from __future__ import annotations

import http.client
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from tests.harness.api import exchange
from tests.harness.eventually import eventually
from tests.harness.node import Node, bridge_to, start_together
from tests.hostile.http_peer import let_all_go
from tests.hostile.link_cases import TOKEN, Case

MIB: Final = 1024 * 1024
#: "with at most 100 MiB more than before".
GROWTH_MOST: Final = 100 * MIB

_USERS: Final = f"""
max-transit-size = "24MiB"
[[acceptor.users]]
name = "hostile"
token = "{TOKEN}"
send = ["orders.#"]
receive = ["orders.#"]
delete-queues = ["orders.#"]
link = true
[[acceptor.users]]
name = "honest"
token = "s3cret-honest"
send = ["#"]
receive = ["#"]
link = true
"""
#: What cases store goes: nothing is to grow but what is measured.
_SMALL: Final = '[address-settings."orders.#"]\nmax-size-bytes = "64MiB"\naddress-full-policy = "FAIL"\n'


@dataclass
class Victim:
    """The hub, and what shows that it is well."""

    hub: Node
    edge: Node
    before: int = 0
    sent: int = 0
    _hub: http.client.HTTPConnection | None = None
    _edge: http.client.HTTPConnection | None = None

    def attack(self, case: Case, *, serves: bool = True) -> None:
        """Carry out one case, and see that it ended as it may and, with `serves`, that others are served."""
        try:
            ended = case.attack(self.hub.port)
        except BaseException as error:
            error.add_note(case.name)
            raise
        assert not case.ends or ended in case.ends, f"{case.name}: ended with {ended}"
        if serves:
            self.serves(case.name)

    def serves(self, what: str) -> None:
        """An honest client, and an honest bridge; within bounds."""
        process = self.hub.process
        assert process is not None
        assert process.poll() is None, f"{what}: the node has ended"
        if self._hub is None or self._edge is None:
            self._hub, self._edge = self.hub.api.connect(), self.edge.api.connect()
        self.sent += 1
        body = b"%d" % self.sent
        token = {"Authorization": "Bearer s3cret-honest"}
        posted = exchange(self._hub, "POST", "/v1/addresses/clients/messages", body, token)
        assert posted.status == 200, (what, posted)
        assert exchange(self._edge, "POST", "/v1/addresses/bridged/messages", body).status == 200
        hub = self._hub

        def arrived() -> bool:
            found = exchange(hub, "GET", "/v1/addresses/bridged", None, token)
            return found.status == 200 and found.json["messages"] == self.sent

        eventually(arrived, f"the bridge delivers after: {what}")
        grown = self.resident - self.before
        assert grown <= GROWTH_MOST, f"{what}: {grown // MIB} MiB more than before"

    def serves_a_page(self) -> None:
        """To an honest reader, as large as pages are: what that takes, the allocator keeps for the next."""
        for _ in range(15):
            assert self.hub.api.send("clients.pages", bytes(MIB)).status == 200
        page = "/v1/addresses/clients.pages/messages"
        assert len(self.hub.api.get(page, Accept="application/msgpack").msgpack["messages"]) == 15

    def close(self) -> None:
        """Leave."""
        for connection in (self._hub, self._edge):
            if connection is not None:
                connection.close()

    @property
    def resident(self) -> int:
        """Bytes of memory that the hub has now."""
        return self.hub.resident


@contextmanager
def victim(make_node: Callable[..., Node]) -> Iterator[Victim]:
    """Started, and used once by everybody."""
    hub = make_node("hub", acceptor=_USERS, token="s3cret-honest", rest=_SMALL)
    edge = make_node("edge", rest=bridge_to(hub, queue_name='"bridged"', connector__token='"s3cret-honest"'))
    start_together(hub, edge)
    made = Victim(hub, edge)
    try:
        made.serves("nothing yet")
        made.serves_a_page()
        made.before = made.resident
        yield made
        made.serves("everything")
    finally:
        made.close()
        let_all_go()
    assert edge.stop() == 0
    assert hub.stop() == 0


def shuffled(cases: Iterable[Case], rng: random.Random, number: int) -> Iterator[Case]:
    """So many of these, in any order and each as often as comes."""
    there = list(cases)
    for _ in range(number):
        yield rng.choice(there)
