"""Symfony's workers and Skirnir's relays at once, under load."""
import signal

import load


def test_workers_and_relays_share_a_queue_by_leases(loaded_peer):
    with load.under(loaded_peer, "lease", ["symfony", "skirnir"]) as loaded:
        loaded.work("outbox")
        loaded.relay()
        for _ in range(load.CHANGES):
            worker, relay = loaded.work("outbox"), loaded.relay()
            loaded.drain()
            loaded.end(worker, signal.SIGKILL)
            loaded.end(relay, signal.SIGKILL)
            loaded.drain()
