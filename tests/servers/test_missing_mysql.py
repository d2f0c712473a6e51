"""A machine that cannot get MySQL: `make test` says so at its end, skips what
needs it, and asks Debian's archive once."""
import importlib.machinery
import importlib.util
import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree

import pytest

import servers
from servers import mysql, ports

TESTS = pathlib.Path(__file__).resolve().parents[1]
PATIENCE_S = 60
# A test of each way in which tests come by a MySQL of their own.
WHOLE_RUN = "test_a_server_keeps_its_data_through_a_crash_and_leaves_nothing"
ASKING = ["integration/test_doorbell.py::"
          "test_a_server_that_restarts_is_listened_to_again[mysql]",
          "integration/test_mysql.py::"
          "test_the_group_refuses_a_table_without_a_key",
          f"servers/test_servers.py::{WHOLE_RUN}[mysql]"]


@pytest.fixture
def no_archive(tmp_path, monkeypatch):
    """An empty cache, and an archive where nothing answers."""
    port = ports.take()
    (tmp_path / "sources.list").write_text(
        f"deb http://127.0.0.1:{port.number}/debian stable main\n")
    monkeypatch.setattr(mysql, "SOURCE_FOLDER", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "apt.conf").write_text('Acquire::Retries "0";\n'
                                       'Acquire::http::Proxy "DIRECT";\n')
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    # What a failure leaves there is taken out again.
    monkeypatch.setenv(mysql.FAILURE, "")
    monkeypatch.delenv(mysql.FAILURE)
    yield
    port.close()


@pytest.fixture
def tool():
    """tools/test as a module."""
    loader = importlib.machinery.SourceFileLoader(
        "tools_test", str(TESTS.parent / "tools/test"))
    loaded = importlib.util.module_from_spec(
        importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(loaded)
    return loaded


def test_the_archive_is_asked_once(no_archive, monkeypatch):
    asked = []
    apt = mysql._apt
    monkeypatch.setattr(mysql, "_apt", lambda folder, *words: (
        asked.append(words), apt(folder, *words)))
    with pytest.raises(servers.NotInstalled) as first:
        servers.MySQL().find_programs()
    assert str(first.value).startswith(f"{servers.MYSQL_IS_MISSING}: E: ")
    before = len(asked)
    assert before > 0
    with pytest.raises(servers.NotInstalled) as second:
        servers.MySQL().find_programs()
    assert str(second.value) == str(first.value)
    assert len(asked) == before


def test_the_versions_that_ran_are_told(tool):
    with servers.Group("mariadb,postgresql") as group:
        said = tool.name_versions(group)
        for server, sql in zip(group.servers, ("SELECT VERSION()",
                                               "SHOW server_version")):
            version = server.query(sql).split()[0]
            assert f"{server.name} {version}" in said


def test_what_needs_it_is_skipped_and_the_run_goes_on(
        no_archive, tool, tmp_path, monkeypatch, capsys):
    def run_those():
        """As a step of the run; the processes hear of the failure."""
        report = tmp_path / "report.xml"
        tally = tool.Tally()
        said = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
             f"--junitxml={report}", *(TESTS / one for one in ASKING)],
            env={"SKIRNIR": "/none", **os.environ,
                 "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True, text=True, timeout=PATIENCE_S).stdout
        for case in xml.etree.ElementTree.parse(report).iter("testcase"):
            tool.count_case(tally, "asking", case)
        assert tally.skipped + tally.failed == len(ASKING), said
        tally.passed += 1
        return tally

    monkeypatch.setattr(tool, "first_steps", lambda group: [])
    monkeypatch.setattr(tool, "build_steps", lambda release: [])
    monkeypatch.setattr(tool, "stop_servers", lambda group: tool.Tally())
    monkeypatch.setattr(tool, "server_steps", lambda release, databases: [
        (databases, run_those)])
    monkeypatch.setattr(tool, "choose_temporary_folder", lambda: None)
    monkeypatch.setattr(tool, "find_missing_symfony", lambda: None)
    monkeypatch.setattr(tool.signal, "signal", lambda number, handler: None)
    monkeypatch.setattr(sys, "argv", ["tools/test"])
    code = tool.main()
    lines = capsys.readouterr().out.splitlines()
    assert code == 0, lines
    assert lines[0].startswith(tool.DATABASES + " ")
    assert f"{len(ASKING)} skipped" in lines[0]
    assert lines[-3].startswith("ran with: ")
    assert lines[-2].startswith(f"not tested: {servers.MYSQL_IS_MISSING}: E: ")
    assert lines[-1] == "1 passed, 0 failed"
