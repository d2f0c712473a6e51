# SPDX-License-Identifier: MIT
"""Skirnir for Python: publish in your transaction, handle each message once.

    skirnir.publish(connection, "order.placed", {"orderId": 1})

`skirnir.inbox` and `skirnir.worker` are the other side.
"""
from .outbox import Outbox, publish
from .database import SkirnirError

__all__ = ["Outbox", "SkirnirError", "publish"]
