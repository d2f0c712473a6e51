"""The case of handlers that are processes: a worker of each client of clients/,
which records the message in its own transaction."""
import json

from harness import Failure
from languages import LANGUAGES, Missing, worker_environment

WORKED = "SELECT COALESCE(MAX(n), 0) FROM effects"


class WorkerCases:
    """Mixed into the cases of servers."""

    def work(self, config, rows):
        """Rows a second."""
        self.fill_queue(rows)
        self.database.empty_inbox()
        rate, _ = self.watch(
            [[self.programs.skirnir, "consume", "orders", "-c", config,
              "--limit", rows]], [self.database.url, WORKED], rows,
            environment=worker_environment(
                {self.database.client_kind: self.database.url}))
        if self.purge() != 0:
            raise Failure("messages are left in the queue")
        return rate

    def run_workers(self):
        rows = self.rows // 10
        (self.folder / "progress").touch()
        for language, find_commands in LANGUAGES.items():
            title = f"workers: {rows:,} messages, each in a transaction of a " \
                f"worker in {language}, against the loop with one in each"
            try:
                _, command = find_commands()
            except Missing as missing:
                self.title(title)
                self.say(f"not measured: {missing}")
                continue
            config = self.write_config(
                f"worker-{language}", handler="command: " + json.dumps(
                    [str(word) for word in
                    (*command, self.database.client_kind)]))
            self.compare(title + ", for information",
                         lambda: self.consume(self.consume_loop(1, rows),
                                              rows=rows)[0],
                         lambda config=config: self.work(config, rows))
