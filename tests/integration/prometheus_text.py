"""Prometheus' text format, read strictly, and judged by promtool as well where
that is installed."""
import collections
import re
import shutil
import subprocess

NAME = r"[a-z][a-z0-9_]*"
LABEL = r'[a-z]+="(?:[^"\\\n]|\\[\\"n])*"'
HEAD = re.compile(rf"# (HELP|TYPE) ({NAME}) (.+)")
SAMPLE = re.compile(rf"({NAME})(?:\{{((?:{LABEL},)*{LABEL})\}})? "
                    r"(\d+(?:\.\d+)?)")
PARTS = ("_bucket", "_sum", "_count")
# Units are whole words, and a name does not repeat its type.
UNWELCOME = re.compile(r"_(ms|sec|secs|millis|bytes_kib|counter|gauge|"
                       r"histogram)(_|$)")
# Labels beside that of the transport.
LABELS = {"skirnir_build_info": {"version"},
          "skirnir_blocked_partition_messages": {"partition", "head",
                                                 "reason"}}
Blocked = collections.namedtuple("Blocked", "head reason length")


def read_labels(text):
    labels = {}
    for name, value in re.findall(r'([a-z]+)="((?:[^"\\]|\\.)*)"', text or ""):
        assert name not in labels, f"the label {name} twice in {text}"
        labels[name] = re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(
            found.group(1), found.group(1)), value)
    return labels


class Metrics:
    """samples and histograms by name and transport; blocked by transport and
    key of a partition."""

    def __init__(self, text):
        self.text = text
        self.types, self.helps = {}, {}
        self.samples, self.histograms, self.blocked = {}, {}, {}
        self.current = None
        assert text.endswith("\n")
        # Other ends of lines, such as \r, are letters.
        for line in text.split("\n")[:-1]:
            if line.startswith("#"):
                self.read_head(line)
            else:
                self.read_sample(line)
        for key in self.histograms:
            self.check_histogram(*key)

    def read_head(self, line):
        kind, name, rest = HEAD.fullmatch(line).groups()
        if kind == "HELP":
            assert name not in self.helps, f"{name} does not stand together"
            self.helps[name], self.current = rest, name
            assert rest.endswith("."), line
            return
        assert name == self.current and name not in self.types, line
        assert rest in ("counter", "gauge", "histogram"), line
        assert (rest == "counter") == name.endswith("_total"), line
        assert not name.endswith(PARTS), line
        assert not UNWELCOME.search(name), line
        assert name.startswith(("skirnir_", "process_")), line
        self.types[name] = rest

    def read_sample(self, line):
        match = SAMPLE.fullmatch(line)
        assert match, f"no sample: {line}"
        name, labels = match.group(1), read_labels(match.group(2))
        number = float(match.group(3))
        transport = labels.pop("transport", None)
        kind = self.types[self.current]
        if kind != "histogram":
            assert name == self.current, line
            assert set(labels) == LABELS.get(name, set()), line
            self.keep_sample(name, transport, labels, number)
            return
        assert name.startswith(self.current), line
        part = name[len(self.current):]
        assert part in PARTS, line
        assert set(labels) == ({"le"} if part == "_bucket" else set()), line
        histogram = self.histograms.setdefault(
            (self.current, transport), {"_bucket": []})
        if part == "_bucket":
            histogram[part].append((float(labels["le"]), number))
        else:
            assert part not in histogram, line
            histogram[part] = number

    def keep_sample(self, name, transport, labels, number):
        kept, key, value = self.samples, (name, transport), number
        if "partition" in labels:
            kept, key = self.blocked, (transport, labels["partition"])
            value = Blocked(int(labels["head"]), labels["reason"], number)
        assert key not in kept, key
        kept[key] = value

    def check_histogram(self, name, transport):
        histogram = self.histograms[name, transport]
        bounds = [bound for bound, _ in histogram["_bucket"]]
        counts = [count for _, count in histogram["_bucket"]]
        assert bounds == sorted(set(bounds)) and bounds[-1] == float("inf")
        assert counts == sorted(counts), f"{name} is not cumulative"
        assert counts[-1] == histogram["_count"]
        assert (histogram["_sum"] > 0) <= (histogram["_count"] > 0)

    def __getitem__(self, key):
        return self.samples[key]

    def count(self, name, transport):
        """How often something was timed."""
        return self.histograms[name, transport]["_count"]

    def within(self, name, transport, bound_s):
        """How many of those took no longer than that bound."""
        return dict(self.histograms[name, transport]["_bucket"])[bound_s]

    def falls_behind(self, earlier):
        """What has become less although it only counts up."""
        before = {key: number for key, number in earlier.samples.items()
                  if earlier.types[key[0]] == "counter"}
        return [key for key, number in before.items()
                if self.samples.get(key, -1) < number] + \
            [key for key, histogram in earlier.histograms.items()
             if self.histograms[key]["_count"] < histogram["_count"]]


def check_with_promtool(text):
    """What its linter has to say; nothing where it is not installed."""
    promtool = shutil.which("promtool")
    if promtool is None:
        return ""
    result = subprocess.run([promtool, "check", "metrics"], input=text,
                            capture_output=True, text=True, timeout=30)
    return result.stdout + result.stderr if result.returncode else ""
