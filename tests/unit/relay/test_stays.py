"""Which positions the stores of a bridge have confirmed, and which of these one of them lacks."""

from __future__ import annotations

from bridge.relay.stays import MOST_RUNS, NO_STAYS, Remembered, Stays

#: 0 to 9 at a, 10 to 19 at b, and 20 to 29 at a.
THREE = Remembered(30, "a", Stays(20, {"a": ((0, 9),), "b": ((10, 19),)}))


def test_each_store_has_what_it_confirmed() -> None:
    assert Remembered(10, "a").held() == {"a": ((0, 9),)}
    assert Remembered(0, "a").held() == {}
    assert THREE.held() == {"a": ((0, 9), (20, 29)), "b": ((10, 19),)}


def test_a_store_whose_next_went_back_lacks_the_end_of_its_stays() -> None:
    assert THREE.missing(["a"], 30) == THREE.missing(["b"], 20) == THREE.missing(["c"], 0) == ()
    assert THREE.missing(["a"], 5) == ((5, 9), (20, 29))
    assert THREE.elsewhere(["a"], 5) == ((10, 19),)
    assert THREE.missing(["a", "b"], 5) == ((5, 29),)


def test_where_the_bridge_goes_on_at_a_store_that_lacks_something_that_is_owed() -> None:
    stays = THREE.after_change(["a"], "a", 5, 5)
    assert stays == Stays(5, {"a": ((0, 4),), "b": ((10, 19),)}, 30)
    again = Remembered(7, "a", stays)
    assert again.owed() == ((7, 9), (20, 29))
    assert again.confirmed == 30
    assert again.held() == {"a": ((0, 6),), "b": ((10, 19),)}
    assert Remembered(30, "a", stays).owed() == ()


def test_what_a_store_passes_because_another_one_has_it_stays_with_that_one() -> None:
    done = Remembered(40, "a", THREE.after_change(["a"], "a", 5, 5))
    assert done.held() == {"a": ((0, 9), (20, 39)), "b": ((10, 19),)}
    assert done.after_change(["b"], "b", 20, 40) == Stays(40, {"a": ((0, 9), (20, 39)), "b": ((10, 19),)})


def test_they_are_kept_as_text_and_the_lowest_are_forgotten_where_there_are_many() -> None:
    assert NO_STAYS.encode() == ""
    assert Stays.decode("") == NO_STAYS
    assert Stays.decode(THREE.stays.encode()) == THREE.stays
    past = {store: tuple((n, n) for n in range(at, 200, 4)) for at, store in enumerate("ab")}
    kept = Remembered(300, "c", Stays(250, past)).after_change(["d"], "d", 300, 300)
    assert sum(map(len, kept.past.values())) == MOST_RUNS
    assert kept.past["c"] == ((250, 299),)
    assert all(first > 160 for runs in kept.past.values() for first, _ in runs)
