"""What it costs a relay to clean its table while it works, on any database."""
from harness import Failure

CLEANING = "cleanup: {interval: 1}\n"
AGE = "UPDATE messenger_outbox SET delivered_at = '2020-01-01 00:00:00' " \
    "WHERE queue_name = 'outbox.sent'"
OLD = "SELECT COUNT(*) FROM messenger_outbox WHERE queue_name = 'outbox.sent'"


class CleanupCases:
    """Mixed into the cases of a database, which has make_old(rows), ask_outbox
    (sql) and drain_beside_old(made, config)."""

    def run_cleanup(self):
        """The same table twice: with the configuration as it is, and with one
        that has the relay remove what is old."""
        old = self.rows * 10
        made = self.make_old(old)
        config = self.config.with_name("cleaning.yaml")
        config.write_text(self.config.read_text() + CLEANING)

        def drain(config, is_cleaning):
            rate = self.drain_beside_old(made, config)
            left = int(self.ask_outbox(OLD))
            if (left < old) != is_cleaning:
                raise Failure(f"{left} of {old} old rows are left")
            return rate
        self.compare(f"cleanup: the relay while it removes {old:,} old rows, "
                     "against itself when it leaves them",
                     lambda: drain(self.config, False),
                     lambda: drain(config, True), 0.9)
