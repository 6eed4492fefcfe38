"""Regular expressions that operators write, matched against names that others choose.

RE2 matches them in time linear in the name: no name can keep the node busy. It has no backreferences and no
look-around, which cannot be matched so (https://github.com/google/re2/wiki/Syntax). The first expression
loads it.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, Final

#: Bytes that one compiled expression and its matching may take.
MEMORY_MOST: Final = 1024 * 1024
#: Names of which it is remembered whether an expression matches them.
_NAMES_REMEMBERED: Final = 8192


def check_expression(expression: str) -> None:
    """Check that the text is a regular expression.

    Raises:
        ValueError: the rule that it breaks.
    """
    import re2

    try:
        _compiled(expression)
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace")
        raise ValueError(
            f"must be a regular expression of RE2, without backreferences and look-around ({reason})"
        ) from None
    except UnicodeEncodeError:
        raise ValueError("must be a regular expression without half a surrogate pair") from None


@lru_cache(maxsize=_NAMES_REMEMBERED)
def matches_whole(expression: str, name: str) -> bool:
    """Whether a checked expression matches the whole name."""
    return _compiled(expression).fullmatch(name) is not None


@cache
def _compiled(expression: str) -> Any:
    import re2

    options = re2.Options()
    options.max_mem = MEMORY_MOST
    options.log_errors = False
    return re2.compile(expression, options=options)
