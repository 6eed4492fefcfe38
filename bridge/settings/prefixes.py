"""The addresses of a cluster connection, by their beginnings. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prefixes:
    """Beginnings of addresses, letter for letter; an excluded one wins."""

    #: Empty: every address.
    included: tuple[str, ...]
    excluded: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Prefixes:
        """As the settings write them: ``orders,!orders.test``; empty: every address.

        Raises: ValueError: an entry is empty. Artemis takes ``orders,`` for every address.
        """
        entries = [entry.strip() for entry in text.split(",")] if text.strip() else []
        if any(entry in ("", "!") for entry in entries):
            raise ValueError("must have no empty entry between commas; leave it empty for all addresses")
        return cls(
            tuple(entry for entry in entries if not entry.startswith("!")),
            tuple(entry[1:] for entry in entries if entry.startswith("!")),
        )

    def covers(self, address: str) -> bool:
        """Whether the address is one of them. Only excluded ones mean: all others."""
        included = not self.included or address.startswith(self.included)
        return included and not address.startswith(self.excluded)

    def common(self, other: Prefixes) -> str | None:
        """A beginning of addresses that both cover, an empty one perhaps; None: there is no such address."""
        for mine in self.included or ("",):
            for its in other.included or ("",):
                longer = max(mine, its, key=len)
                both = longer.startswith(mine) and longer.startswith(its)
                if both and not longer.startswith((*self.excluded, *other.excluded)):
                    return longer
        return None
