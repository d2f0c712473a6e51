"""What the cases of the benchmark share: running, watching, comparing."""
import contextlib
import ctypes
import os
import pathlib
import signal
import statistics
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
STEP_LIMIT_S = 1800
ENOUGH_PAIRS = 7
BEFORE = 0.95  # the least ratio to the program of before
HELD_RATE = 2000  # messages a second beside an application that is measured
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1  # of <sys/prctl.h>


class Failure(Exception):
    """Something did not work: there is no figure."""


class Report:
    """Prints, and keeps what was printed for --save."""

    def __init__(self):
        self.lines = []

    def say(self, line=""):
        self.lines.append(line)
        print(line, flush=True)


class Programs:
    """What was built: the program, and those of the benchmark; before: the folder
    of another build, whose program is measured against it."""

    def __init__(self, build, before=None):
        build = pathlib.Path(build).resolve()
        self._bench = build / "bench"
        self.skirnir = build / "src/app/skirnir"
        self.before = before and \
            pathlib.Path(before).resolve() / "src/app/skirnir"
        for program in filter(None, (self.skirnir, self.before)):
            if not program.exists():
                raise Failure(f"{program} is missing; run `make bench`")

    @contextlib.contextmanager
    def earlier(self):
        """Meanwhile the program is that of before."""
        now, self.skirnir = self.skirnir, self.before
        try:
            yield
        finally:
            self.skirnir = now

    def bench(self, name):
        program = self._bench / f"bench-{name}"
        if not program.exists():
            raise Failure(f"{program} is missing: the library of one of the "
                          "servers is not installed, or it was not built")
        return program


def words(command):
    return [str(part) for part in command]


def die_with_parent():
    """For a child: whatever ends the benchmark ends what it measures."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def run(*command):
    result = subprocess.run(words(command), text=True, capture_output=True,
                            timeout=STEP_LIMIT_S, stdin=subprocess.DEVNULL,
                            preexec_fn=die_with_parent)
    if result.returncode != 0:
        raise Failure(f"{' '.join(words(command))} exits with "
                      f"{result.returncode}: {result.stderr.strip()}")
    return result.stdout.strip()


class Background:
    """A command that runs beside others. What it says is kept for errors."""

    def __init__(self, output, *command, environment=None):
        self.command = words(command)
        self.output = pathlib.Path(output)
        with open(self.output, "wb") as file:
            self.process = subprocess.Popen(
                self.command, stdout=file, stderr=file,
                stdin=subprocess.DEVNULL, preexec_fn=die_with_parent,
                env={**os.environ, **(environment or {})})
        self.most_memory = 0.0
        self.processor_us = 0.0

    def text(self):
        return self.output.read_text(errors="replace").strip()

    def failure(self, what):
        return Failure(f"{' '.join(self.command)} {what}: "
                       f"{self.text()[-500:]}")

    def has_ended(self):
        """Looks at what it uses while it runs."""
        if self.process.poll() is None:
            self.most_memory = max(self.most_memory,
                                   resident(self.process.pid)[0])
            self.processor_us = max(self.processor_us,
                                    processor_us([self.process.pid]))
            return False
        if self.process.returncode != 0:
            raise self.failure(f"exits with {self.process.returncode}")
        return True

    def wait(self):
        wait_for(self.has_ended, lambda: self.failure("does not end"))
        return self.text()

    def wait_for_text(self, text):
        def has_said_it():
            if self.has_ended():
                raise self.failure(f"ends without saying {text}")
            return text in self.text()
        wait_for(has_said_it, lambda: self.failure(f"does not say {text}"), 60)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.process.returncode != 0:
            raise self.failure("answers SIGTERM with "
                               f"{self.process.returncode}")

    def end(self):
        """At once, for when something else went wrong."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def wait_for(condition, failure, limit_s=STEP_LIMIT_S):
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            raise failure()
        time.sleep(0.02)


def resident(pid):
    """(most, now) in MB; nothing of a process that is ending."""
    sizes = {"VmHWM": 0.0, "VmRSS": 0.0}
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        status = ""
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name in sizes:
            sizes[name] = int(value.split()[0]) / 1024
    return sizes["VmHWM"], sizes["VmRSS"]


def processor_us(pids):
    """Microseconds of processor time, with those of children that ended."""
    ticks = 0
    for pid in pids:
        try:
            text = pathlib.Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue
        # The name in parentheses may hold anything; fields follow the last.
        ticks += sum(int(word) for word in text.rpartition(")")[2].split()
                     [11:15])
    return ticks * 1e6 / os.sysconf("SC_CLK_TCK")


def load():
    return " ".join(f"{average:.2f}" for average in os.getloadavg())


class Cases:
    """Cases on one kind of database."""

    def __init__(self, options, folder, report, programs):
        self.rows = options.rows
        self.pairs = options.pairs
        self.quick = options.quick
        self.folder = folder
        self.say = report.say
        self.programs = programs
        self.costs = {}  # of the last run: microseconds a message, by whom
        self.counts = options.count
        self.counted = {}  # of the last run: what a message costs

    def title(self, text):
        self.say()
        self.say(f"## {text}")

    def judge(self, ratios, target=None, is_most=False, what=""):
        """Single pairs scatter too much to judge by."""
        median = statistics.median(ratios)
        verdict = ""
        if target is not None and len(ratios) >= ENOUGH_PAIRS:
            is_met = median <= target if is_most else median >= target
            verdict = f"; target {'at most ' if is_most else ''}" \
                f"{target:.2f}: {'met' if is_met else 'MISSED'}"
        self.say(f"{what}median {median:.2f} ({min(ratios):.2f} to "
                 f"{max(ratios):.2f}){verdict}; load {load()}")

    def compare(self, title, ceiling, product, target=None, beside=None):
        """ceiling and product run in turns, and return rows per second.
        beside: another ceiling, for information. The program of before, where
        there is one, stands in the place of a ceiling."""
        ratios, others, costs, counted = [], [], {}, {}
        if self.programs.before:
            title += "; here against the program of before"
            target, beside = BEFORE, None

            def ceiling():
                with self.programs.earlier():
                    return product()
        self.title(title)

        def measure(name, side):
            self.costs, self.counted = {}, {}
            rate = side()
            costs.setdefault(name, []).append(self.costs)
            counted.setdefault(name, []).append(self.counted)
            return rate
        for number in range(1, self.pairs + 1):
            top = measure("ceiling", ceiling)
            other = beside and measure("beside", beside)
            rate = measure("product", product)
            ratios.append(rate / top)
            line = f"pair {number}: ceiling {top:9,.0f}/s  product " \
                f"{rate:9,.0f}/s  ratio {rate / top:.2f}"
            if other is not None:
                others.append(rate / other)
                line += f"  beside {other:9,.0f}/s  ratio {rate / other:.2f}"
            self.say(line)
        self.judge(ratios, target)
        if others:
            self.judge(others, what="beside: ")
        self.say_costs("processor time in us a message", costs, ".0f")
        self.say_costs("counted a message", counted, ".3f")

    def measure_application(self, beside, *topic):
        """(p50, p99, most in ms, conflicts, waits for locks) of its inserts
        beside a command that is running."""
        try:
            words = run(self.programs.bench("application"), self.database.url,
                        5 if self.quick else 20, HELD_RATE, *topic).split()
            if beside.process.poll() is not None:
                raise beside.failure("ended before the application did")
        finally:
            beside.end()
        return [int(word) / 1000 for word in words[:3]] + \
            [int(word) for word in words[3:]]

    def in_turns(self):
        """What to say first of the program, and before it of that of before."""
        if self.programs.before:
            with self.programs.earlier():
                yield "before: "
        yield "now: " if self.programs.before else ""

    def compare_application(self, name, what, ceiling, product, target=1.5):
        """ceiling and product run in turns, and measure an application beside
        them; what: the ceiling, for people."""
        ratios, troubles = [], []
        if self.programs.before:
            what, target = "the relay of before", 1 / BEFORE

            def ceiling():
                with self.programs.earlier():
                    return product()
        self.title(f"{name}: its insert while {HELD_RATE:,}/s are relayed, "
                   f"against the same rate of {what}")
        for number in range(1, self.pairs + 1):
            top, side = ceiling(), product()
            ratios.append(side[1] / top[1])
            troubles.append((top[3:], side[3:]))
            self.say(f"pair {number}: p99 beside {what} {top[1]:6.1f} ms  "
                     f"beside the relay {side[1]:6.1f} ms  ratio "
                     f"{ratios[-1]:.2f}  (p50 {top[0]:.1f} and {side[0]:.1f} "
                     "ms)")
        self.judge(ratios, target, is_most=True)
        for at, trouble in enumerate(("conflicts (1213, 1205)",
                                      "waits for a lock")):
            alone, found = [sum(pair[side][at] for pair in troubles)
                            for side in (0, 1)]
            self.say(f"{trouble}: {found} beside the relay, {alone} beside "
                     f"{what}; target 0: {'met' if found == 0 else 'MISSED'}")

    def say_costs(self, title, costs, form):
        """They tell more than rates where others are at work too."""
        parts = []
        for name, runs in costs.items():
            spent = ", ".join(
                f"{who} {statistics.median(run[who] for run in runs):{form}}"
                for who in runs[0])
            if spent:
                parts.append(f"{name}: {spent}")
        if parts:
            self.say(f"{title}: " + "; ".join(parts))

    # Counting, with --count: it slows the program, so that rates mean little.

    def counting(self):
        """The environment of a process that counts."""
        return {"LD_PRELOAD": str(self.programs.bench("count.so")),
                "SKR_BENCH_COUNTS": str(self.folder / "counts")} \
            if self.counts else {}

    def take_counts(self, rows, statements):
        """Of all processes that have ended since the last time."""
        if not self.counts:
            return
        allocations = sent = 0
        for file in self.folder.glob("counts.*"):
            words = file.read_text().split()
            allocations += int(words[0])
            sent += int(words[1])
            file.unlink()
        self.counted = {"statements": statements / rows,
                        "bytes sent": sent / rows,
                        "allocations": allocations / rows}
