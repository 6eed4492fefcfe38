"""Dead letters during a delivery: messages that can never be stored are left out, the rest goes on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from bridge.errors import OutOfSequence
from bridge.kafka.target.delivery import Delivery
from bridge.relay.dead_letters import DeadLetterFailed, DeadLetterSink
from bridge.relay.ports import Receipt
from dedup.verdict import Verdict


async def store_refused(
    answers: Iterable[tuple[Delivery, Receipt | OutOfSequence]], sink: DeadLetterSink
) -> bool:
    """Make dead letters of the messages that a plan refused; True: they are left out, so the plan changes.

    Where a letter cannot be kept the refusal is the answer: the pump tries the same and reports why it waits.

    Raises: as `DeadLetterSink.store_letter`, but DeadLetterFailed.
    """
    left_out = False
    for delivery, answer in answers:
        if isinstance(answer, Receipt) and answer.verdict is Verdict.REFUSED:
            try:
                for position, reason in sorted(delivery.refusals.items()):
                    receipt = replace(answer, position=position, reason=reason)
                    await sink.store_letter(delivery.batch, receipt, delivery.opened.stream.address)
            except DeadLetterFailed:
                continue
            delivery.leave_out_refused()
            left_out = True
    return left_out
