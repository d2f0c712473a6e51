"""The files for Prometheus and Grafana: each alert fires and stays silent when
it should, and each metric in them is one that the program has."""
import json
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = ROOT / "packaging" / "prometheus" / "skirnir.rules.yml"
CASES = RULES.with_name("skirnir.rules.test.yml")
DASHBOARD = ROOT / "packaging" / "grafana" / "skirnir.json"
GUIDE = ROOT / "docs" / "production.md"
# tools/check-docs compares this page with the sources.
METRICS = ROOT / "docs" / "skirnir-metrics.7.md"
METRIC = re.compile(r"\b(?:skirnir|process)_[a-z_]+\b")
PARTS = re.compile(r"_(bucket|sum|count)$")


def promtool(*arguments):
    assert shutil.which("promtool"), "make test installs it"
    result = subprocess.run(["promtool", *map(str, arguments)], text=True,
                            capture_output=True, timeout=60)
    return result.returncode, result.stdout + result.stderr


def known_metrics():
    heads = re.findall(r"^\*\*.+\*\* \((?:counter|gauge|histogram)\)$",
                       METRICS.read_text(), re.M)
    return {name for head in heads for name in METRIC.findall(head)}


def metrics_of(text):
    return {PARTS.sub("", name) for name in METRIC.findall(text)}


def expressions():
    """Of the dashboard, by panel."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [(panel["title"], target["expr"])
            for panel in panels for target in panel.get("targets", [])]


def alerts():
    return re.findall(r"^ +- alert: (\w+)$", RULES.read_text(), re.M)


def test_each_alert_fires_and_stays_silent():
    assert promtool("check", "rules", RULES)[0] == 0
    code, said = promtool("test", "rules", CASES)
    assert code == 0, said
    cases = re.findall(r"alertname: (\w+)\n +eval_time: \w+\n +exp_alerts:(.*)",
                       CASES.read_text())
    # What is not listed stays silent, or promtool says so: the good one.
    firing = {name for name, rest in cases if rest.strip() != "[]"}
    assert firing == set(alerts())


@pytest.mark.parametrize("expression, instead", [
    ("(skirnir_queue_oldest_seconds) > 60",
     "(skirnir_queue_oldest_seconds) >= 0"),
    ("(skirnir_closed_routes) > 0", "(skirnir_closed_routes) > 2"),
    ("increase(skirnir_troubles_total[10m])", "skirnir_troubles_total"),
])
def test_a_rule_that_is_wrong_is_found(tmp_path, expression, instead):
    text = RULES.read_text()
    assert expression in text
    (tmp_path / RULES.name).write_text(text.replace(expression, instead))
    shutil.copy(CASES, tmp_path)
    assert promtool("test", "rules", tmp_path / CASES.name)[0] != 0


def test_what_is_shown_and_asked_is_there():
    known = known_metrics()
    assert "skirnir_queue_depth" in known and len(known) > 20
    rules = re.findall(r"expr: (?:>-\n)?((?:.+\n)+?) +(?:for|labels):",
                       RULES.read_text())
    assert len(rules) == len(alerts())
    for text in rules + [expression for _, expression in expressions()]:
        assert metrics_of(text), text
        assert metrics_of(text) <= known, text
    shown = metrics_of(" ".join(expression for _, expression in expressions()))
    left_out = {"skirnir_build_info", "process_start_time_seconds",
                "skirnir_queue_consumers", "skirnir_partitions",
                "skirnir_largest_partition", "skirnir_blocked_messages"}
    assert known - shown == left_out


def test_the_dashboard_asks_what_prometheus_understands(tmp_path):
    rules = tmp_path / "panels.yml"
    lines = ["groups:", "  - name: panels", "    rules:"]
    for number, (_, expression) in enumerate(expressions()):
        assert '{transport=~"$transport"}' in expression
        expression = expression.replace("$transport", ".*").replace(
            "$__rate_interval", "5m")
        lines += [f"      - record: panel:number_{number}",
                  f"        expr: {json.dumps(expression)}"]
    rules.write_text("\n".join(lines) + "\n")
    code, said = promtool("check", "rules", rules)
    assert code == 0, said
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"])
              for panel in panels}
    assert len(places) == len(panels)


def test_the_guide_names_each_alert():
    guide = GUIDE.read_text()
    assert [name for name in alerts() if f"`{name}`" not in guide] == []
    named = set(re.findall(r"`(Skirnir[A-Z]\w+)`", guide))
    assert named == set(alerts())
