"""Transformers of bridges: a user's own Python code, called with each message between read and send.

A transformer imports `Message` and `NotNow` from here (docs/transformers.md).
"""

from bridge.transformers.message import Message, NotNow

__all__ = ["Message", "NotNow"]
