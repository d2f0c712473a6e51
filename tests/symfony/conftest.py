"""A peer for each server, its outbox plain or ordered; nothing is set up."""
import shutil
import subprocess

import databases
import peer as peers
import pytest
import shop as shops


@pytest.fixture(scope="session")
def symfony():
    loader = peers.CONSOLE.with_name("autoload.php")
    if shutil.which("php") is None or \
            subprocess.run(["php", str(loader)], check=False).returncode != 0:
        pytest.skip("Symfony Messenger is not installed")


@pytest.fixture(params=databases.SERVERS, ids=lambda kind: kind.kind)
def peer(request, symfony, tmp_path, vhost):
    opened = peers.Peer(tmp_path, request.param(), vhost)
    yield opened
    opened.leave()


@pytest.fixture(params=["plain", "ordered"])
def any_peer(request, peer):
    peer.ordered = request.param == "ordered"
    peer.set_config()
    return peer


@pytest.fixture(params=["plain", "ordered"] if shops.LONG else ["plain"])
def loaded_peer(request, peer):
    """Both kinds in long runs: each change takes seconds under load."""
    peer.ordered = request.param == "ordered"
    return peer
