"""Views of addresses and queues: what a commit changes replaces what was there, and nothing else does."""

from __future__ import annotations

from bridge.journal.values.options import AddressPolicy
from bridge.journal.values.views import AddressView, Changes, Intake, QueueView, Views
from bridge.messages.addresses import RoutingType


def address(
    address_id: int, name: str, next_: int = 0, routing_type: RoutingType = "MULTICAST"
) -> AddressView:
    return AddressView(address_id, name, AddressPolicy(), routing_type, 0, next_, 0, 0, False, False, 0, 0, 0)


def queue(name: str, next_: int = 0, condition: str = "") -> QueueView:
    return QueueView(name, None, next_, condition, None, False, False, 0)


def two_queues() -> Views:
    views = Views()
    views.merge(
        Changes(
            Intake.OPEN,
            everything=True,
            addresses=[address(1, "orders")],
            queues=[(1, queue("a")), (1, queue("b"))],
        )
    )
    return views


def names(views: Views, of: str = "orders") -> list[str]:
    return [one.name for one in views.queues(of)]


def test_a_change_of_one_queue_leaves_the_others() -> None:
    views = two_queues()
    before, other = views.names, views.queue("orders", "b")
    views.merge(Changes(Intake.OPEN, addresses=[address(1, "orders", 7)], queues=[(1, queue("a", 7))]))
    assert [one.next for one in views.queues("orders")] == [7, 0]
    assert views.queue("orders", "b") is other
    assert views.names == before, "positions are no names"


def test_names_grow_when_a_queue_comes_goes_or_has_another_filter() -> None:
    views = two_queues()
    seen = [views.names]
    for changes in (
        Changes(Intake.OPEN, queues=[(1, queue("c"))]),
        Changes(Intake.OPEN, queues=[(1, queue("c", condition="x = 1"))]),
        Changes(Intake.OPEN, dropped_queues=[(1, "c")]),
        Changes(Intake.OPEN, addresses=[address(2, "news")]),
        Changes(Intake.OPEN, addresses=[address(2, "news", routing_type="ANYCAST")]),
        Changes(Intake.OPEN, dropped_addresses=[2]),
    ):
        views.merge(changes)
        assert views.names > seen[-1], changes
        seen.append(views.names)
    views.merge(Changes(Intake.CLOSED, dropped_queues=[(1, "c"), (9, "c")], dropped_addresses=[9]))
    assert (views.names, views.intake) == (seen[-1], Intake.CLOSED)


def test_an_address_of_the_same_name_has_none_of_the_queues_of_the_one_before() -> None:
    views = two_queues()
    views.merge(Changes(Intake.OPEN, dropped_addresses=[1]))
    assert views.address("orders") is None
    assert names(views) == []
    views.merge(Changes(Intake.OPEN, addresses=[address(2, "orders")], queues=[(2, queue("c"))]))
    assert names(views) == ["c"]


def test_a_queue_that_is_renamed_has_its_new_name_alone() -> None:
    views = two_queues()
    views.merge(Changes(Intake.OPEN, dropped_queues=[(1, "a")], queues=[(1, queue("c"))]))
    assert names(views) == ["b", "c"]


def test_a_state_that_is_loaded_again_replaces_everything() -> None:
    views = two_queues()
    views.merge(Changes(Intake.OPEN, everything=True, addresses=[address(3, "news")]))
    assert [one.name for one in views.addresses] == ["news"]
    assert views.queue("orders", "a") is None


def test_lists_stay_as_they_are_while_commits_go_on() -> None:
    """A caller may wait between two of them."""
    views = two_queues()
    found = views.queues("orders")
    views.merge(Changes(Intake.OPEN, dropped_queues=[(1, "a")]))
    assert [one.name for one in found] == ["a", "b"]
