"""From Symfony's worker to Skirnir's relay and back, under load."""
import signal

import load
import pytest


@pytest.mark.parametrize("how, consumer", [(signal.SIGTERM, "symfony"),
                                           (signal.SIGKILL, "skirnir")],
                         ids=["stopped", "killed"])
def test_a_worker_is_replaced_by_a_relay_and_back(loaded_peer, how, consumer):
    with load.under(loaded_peer, "exclusive", [consumer]) as loaded:
        for _ in range(load.CHANGES):
            worker = loaded.work("outbox")
            loaded.drain()
            loaded.end(worker, how)
            relay = loaded.relay()
            loaded.drain()
            loaded.end(relay, how)
        # What a killed worker had claimed a relay finds within a minute after
        # the claim is over, a worker at once.
        loaded.work("outbox")
